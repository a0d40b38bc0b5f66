/* A class in C that every library reads, and that tensors of every library become, without a copy.
 *
 *     Array(3)                            three float32 on the CPU, zeros
 *     dlx.convert(tensor, c_class.Array)  any tensor on the CPU
 */
#define PY_SSIZE_T_CLEAN
#include "dlpack_exchange_producer.h"

typedef struct {
    PyObject_HEAD
    DLManagedTensorVersioned *managed;
} Array;

static PyTypeObject *Array_Type;

static int fill(PyObject *self, DLTensor *out, uint64_t *flags) {
    const DLManagedTensorVersioned *managed = ((Array *)self)->managed;
    *out = managed->dl_tensor;
    *flags = managed->flags & ~DLPACK_FLAG_BITMASK_IS_COPIED; /* an export of it is shared */
    return 0;
}

static PyObject *make(DLManagedTensorVersioned *managed) {
    const DLTensor *t = &managed->dl_tensor;
    if (t->device.device_type != kDLCPU || (t->ndim > 0 && t->strides == NULL))
        return PyErr_Format(PyExc_BufferError, "an Array is on the CPU, and has strides");
    Array *self = PyObject_New(Array, Array_Type);
    if (self != NULL) self->managed = managed;
    return (PyObject *)self;
}

DLX_PRODUCER(array, fill, make)

static PyObject *array_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    DLManagedTensorVersioned *managed;
    PyObject *self;
    long long n;
    int64_t shape[1];
    (void)type;
    if (keywords != NULL && PyDict_Size(keywords) != 0)
        return PyErr_Format(PyExc_TypeError, "Array() takes no keywords");
    if (!PyArg_ParseTuple(args, "L", &n)) return NULL;
    shape[0] = n;
    if (dlx_empty_like(NULL, (DLDevice){kDLCPU, 0}, (DLDataType){kDLFloat, 32, 1}, 1,
                       shape, &managed) < 0)
        return NULL;
    if (n > 0) memset(managed->dl_tensor.data, 0, 4 * (size_t)n);
    if ((self = make(managed)) == NULL) dlx_delete(managed);
    return self;
}

static void array_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    dlx_delete(((Array *)self)->managed);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot slots[] = {{Py_tp_new, (void *)array_new},
                              {Py_tp_dealloc, (void *)array_dealloc},
                              {Py_tp_doc, "Array(n): n float32 on the CPU, zeros"},
                              {0, NULL}};
static PyType_Spec spec = {"c_class.Array", sizeof(Array), 0, Py_TPFLAGS_DEFAULT, slots};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "c_class", NULL, -1, NULL,
                                 NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_c_class(void) {
    PyObject *module = PyModule_Create(&definition);
    Array_Type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (module == NULL || Array_Type == NULL || array_publish(Array_Type) < 0) return NULL;
    return PyModule_AddType(module, Array_Type) == 0 ? module : NULL;
}
