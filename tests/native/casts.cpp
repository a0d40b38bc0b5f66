// dlx::view as an argument of functions that nanobind or pybind11 (-DWITH_PYBIND11) binds.
#ifdef WITH_PYBIND11
#include "dlpack_exchange_pybind11.hpp"
namespace binding = pybind11;
#define MODULE PYBIND11_MODULE
#else
#include "dlpack_exchange_nanobind.hpp"
namespace binding = nanobind;
#define MODULE NB_MODULE
#endif

using Released = binding::call_guard<binding::gil_scoped_release>;

template <class T> static const char *fill(dlx::view<T, 1> &x, T value) {
    for (int64_t i = 0; i < x.shape(0); i++) x(i) = value;
    return std::is_integral_v<T> ? "integers" : "floats";
}

MODULE(casts, module) {
    module.def("total", [](const dlx::view<const float, 2> &x) {
        double sum = 0;
        for (int64_t i = 0; i < x.shape(0); i++)
            for (int64_t j = 0; j < x.shape(1); j++) sum += x(i, j);
        return sum;
    });
    module.def("fill", fill<float>, Released());
    module.def("fill", fill<long long>, Released());
    module.def("where", [](dlx::view<const float, 1, kDLCUDA> &) { return "cuda"; });
    module.def("where", [](dlx::view<const float, 1, kDLCPU> &) { return "cpu"; });
    module.def("where", [](dlx::view<const float, 2, 0> &) { return "anywhere"; });
    module.def("rows", [](dlx::view<const bool, -1, kDLCPU, DLX_ROW_MAJOR> &x) { return x.ndim(); });
    module.def("size", [](const binding::object &x) {
        return dlx::view<const float, 1>(x.ptr(), "x").shape(0);
    });
#ifdef WITH_PYBIND11
    module.def("into", [](const binding::object &, const binding::object &out) { return out; },
               binding::arg("x"), binding::arg_v("out", module, "numpy.zeros(2)"));
#endif
    module.def("take", [](dlx::view<const float> &, dlx::view<const float> &,
                          dlx::view<const float> &) {});
}
