// What a user of nanobind would write: functions that take arrays of any library.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;

NB_MODULE(nb_exchange, m) {
    m.def("take", [](nb::ndarray<>) {});
    m.def("take3", [](nb::ndarray<>, nb::ndarray<>, nb::ndarray<>) {});
}
