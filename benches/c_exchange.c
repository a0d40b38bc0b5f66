/* The floor that dlx is measured against: the same exchanges, written by hand.
 *
 * CPython's full C API and dlpack.h, nothing else. Consumers here, the tensor type in c_tensor.h.
 * What a library must check and a floor need not (torch's conj, neg and grad, dtypes, overflow) is
 * left out.
 */
#include "c_tensor.h"
#include <time.h>

#define USED_CAPSULE_NAME "used_dltensor_versioned"

static PyObject *str_dlpack, *max_version, *max_version_keyword; /* set at import */

static int one_argument(Py_ssize_t nargs) {
    if (nargs != 1) PyErr_SetString(PyExc_TypeError, "one argument expected");
    return nargs == 1;
}

static PyObject *from_table(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    if (!one_argument(nargs)) return NULL;
    const DLPackExchangeAPI *api = lookup(Py_TYPE(args[0]));
    DLManagedTensorVersioned *managed;
    if (api == NULL || api->managed_tensor_from_py_object_no_sync(args[0], &managed) != 0) return NULL;
    return new_tensor(managed);
}

static PyObject *address(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    DLTensor view;
    (void)module;
    if (!one_argument(nargs)) return NULL;
    const DLPackExchangeAPI *api = lookup(Py_TYPE(args[0]));
    if (api == NULL || api->dltensor_from_py_object_no_sync(args[0], &view) != 0) return NULL;
    return PyLong_FromVoidPtr((char *)view.data + view.byte_offset);
}

/* The arguments of a call. */
static PyObject *take(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    DLTensor views[8];
    (void)module;
    if (nargs > 8) return PyErr_Format(PyExc_TypeError, "at most 8 arguments");
    for (Py_ssize_t i = 0; i < nargs; i++) {
        const DLPackExchangeAPI *api = lookup(Py_TYPE(args[i]));
        if (api == NULL || api->dltensor_from_py_object_no_sync(args[i], &views[i]) != 0) return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *from_protocol(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    if (!one_argument(nargs)) return NULL;
    PyObject *call[] = {NULL, args[0], max_version};
    PyObject *capsule = PyObject_VectorcallMethod(
        str_dlpack, call + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, max_version_keyword);
    if (capsule == NULL) return NULL;
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, CAPSULE_NAME);
    PyObject *tensor = NULL;
    if (managed != NULL && PyCapsule_SetName(capsule, USED_CAPSULE_NAME) == 0) tensor = new_tensor(managed);
    Py_DECREF(capsule);
    return tensor;
}

/* ---- loops over one table entry, timed inside; each returns nanoseconds per call ---- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static PyObject *per_call(double start, Py_ssize_t n, int failed) {
    double elapsed = now() - start;
    return failed ? NULL : PyFloat_FromDouble(elapsed / (double)n);
}

static PyObject *borrow_loop(PyObject *module, PyObject *args) {
    PyObject *x;
    Py_ssize_t n;
    DLTensor view;
    int failed = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "On", &x, &n)) return NULL;
    double start = now();
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        const DLPackExchangeAPI *api = lookup(Py_TYPE(x));
        failed = api == NULL || api->dltensor_from_py_object_no_sync(x, &view) != 0;
    }
    return per_call(start, n, failed);
}

static int parse_loop(PyObject *args, const DLPackExchangeAPI **api, PyObject **x, Py_ssize_t *n) {
    PyObject *capsule;
    if (!PyArg_ParseTuple(args, "OOn", &capsule, x, n)) return -1;
    *api = capsule_table(capsule);
    return *api == NULL ? -1 : 0;
}

static PyObject *borrow_loop_table(PyObject *module, PyObject *args) {
    const DLPackExchangeAPI *api;
    PyObject *x;
    Py_ssize_t n;
    DLTensor view;
    int failed = 0;
    (void)module;
    if (parse_loop(args, &api, &x, &n) < 0) return NULL;
    double start = now();
    for (Py_ssize_t i = 0; i < n && !failed; i++) failed = api->dltensor_from_py_object_no_sync(x, &view);
    return per_call(start, n, failed);
}

static PyObject *from_py_loop(PyObject *module, PyObject *args) {
    const DLPackExchangeAPI *api;
    DLManagedTensorVersioned *managed;
    PyObject *x;
    Py_ssize_t n;
    int failed = 0;
    (void)module;
    if (parse_loop(args, &api, &x, &n) < 0) return NULL;
    double start = now();
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        failed = api->managed_tensor_from_py_object_no_sync(x, &managed);
        if (!failed) release(managed);
    }
    return per_call(start, n, failed);
}

static PyObject *to_py_loop(PyObject *module, PyObject *args) {
    const DLPackExchangeAPI *api;
    DLManagedTensorVersioned *managed;
    PyObject *x;
    Py_ssize_t n;
    void *result;
    int failed = 0;
    (void)module;
    if (parse_loop(args, &api, &x, &n) < 0) return NULL;
    double start = now();
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        failed = api->managed_tensor_from_py_object_no_sync(x, &managed) != 0 ||
                 api->managed_tensor_to_py_object_no_sync(managed, &result) != 0;
        if (!failed) Py_DECREF((PyObject *)result);
    }
    return per_call(start, n, failed);
}

static void raise_error(void *context, const char *kind, const char *message) {
    (void)context;
    PyErr_Format(PyExc_RuntimeError, "%s: %s", kind, message);
}

static PyObject *allocator_loop(PyObject *module, PyObject *args) {
    PyObject *capsule;
    Py_ssize_t n;
    (void)module;
    if (!PyArg_ParseTuple(args, "On", &capsule, &n)) return NULL;
    const DLPackExchangeAPI *api = capsule_table(capsule);
    if (api == NULL) return NULL;
    int64_t shape[] = {3, 4}, strides[] = {4, 1};
    DLTensor prototype = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1},
                          .shape = shape, .strides = strides};
    DLManagedTensorVersioned *managed;
    int failed = 0;
    double start = now();
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        failed = api->managed_tensor_allocator(&prototype, &managed, NULL, raise_error);
        if (!failed) release(managed);
    }
    return per_call(start, n, failed);
}

static PyMethodDef functions[] = {
    {"take", METHOD(take), METH_FASTCALL, "take(*tensors): the table's view of each."},
    {"from_table", METHOD(from_table), METH_FASTCALL, "from_table(x): Tensor, by the table of type(x)."},
    {"address", METHOD(address), METH_FASTCALL, "address(x): int, by the table of type(x)."},
    {"from_protocol", METHOD(from_protocol), METH_FASTCALL, "from_protocol(x): Tensor, by __dlpack__."},
    {"borrow_loop", borrow_loop, METH_VARARGS, "borrow_loop(x, n): cached lookup and borrow."},
    {"borrow_loop_table", borrow_loop_table, METH_VARARGS, "borrow_loop_table(table, x, n): borrow."},
    {"from_py_loop", from_py_loop, METH_VARARGS, "from_py_loop(table, x, n): export, delete."},
    {"to_py_loop", to_py_loop, METH_VARARGS, "to_py_loop(table, x, n): export, import, drop."},
    {"allocator_loop", allocator_loop, METH_VARARGS, "allocator_loop(table, n): allocate, delete."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "c_exchange", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_c_exchange(void) {
    str_dlpack = PyUnicode_InternFromString("__dlpack__");
    max_version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
    if (tensor_ready() < 0) return NULL;
    max_version_keyword = PyTuple_Pack(1, str_max_version);
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Tensor", (PyObject *)&Tensor_Type) < 0)
        Py_CLEAR(module);
    return module;
}
