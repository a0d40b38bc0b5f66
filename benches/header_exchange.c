/* What a user of `include/dlpack_exchange.h` would write: functions that take tensors of any library.
 *
 * `WITH_NUMPY` is the module `header_numpy`, which includes NumPy's header before.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#ifdef WITH_NUMPY
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#define MODULE(function) function##_header_numpy
#define NAME "header_numpy"
#else
#define MODULE(function) function##_header_exchange
#define NAME "header_exchange"
#endif
#include "dlpack_exchange.h"

#define MOST 8

static PyObject *taken(PyObject *const *xs, const dlx_want *wants, Py_ssize_t n) {
    dlx_view views[MOST];
    if (n > MOST) return PyErr_Format(PyExc_TypeError, "at most %d arguments", MOST);
    if (dlx_borrow_all(xs, wants, n, NULL, views) < 0) return NULL;
    dlx_release_all(views, n);
    Py_RETURN_NONE;
}

static PyObject *take(PyObject *module, PyObject *const *xs, Py_ssize_t n) {
    (void)module;
    return taken(xs, NULL, n);
}

/* For who knows where his tensors come from. */
static PyObject *take_as_exported(PyObject *module, PyObject *const *xs, Py_ssize_t n) {
    static dlx_want wants[MOST];
    (void)module;
    for (int i = 0; i < MOST; i++) wants[i].flags = DLX_AS_EXPORTED;
    return taken(xs, wants, n);
}

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))
static PyMethodDef functions[] = {
    {"take", METHOD(take), METH_FASTCALL, "take(*tensors)"},
    {"take_as_exported", METHOD(take_as_exported), METH_FASTCALL, "take_as_exported(*tensors)"},
    {NULL, NULL, 0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, NAME, NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC MODULE(PyInit)(void) {
#ifdef WITH_NUMPY
    import_array();
#endif
    return PyModule_Create(&definition);
}
