// dlpack_exchange_pybind11.hpp: dlx::view as an argument of functions that pybind11 binds. It goes
// beside dlpack_exchange.hpp, which it includes.
//
//     m.def("total", [](dlx::view<const float, 2> &x) { ... });
//
// Overloads may differ by dtype, rank and type of device. What is refused for another reason raises
// what dlx_borrow does: BufferError; so does a view that the function makes of an object. The view
// lasts until the function has returned.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DLPACK_EXCHANGE_PYBIND11_HPP
#define DLPACK_EXCHANGE_PYBIND11_HPP
#include <pybind11/pybind11.h>
#include <optional>
#if defined(DLPACK_EXCHANGE_HPP) && !defined(DLX_ERROR)
#error "include dlpack_exchange_pybind11.hpp before dlpack_exchange.hpp"
#endif
#define DLX_ERROR pybind11::error_already_set
#include "dlpack_exchange.hpp"

namespace pybind11 {
namespace detail {

template <class T, int N, int Device, unsigned Flags>
struct type_caster<dlx::view<T, N, Device, Flags>> {
    using View = dlx::view<T, N, Device, Flags>;
    static constexpr DLDataType dtype = dlx::dtype<std::remove_const_t<T>>::value;
    static constexpr auto name =
        const_name("typing.Annotated[typing.Any, dict(dtype='") +
        const_name<dtype.code == kDLBool>("bool", "") +
        const_name<dtype.code == kDLInt>("int", "") +
        const_name<dtype.code == kDLUInt>("uint", "") +
        const_name<dtype.code == kDLFloat>("float", "") +
        const_name<dtype.code == kDLComplex>("complex", "") +
        const_name<dtype.code == kDLBool>(const_name(""), const_name<dtype.bits>()) +
        const_name<(N < 0)>(const_name("'"), const_name("', ndim=") + const_name<size_t(N)>()) +
        const_name<std::is_const_v<T>>("", ", writable=True") + const_name(")]");
    template <class> using cast_op_type = View &;
    std::optional<View> view;

    bool load(handle x, bool) {
        try {
            view.emplace(x.ptr());
            return true;
        } catch (dlx::error &error) {
            error.restore();
            if (dlx::is_for_another_overload<View>(x.ptr())) return false;
            throw error_already_set();
        }
    }
    operator View &() { return *view; }
};

}  // namespace detail
}  // namespace pybind11
#endif
