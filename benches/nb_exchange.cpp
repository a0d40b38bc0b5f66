// What a user of nanobind would write: with its own arrays of any library, and with `dlx::view`.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "dlpack_exchange_nanobind.hpp"

namespace nb = nanobind;

using View = dlx::view<const float>;

NB_MODULE(nb_exchange, m) {
    m.def("take", [](nb::ndarray<>) {});
    m.def("take3", [](nb::ndarray<>, nb::ndarray<>, nb::ndarray<>) {});
    m.def("view3", [](const View &, const View &, const View &) {});
}
