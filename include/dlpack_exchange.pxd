# dlpack_exchange.pxd: dlpack_exchange.h for Cython. It goes beside the header, whose comments hold.
#
#     cdef dlx_want want = dlx_want(b"x", DLX_ROW_MAJOR, 0, DLDataType(kDLFloat, 32, 1), kDLCPU)
#     cdef dlx_view v
#     dlx_borrow(x, &want, &v)
#     try:
#         return total(<const float *>v.tensor.data, v.tensor.ndim, v.tensor.shape)
#     finally:
#         dlx_release(&v)
#
# SPDX-License-Identifier: Apache-2.0
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "dlpack_exchange.h" nogil:
    enum:  # of dlpack.h
        kDLCPU, kDLCUDA, kDLCUDAHost, kDLROCM, kDLROCMHost, kDLCUDAManaged
        kDLInt, kDLUInt, kDLFloat, kDLBfloat, kDLComplex, kDLBool
        DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_FLAG_BITMASK_IS_COPIED
    enum:
        DLX_WRITE, DLX_ROW_MAJOR, DLX_NDIM, DLX_NO_GRAD, DLX_FLAGS, DLX_UNALIGNED, DLX_AS_EXPORTED
    ctypedef int DLDeviceType
    ctypedef struct DLDevice:
        DLDeviceType device_type
        int32_t device_id
    ctypedef struct DLDataType:
        uint8_t code
        uint8_t bits
        uint16_t lanes
    ctypedef struct DLTensor:
        void *data
        DLDevice device
        int32_t ndim
        DLDataType dtype
        int64_t *shape
        int64_t *strides
        uint64_t byte_offset
    ctypedef struct DLManagedTensorVersioned:
        uint64_t flags
        DLTensor dl_tensor
    ctypedef struct DLPackExchangeAPI:
        pass

    ctypedef struct dlx_want:
        const char *name
        uint32_t flags
        int32_t ndim
        DLDataType dtype
        int32_t device_type
    ctypedef struct dlx_view:
        DLTensor tensor
        uint64_t flags
        void *stream
        const DLPackExchangeAPI *api
        int8_t legacy
        int8_t row_major
    ctypedef struct dlx_stream:
        DLDevice device
        void *handle
        void *other


cdef extern from "dlpack_exchange.h":
    int dlx_borrow(object x, const dlx_want *want, dlx_view *v) except -1
    void dlx_release(dlx_view *v)
    int dlx_borrow_all(
        PyObject **xs, const dlx_want *wants, Py_ssize_t n, dlx_stream *on, dlx_view *vs
    ) except -1
    void dlx_release_all(dlx_view *vs, Py_ssize_t n)
    int dlx_import(
        object x, const dlx_want *want, dlx_stream *on, DLManagedTensorVersioned **out
    ) except -1
    void dlx_delete(DLManagedTensorVersioned *managed)
