// dlpack_exchange.hpp: an argument in C++17. It goes beside dlpack_exchange.h, which it includes.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DLPACK_EXCHANGE_HPP
#define DLPACK_EXCHANGE_HPP
#include "dlpack_exchange.h"
#include <complex>
#include <exception>
#include <type_traits>

namespace dlx {

// Thrown while a Python exception is set: what dlx_borrow raises. What binds the caller may define
// DLX_ERROR, its own class for that, as the headers for nanobind and pybind11 do.
#ifdef DLX_ERROR
using error = DLX_ERROR;
#else
struct error : std::exception {
    const char *what() const noexcept override { return "a Python exception is set"; }
};
#endif

template <class T> struct dtype {
    static_assert(std::is_arithmetic_v<T>, "DLPack has no such elements");
    static constexpr DLDataTypeCode code = std::is_same_v<T, bool>       ? kDLBool
                                           : std::is_floating_point_v<T> ? kDLFloat
                                           : std::is_signed_v<T>         ? kDLInt
                                                                         : kDLUInt;
    static constexpr DLDataType value{code, 8 * sizeof(T), 1};
};

template <class T> struct dtype<std::complex<T>> {
    static constexpr DLDataType value{kDLComplex, 16 * sizeof(T), 1};
};

// An argument for the time of a scope. T is const if it is not written to (else: DLX_WRITE). It has
// N dimensions (-1: any), is on a type of device (0: any), and Flags are more of DLX_... Extents,
// strides and indices count elements; no index is checked.
//
//     dlx::view<const float, 2> x(object, "x");  // throws dlx::error
//     for (int64_t i = 0; i < x.shape(0); i++) sum += x(i, 0);
template <class T, int N = -1, int Device = kDLCPU, unsigned Flags = 0> class view : dlx_view {
  public:
    static constexpr int device = Device;
    explicit view(PyObject *x, const char *name = nullptr) {
        constexpr unsigned written = std::is_const_v<T> ? 0 : DLX_WRITE;
        const dlx_want want{name, Flags | written | (N < 0 ? 0 : DLX_NDIM), N,
                            dtype<std::remove_const_t<T>>::value, Device};
        if (dlx_borrow(x, &want, this) < 0) throw error();
    }
    view(const view &) = delete;
    view &operator=(const view &) = delete;
    ~view() { dlx_release(this); }
    T *data() const { return static_cast<T *>(tensor.data); }
    int ndim() const { return tensor.ndim; }
    int64_t shape(int i) const { return tensor.shape[i]; }
    int64_t stride(int i) const { return tensor.strides[i]; }
    const dlx_view &raw() const { return *this; }
    template <class... I> T &operator()(I... i) const {
        static_assert(N < 0 || sizeof...(I) == N, "one index for each dimension");
        int64_t at = 0;
        int dimension = 0;
        ((at += int64_t(i) * tensor.strides[dimension++]), ...);
        return data()[at];
    }
};

// For casters, when a view of x was refused: whether that is for what overloads differ by (no
// tensor, dtype, rank, type of device). Then the exception is cleared, and another may take x. A
// TypeError that Python code raised is the producer's.
template <class View> bool is_for_another_overload(PyObject *x) {
    PyObject *type, *value, *trace;
    dlx_view any;
    int device = View::device;
    PyErr_Fetch(&type, &value, &trace);
    const bool is_mistake = !trace && PyErr_GivenExceptionMatches(type, PyExc_TypeError);
    if (View::device != 0 && PyErr_GivenExceptionMatches(type, PyExc_BufferError) &&
        dlx_borrow(x, nullptr, &any) == 0) {
        device = any.tensor.device.device_type;
        dlx_release(&any);
    }
    PyErr_Restore(type, value, trace);
    if (!is_mistake && dlx__is_on(device, View::device)) return false;
    return PyErr_Clear(), true;
}

}  // namespace dlx
#endif
