# dlpack_exchange_producer.pxd: dlpack_exchange_producer.h for Cython.
#
# A class has its table by C, between the declaration of its functions and their definition:
#
#     cdef extern from *:
#         """
#         static int image_fill(PyObject *self, DLTensor *out, uint64_t *flags);
#         static PyObject *image_make(DLManagedTensorVersioned *managed);
#         DLX_PRODUCER(image, image_fill, image_make)
#         """
#         int image_publish(PyTypeObject *type) except -1
#
#     cdef int image_fill "image_fill"(object self, DLTensor *out, uint64_t *flags) except -1:
#     cdef object image_make "image_make"(DLManagedTensorVersioned *managed):
#
# SPDX-License-Identifier: Apache-2.0
from dlpack_exchange cimport DLDataType, DLDevice, DLManagedTensorVersioned
from libc.stdint cimport int32_t, int64_t


cdef extern from "dlpack_exchange_producer.h":
    int dlx_empty_like(
        object like,
        DLDevice device,
        DLDataType dtype,
        int32_t ndim,
        const int64_t *shape,
        DLManagedTensorVersioned **out,
    ) except -1
    object dlx_export_like(DLManagedTensorVersioned *managed, object like)
    object dlx_object(DLManagedTensorVersioned *managed)
