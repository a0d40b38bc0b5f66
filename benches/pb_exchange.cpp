// What a user of pybind11 would write: with its own arrays, and with `dlx::view`.
#include <pybind11/numpy.h>

#include "dlpack_exchange_pybind11.hpp"

using Array = pybind11::array_t<float, 0>;
using View = dlx::view<const float>;

PYBIND11_MODULE(pb_exchange, m) {
    m.def("take3", [](const Array &, const Array &, const Array &) {}, pybind11::arg().noconvert(),
          pybind11::arg().noconvert(), pybind11::arg().noconvert());
    m.def("view3", [](const View &, const View &, const View &) {});
}
