// dlx::view as the argument of functions.
#include <complex>

#include "dlpack_exchange.hpp"

template <class F> static PyObject *called(F function) {
    try {
        return function();
    } catch (const dlx::error &) {
        return nullptr;
    }
}

static PyObject *total(PyObject *, PyObject *x) {
    return called([&] {
        dlx::view<const float, 2> view(x, "x");
        double sum = 0;
        for (int64_t i = 0; i < view.shape(0); i++)
            for (int64_t j = 0; j < view.shape(1); j++) sum += view(i, j);
        return PyFloat_FromDouble(sum);
    });
}

static PyObject *negate(PyObject *, PyObject *x) {
    return called([&]() -> PyObject * {
        dlx::view<std::complex<double>, 1> view(x, "x");
        for (int64_t i = 0; i < view.shape(0); i++) view(i) = -view(i);
        Py_RETURN_NONE;
    });
}

template <class T> static PyObject *first(PyObject *, PyObject *x) {
    return called([&] {
        dlx::view<const T, -1, kDLCPU, DLX_ROW_MAJOR> view(x);
        return Py_BuildValue("di", double(view.data()[0]), view.ndim());
    });
}

static PyMethodDef functions[] = {
    {"total", total, METH_O, nullptr},
    {"negate", negate, METH_O, nullptr},
    {"first_bool", first<bool>, METH_O, nullptr},
    {"first_int8", first<signed char>, METH_O, nullptr},
    {"first_uint16", first<unsigned short>, METH_O, nullptr},
    {"first_int64", first<long long>, METH_O, nullptr},
    {"first_float64", first<double>, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "views", nullptr, -1, functions,
                                 nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit_views() { return PyModule_Create(&definition); }
