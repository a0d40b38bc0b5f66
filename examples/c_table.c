/* A minimal exchange table: an array type in C that every library reads without a Python call.
 *
 * `c_table.zeros(n)` is n float32 on the CPU. An Array holds one DLManagedTensorVersioned, and what it
 * exports holds the Array. `python -m dlx check` finds no rule that it breaks; it copies nothing.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>

typedef struct {
    PyObject_HEAD
    DLManagedTensorVersioned *managed;
} Array;

/* An export is one block: its consumer may write to shape and strides, which are its own. */
typedef struct {
    DLManagedTensorVersioned managed;
    int64_t dims[];
} Export;

static PyTypeObject Array_Type;

static void delete_memory(DLManagedTensorVersioned *managed) {
    free(managed->dl_tensor.data);
    free(managed);
}

/* A consumer may call this in any thread, without the GIL, and while Python exits: then it leaks. */
static void delete_export(DLManagedTensorVersioned *managed) {
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF((PyObject *)managed->manager_ctx);
        PyGILState_Release(state);
    }
    free(managed);
}

/* A new managed tensor like `like`, with dims of its own; strides are never NULL since DLPack 1.2. */
static DLManagedTensorVersioned *new_managed(const DLTensor *like,
                                             void (*deleter)(DLManagedTensorVersioned *)) {
    int32_t ndim = like->ndim;
    Export *export = malloc(sizeof *export + 2 * (size_t)ndim * sizeof *export->dims);
    if (export == NULL) return NULL;
    export->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .deleter = deleter,
        .dl_tensor = *like,
    };
    export->managed.dl_tensor.shape = export->dims;
    export->managed.dl_tensor.strides = export->dims + ndim;
    int64_t step = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        export->dims[i] = like->shape[i];
        export->dims[ndim + i] = like->strides != NULL ? like->strides[i] : step;
        step *= like->shape[i];
    }
    return &export->managed;
}

/* ---- the five functions of the table ---- */

static int from_py_object(void *object, DLManagedTensorVersioned **out) {
    if (!PyObject_TypeCheck((PyObject *)object, &Array_Type)) {
        PyErr_SetString(PyExc_TypeError, "expected a c_table.Array");
        return -1;
    }
    Array *self = object;
    DLManagedTensorVersioned *managed = new_managed(&self->managed->dl_tensor, delete_export);
    if (managed == NULL) return PyErr_NoMemory(), -1;
    managed->manager_ctx = Py_NewRef((PyObject *)self);
    managed->flags = self->managed->flags & ~DLPACK_FLAG_BITMASK_IS_COPIED; /* it is shared */
    *out = managed;
    return 0;
}

/* The Array owns `managed` from here on; on failure the caller still does. */
static int to_py_object(DLManagedTensorVersioned *managed, void **out) {
    if (managed->version.major != DLPACK_MAJOR_VERSION) {
        PyErr_SetString(PyExc_BufferError, "expected a tensor of DLPack 1.x");
        return -1;
    }
    Array *self = PyObject_New(Array, &Array_Type);
    if (self == NULL) return -1;
    self->managed = managed;
    *out = self;
    return 0;
}

/* A view without an owner, for the length of one C call. */
static int view_of_py_object(void *object, DLTensor *out) {
    if (!PyObject_TypeCheck((PyObject *)object, &Array_Type)) {
        PyErr_SetString(PyExc_TypeError, "expected a c_table.Array");
        return -1;
    }
    *out = ((Array *)object)->managed->dl_tensor;
    return 0;
}

/* Without the GIL perhaps, so errors go to `set_error`, which may be NULL. */
static int allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
                    void (*set_error)(void *, const char *kind, const char *message)) {
    if (prototype->device.device_type != kDLCPU) {
        if (set_error != NULL) set_error(error_ctx, "BufferError", "expected a tensor on the CPU");
        return -1;
    }
    size_t bytes = ((size_t)prototype->dtype.bits * prototype->dtype.lanes + 7) / 8;
    int fits = 1;
    for (int32_t i = 0; i < prototype->ndim && fits; i++) {
        size_t extent = (size_t)prototype->shape[i];
        fits = extent == 0 || bytes <= PY_SSIZE_T_MAX / extent;
        bytes *= extent;
    }
    DLTensor like = *prototype;
    like.strides = NULL; /* row-major */
    like.byte_offset = 0;
    like.data = fits && bytes > 0 ? calloc(1, bytes) : NULL;
    DLManagedTensorVersioned *managed =
        fits && (like.data != NULL || bytes == 0) ? new_managed(&like, delete_memory) : NULL;
    if (managed == NULL) {
        free(like.data);
        if (set_error != NULL) set_error(error_ctx, "MemoryError", "cannot allocate the tensor");
        return -1;
    }
    *out = managed;
    return 0;
}

static int work_stream(DLDeviceType type, int32_t id, void **out) {
    (void)type, (void)id;
    *out = NULL; /* the CPU has no streams */
    return 0;
}

static DLPackExchangeAPI table = {
    .header = {{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, NULL},
    .managed_tensor_allocator = allocate,
    .managed_tensor_from_py_object_no_sync = from_py_object,
    .managed_tensor_to_py_object_no_sync = to_py_object,
    .dltensor_from_py_object_no_sync = view_of_py_object,
    .current_work_stream = work_stream,
};

/* ---- for who knows no tables: NumPy, JAX ---- */

static void delete_capsule(PyObject *capsule) {
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return; /* a consumer has renamed it */
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    managed->deleter(managed);
}

/* A consumer from before DLPack 1.0 gets the older struct, which cannot say that memory is read-only. */
static void delete_unversioned(DLManagedTensor *unversioned) {
    DLManagedTensorVersioned *managed = unversioned->manager_ctx;
    managed->deleter(managed);
    free(unversioned);
}

static void delete_unversioned_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) delete_unversioned(PyCapsule_GetPointer(capsule, "dltensor"));
}

static PyObject *unversioned_capsule(DLManagedTensorVersioned *managed) {
    if (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) {
        PyErr_SetString(PyExc_BufferError, "the array is read-only; expected max_version=(1, 0) or later");
        return NULL;
    }
    DLManagedTensor *unversioned = malloc(sizeof *unversioned);
    if (unversioned == NULL) return PyErr_NoMemory();
    *unversioned = (DLManagedTensor){managed->dl_tensor, managed, delete_unversioned};
    PyObject *capsule = PyCapsule_New(unversioned, "dltensor", delete_unversioned_capsule);
    if (capsule == NULL) free(unversioned);
    return capsule;
}

static PyObject *array_dlpack(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *dl_device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO", names, &stream, &max_version, &dl_device,
                                     &copy))
        return NULL;
    long major = 0, minor, type = kDLCPU, id;
    if (max_version != Py_None && !PyArg_ParseTuple(max_version, "ll", &major, &minor)) return NULL;
    if (dl_device != Py_None && !PyArg_ParseTuple(dl_device, "ll", &type, &id)) return NULL;
    if (type != kDLCPU || copy == Py_True || stream != Py_None) {
        PyErr_SetString(PyExc_BufferError, "the array is on the CPU; expected no copy and no stream");
        return NULL;
    }
    DLManagedTensorVersioned *managed;
    if (from_py_object(self, &managed) < 0) return NULL;
    PyObject *capsule = major < 1 ? unversioned_capsule(managed)
                                  : PyCapsule_New(managed, "dltensor_versioned", delete_capsule);
    if (capsule == NULL) managed->deleter(managed);
    return capsule;
}

static PyObject *array_device(PyObject *self, PyObject *unused) {
    (void)unused;
    DLDevice device = ((Array *)self)->managed->dl_tensor.device;
    return Py_BuildValue("ii", device.device_type, device.device_id);
}

static void array_dealloc(PyObject *self) {
    DLManagedTensorVersioned *managed = ((Array *)self)->managed;
    if (managed->deleter != NULL) managed->deleter(managed);
    PyObject_Free(self);
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", array_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject Array_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "c_table.Array",
    .tp_basicsize = sizeof(Array),
    .tp_dealloc = array_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = array_methods,
};

/* ---- the module ---- */

static PyObject *zeros(PyObject *module, PyObject *size) {
    (void)module;
    int64_t n = PyLong_AsLongLong(size);
    if (n == -1 && PyErr_Occurred()) return NULL;
    DLTensor like = {.device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = &n};
    DLManagedTensorVersioned *managed;
    void *array;
    if (n < 0 || allocate(&like, &managed, NULL, NULL) < 0) return PyErr_NoMemory();
    if (to_py_object(managed, &array) == 0) return array;
    managed->deleter(managed);
    return NULL;
}

static PyMethodDef functions[] = {
    {"zeros", zeros, METH_O, "zeros(n): an Array of n float32"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "c_table",
    .m_size = -1,
    .m_methods = functions,
};

/* The table has to be there before anybody looks at the type, and stays for the life of the process. */
PyMODINIT_FUNC PyInit_c_table(void) {
    if (PyType_Ready(&Array_Type) < 0) return NULL;
    PyObject *capsule = PyCapsule_New(&table, "dlpack_exchange_api", NULL);
    if (capsule == NULL) return NULL;
    int set = PyDict_SetItemString(Array_Type.tp_dict, "__dlpack_c_exchange_api__", capsule);
    Py_DECREF(capsule);
    if (set < 0) return NULL;
    PyType_Modified(&Array_Type);
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Array", (PyObject *)&Array_Type) < 0)
        Py_CLEAR(module);
    return module;
}
