// Launches as cutile's tile_kernel.cpp does: by the functions of cext/dlpack_launch.h, in its order.
#include "dlpack_launch.h"

typedef int (*Find)(const char *, void **, int, uint64_t, void *);

static DriverApi driver;

// use(the address of the address of cuGetProcAddress_v2)
static PyObject *use(PyObject *, PyObject *address) {
    Find find = *static_cast<Find *>(PyLong_AsVoidPtr(address));
#define FIND(name) find(#name, reinterpret_cast<void **>(&driver.name), 13000, 0, nullptr)
    FIND(cuEventCreate), FIND(cuEventRecord), FIND(cuEventQuery), FIND(cuEventSynchronize);
    FIND(cuEventDestroy), FIND(cuStreamWaitEvent), FIND(cuStreamIsCapturing);
    FIND(cuLaunchKernelEx);
    Py_RETURN_NONE;
}

static Status launched(CUstream stream, PyObject *array, Vec<dlx_view *> *views) {
    const DLTensor *tensor = dlpack_borrow(array, stream, 0, views);
    if (!tensor) return ErrorRaised;
    if (tensor->device.device_type != kDLCUDA)
        return raise(PyExc_ValueError, "Input array is not on a CUDA device");
    void *data = tensor->data, *parameters[] = {&data};
    if (!dlpack_join(&driver, stream, views)) return ErrorRaised;
    struct {
        unsigned sizes[7];
        CUstream stream;
    } config = {{1, 1, 1, 1, 1, 1, 0}, stream};
    if (driver.cuLaunchKernelEx(&config, nullptr, parameters, nullptr) != CUDA_SUCCESS)
        return raise(PyExc_RuntimeError, "Failed to launch cuTile kernel");
    return dlpack_release_after(stream, views);
}

// launch(stream, array)
static PyObject *launch(PyObject *, PyObject *args) {
    PyObject *stream, *array;
    if (!PyArg_ParseTuple(args, "OO", &stream, &array)) return nullptr;
    Vec<dlx_view *> views;
    Status status = launched(static_cast<CUstream>(PyLong_AsVoidPtr(stream)), array, &views);
    dlpack_release(&views);
    if (!status) return nullptr;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"use", use, METH_O, nullptr},
                                  {"launch", launch, METH_VARARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "cutile_standin", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit_cutile_standin() { return PyModule_Create(&definition); }
