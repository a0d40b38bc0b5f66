# dlpack_exchange_streams.pxd: dlpack_exchange_streams.h for Cython. Declare what is of
# cuda_runtime_api.h or cuda.h before, so that it is included before.
#
# SPDX-License-Identifier: Apache-2.0
from dlpack_exchange cimport dlx_stream, dlx_view


cdef extern from "dlpack_exchange_streams.h":
    int dlx_join(const dlx_view *vs, Py_ssize_t n, const dlx_stream *on) except -1
    int dlx_release_after(dlx_view *vs, Py_ssize_t n, const dlx_stream *on) except -1
    int dlx_order(void *waiter, void *signaller) except -1
    void dlx_collect()
