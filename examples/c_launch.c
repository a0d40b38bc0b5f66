/* A launch from C over arguments of any library that works on CUDA: streams are joined before it, and
 * released after it, in order. In place of a kernel it copies.
 *
 *     copy(x, out)            on the stream that x's library works on
 *     copy(x, out, stream)    on this one, an address
 *
 * Link with -lcuda.
 */
#define PY_SSIZE_T_CLEAN
#include <cuda.h>
#include "dlpack_exchange_streams.h"

static PyObject *copy(PyObject *module, PyObject *args) {
    static const dlx_want wants[] = {{"x", DLX_ROW_MAJOR, 0, {0, 0, 0}, kDLCUDA},
                                     {"out", DLX_ROW_MAJOR | DLX_WRITE, 0, {0, 0, 0}, kDLCUDA}};
    PyObject *arrays[2], *stream = Py_None;
    dlx_stream on = {{(DLDeviceType)0, 0}, NULL, NULL};
    dlx_view views[2];
    size_t bytes[2];
    int status, i;
    CUresult failed = CUDA_SUCCESS;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO|O", &arrays[0], &arrays[1], &stream)) return NULL;
    if (stream != Py_None) {
        on.handle = PyLong_AsVoidPtr(stream);
        if (PyErr_Occurred()) return NULL;
        on.device.device_type = kDLCUDA; /* of the current device: 0 here */
    }
    status = dlx_borrow_all(arrays, wants, 2, &on, views);
    if (status < 0) return NULL;
    for (i = 0; i < 2; i++) {
        const DLTensor *t = &views[i].tensor;
        bytes[i] = (size_t)t->dtype.bits * t->dtype.lanes;
        for (int32_t d = 0; d < t->ndim; d++) bytes[i] *= (size_t)t->shape[d];
    }
    if (bytes[0] != bytes[1]) PyErr_SetString(PyExc_ValueError, "x and out differ in size");
    if (PyErr_Occurred() || (status == 1 && dlx_join(views, 2, &on) < 0))
        return dlx_release_all(views, 2), NULL; /* nothing works on them */
    failed = cuMemcpyDtoDAsync((CUdeviceptr)views[1].tensor.data, (CUdeviceptr)views[0].tensor.data,
                               (bytes[0] + 7) / 8, (CUstream)on.handle);
    if (dlx_release_after(views, 2, &on) < 0) return NULL; /* on every path behind the launch */
    if (failed) return PyErr_Format(PyExc_RuntimeError, "the driver returned %d", (int)failed);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"copy", copy, METH_VARARGS, "copy(x, out, stream=None)"},
                                  {NULL, NULL, 0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "c_launch", NULL, -1, functions,
                                 NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_c_launch(void) { return PyModule_Create(&definition); }
