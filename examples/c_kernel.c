/* A kernel in C over arguments of any library, on the CPU. Its result is of the library of x.
 *
 *     axpy(2.0, x, y)    2x + y, of float32
 *
 * With the headers and dlpack.h in one folder:
 *
 *     cc -shared -fPIC $(python3-config --includes) -I folder c_kernel.c -o c_kernel.so
 */
#define PY_SSIZE_T_CLEAN
#include "dlpack_exchange_producer.h"

static int has_same_shape(const DLTensor *x, const DLTensor *y) {
    return x->ndim == y->ndim && (x->ndim == 0 || !memcmp(x->shape, y->shape, 8 * (size_t)x->ndim));
}

static PyObject *axpy(PyObject *module, PyObject *args) {
    static const dlx_want wants[] = {
        {"x", DLX_ROW_MAJOR | DLX_NO_GRAD, 0, {kDLFloat, 32, 1}, kDLCPU},
        {"y", DLX_ROW_MAJOR | DLX_NO_GRAD, 0, {kDLFloat, 32, 1}, kDLCPU}};
    PyObject *arrays[2];
    dlx_view views[2];
    const DLTensor *x = &views[0].tensor, *y = &views[1].tensor;
    DLManagedTensorVersioned *out = NULL;
    int64_t n = 1;
    float a;
    (void)module;
    if (!PyArg_ParseTuple(args, "fOO", &a, &arrays[0], &arrays[1])) return NULL;
    if (dlx_borrow_all(arrays, wants, 2, NULL, views) < 0) return NULL;
    if (!has_same_shape(x, y)) PyErr_SetString(PyExc_ValueError, "x and y differ in shape");
    else if (dlx_empty_like(arrays[0], x->device, x->dtype, x->ndim, x->shape, &out) == 0) {
        float *sum = (float *)out->dl_tensor.data;
        for (int32_t i = 0; i < x->ndim; i++) n *= x->shape[i];
        for (int64_t i = 0; i < n; i++) sum[i] = a * ((float *)x->data)[i] + ((float *)y->data)[i];
    }
    dlx_release_all(views, 2);
    return out != NULL ? dlx_export_like(out, arrays[0]) : NULL;
}

static PyMethodDef functions[] = {{"axpy", axpy, METH_VARARGS, "axpy(a, x, y): ax + y"},
                                  {NULL, NULL, 0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "c_kernel", NULL, -1, functions,
                                 NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_c_kernel(void) { return PyModule_Create(&definition); }
