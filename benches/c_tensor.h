/* The floor's tensor type: what `dlx.Tensor` does, written by hand against CPython and dlpack.h.
 *
 * `Tensor` owns one managed tensor, snapshots shape and strides inline, is weakly referenceable, and
 * calls the deleter when it dies. What a library must offer and a floor need not is left out: dtype
 * checks, legacy capsules, copies.
 */
#ifndef C_TENSOR_H
#define C_TENSOR_H
#include "c_table.h"
#include <stdlib.h>

#define MAX_NDIM 64
#define CAPSULE_NAME "dltensor_versioned"
#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

typedef struct {
    PyObject_VAR_HEAD
    PyObject *weakrefs;
    DLManagedTensorVersioned *managed;
    DLTensor view; /* shape and strides point into dims */
    int64_t dims[];
} Tensor;

/* One allocation per export; its manager_ctx is the Tensor, which keeps shape, strides and data. */
typedef DLManagedTensorVersioned Export;

static PyTypeObject Tensor_Type;
static PyObject *str_max_version, *str_dl_device, *str_copy, *cpu_device; /* set at import */

static void release(DLManagedTensorVersioned *managed) {
    if (managed->deleter != NULL) managed->deleter(managed);
}

/* A Tensor that owns `managed`; on failure `managed` is released. */
static PyObject *new_tensor(DLManagedTensorVersioned *managed) {
    const DLTensor *source = &managed->dl_tensor;
    int32_t ndim = source->ndim;
    if (managed->version.major != DLPACK_MAJOR_VERSION || ndim < 0 || ndim > MAX_NDIM) {
        PyErr_SetString(PyExc_BufferError, "not a DLPack 1.x tensor of at most 64 dimensions");
        release(managed);
        return NULL;
    }
    Tensor *self = PyObject_NewVar(Tensor, &Tensor_Type, 2 * (Py_ssize_t)ndim);
    if (self == NULL) {
        release(managed);
        return NULL;
    }
    self->weakrefs = NULL;
    self->managed = managed;
    self->view = *source;
    self->view.shape = self->dims;
    self->view.strides = self->dims + ndim;
    for (int32_t i = 0; i < ndim; i++) self->dims[i] = source->shape[i];
    if (source->strides != NULL) {
        for (int32_t i = 0; i < ndim; i++) self->dims[ndim + i] = source->strides[i];
    } else {
        int64_t step = 1;
        for (int32_t i = ndim - 1; i >= 0; i--) {
            self->dims[ndim + i] = step;
            step *= self->dims[i];
        }
    }
    return (PyObject *)self;
}

static void tensor_dealloc(Tensor *self) {
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs((PyObject *)self);
    release(self->managed);
    PyObject_Free(self);
}

/* ---- the exchange table of Tensor ---- */

/* dlpack.h lets a deleter run on any thread, with or without the GIL, and during finalization. */
static void export_delete(Export *export) {
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF((PyObject *)export->manager_ctx);
        PyGILState_Release(state);
    }
    free(export);
}

static int table_from_py(void *object, DLManagedTensorVersioned **out) {
    if (!PyObject_TypeCheck((PyObject *)object, &Tensor_Type)) {
        PyErr_SetString(PyExc_BufferError, "not a c_exchange.Tensor");
        return -1;
    }
    Tensor *self = object;
    Export *export = malloc(sizeof *export);
    if (export == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    export->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    export->manager_ctx = Py_NewRef((PyObject *)self);
    export->deleter = export_delete;
    export->flags = self->managed->flags & ~DLPACK_FLAG_BITMASK_IS_COPIED;
    export->dl_tensor = self->view;
    *out = export;
    return 0;
}

static int table_dltensor_from_py(void *object, DLTensor *out) {
    if (!PyObject_TypeCheck((PyObject *)object, &Tensor_Type)) {
        PyErr_SetString(PyExc_BufferError, "not a c_exchange.Tensor");
        return -1;
    }
    *out = ((Tensor *)object)->view;
    return 0;
}

static int table_to_py(DLManagedTensorVersioned *managed, void **out) {
    PyObject *tensor = new_tensor(managed);
    if (tensor == NULL) return -1;
    *out = tensor;
    return 0;
}

static void allocated_delete(DLManagedTensorVersioned *managed) { free(managed); }

/* One 256-byte aligned block: managed tensor, shape, strides, then the data at the next boundary. */
static int table_allocator(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
                           void (*set_error)(void *, const char *, const char *)) {
    int32_t ndim = prototype->ndim;
    size_t data = ((size_t)prototype->dtype.bits * prototype->dtype.lanes + 7) / 8;
    size_t head = sizeof **out + 2 * (size_t)(ndim > 0 ? ndim : 0) * sizeof(int64_t);
    int valid = prototype->device.device_type == kDLCPU && ndim >= 0 && ndim <= MAX_NDIM;
    for (int32_t i = 0; valid && i < ndim; i++) {
        valid = prototype->shape[i] >= 0 &&
                !__builtin_mul_overflow(data, (size_t)prototype->shape[i], &data) && data < SIZE_MAX / 4;
    }
    head = (head + 255) & ~(size_t)255;
    DLManagedTensorVersioned *managed =
        valid ? aligned_alloc(256, head + ((data + 255) & ~(size_t)255)) : NULL;
    if (managed == NULL) {
        if (set_error != NULL) set_error(error_ctx, "MemoryError", "cannot allocate this tensor");
        return -1;
    }
    int64_t *shape = (int64_t *)(managed + 1), step = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        shape[i] = prototype->shape[i];
        shape[ndim + i] = step;
        step *= shape[i];
    }
    *managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .deleter = allocated_delete,
        .dl_tensor = {.data = (char *)managed + head,
                      .device = {kDLCPU, 0},
                      .ndim = ndim,
                      .dtype = prototype->dtype,
                      .shape = shape,
                      .strides = shape + ndim}};
    *out = managed;
    return 0;
}

static int table_work_stream(DLDeviceType type, int32_t id, void **out) {
    (void)type, (void)id;
    *out = NULL;
    return 0;
}

static DLPackExchangeAPI table = {
    .header = {{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, NULL},
    .managed_tensor_allocator = table_allocator,
    .managed_tensor_from_py_object_no_sync = table_from_py,
    .managed_tensor_to_py_object_no_sync = table_to_py,
    .dltensor_from_py_object_no_sync = table_dltensor_from_py,
    .current_work_stream = table_work_stream,
};

/* ---- the Python protocol of Tensor ---- */

static void capsule_destroy(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, CAPSULE_NAME)) release(PyCapsule_GetPointer(capsule, CAPSULE_NAME));
}

static PyObject *tensor_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) {
    Py_ssize_t count = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    int versioned = 0, simple = nargs == 0;
    for (Py_ssize_t i = 0; i < count && simple; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i), *value = args[nargs + i];
        if (value == Py_None) continue;
        if (name == str_max_version && PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 2) {
            versioned = PyLong_AsLong(PyTuple_GET_ITEM(value, 0)) >= 1;
        } else if (name == str_dl_device) {
            simple = PyObject_RichCompareBool(value, cpu_device, Py_EQ) == 1;
        } else {
            simple = name == str_copy && value == Py_False;
        }
    }
    if (!versioned || !simple || PyErr_Occurred()) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_BufferError, "this floor exports versioned, uncopied CPU tensors only");
        return NULL;
    }
    DLManagedTensorVersioned *managed;
    if (table_from_py(self, &managed) < 0) return NULL;
    PyObject *capsule = PyCapsule_New(managed, CAPSULE_NAME, capsule_destroy);
    if (capsule == NULL) release(managed);
    return capsule;
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *unused) {
    const DLDevice *device = &((Tensor *)self)->view.device;
    (void)unused;
    if (device->device_type == kDLCPU) return Py_NewRef(cpu_device);
    return Py_BuildValue("(ii)", (int)device->device_type, (int)device->device_id);
}

static PyMethodDef tensor_methods[] = {
    {"__dlpack__", METHOD(tensor_dlpack), METH_FASTCALL | METH_KEYWORDS, "A versioned capsule."},
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "(device type, device id)."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject Tensor_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "c_exchange.Tensor",
    .tp_doc = "Owns one managed tensor.",
    .tp_basicsize = offsetof(Tensor, dims),
    .tp_itemsize = sizeof(int64_t),
    .tp_dealloc = (destructor)tensor_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_weaklistoffset = offsetof(Tensor, weakrefs),
    .tp_methods = tensor_methods,
};

/* To be called at import. */
static int tensor_ready(void) {
    str_table = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    str_max_version = PyUnicode_InternFromString("max_version");
    str_dl_device = PyUnicode_InternFromString("dl_device");
    str_copy = PyUnicode_InternFromString("copy");
    cpu_device = Py_BuildValue("(ii)", kDLCPU, 0);
    PyObject *capsule = PyCapsule_New(&table, TABLE_NAME, NULL);
    if (PyErr_Occurred() || PyType_Ready(&Tensor_Type) < 0 ||
        PyDict_SetItem(Tensor_Type.tp_dict, str_table, capsule) < 0)
        return -1;
    PyType_Modified(&Tensor_Type);
    return 0;
}

#endif
