# cython: language_level=3
"""What `image.c` has, in Cython: a kernel, its result in the caller's library, and a class."""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from dlpack_exchange cimport *
from dlpack_exchange_producer cimport *

cdef extern from *:
    """
    static int image_fill(PyObject *self, DLTensor *out, uint64_t *flags);
    static PyObject *image_make(DLManagedTensorVersioned *managed);
    DLX_PRODUCER(image, image_fill, image_make)
    """
    int image_publish(PyTypeObject *type) except -1


def scale(x, float by):
    """Return a new tensor of x's library."""
    cdef dlx_want want = dlx_want(b"x", DLX_ROW_MAJOR, 0, DLDataType(kDLFloat, 32, 1), kDLCPU)
    cdef dlx_view v
    cdef DLManagedTensorVersioned *out
    cdef int64_t i, n = 1
    dlx_borrow(x, &want, &v)
    try:
        dlx_empty_like(x, v.tensor.device, v.tensor.dtype, v.tensor.ndim, v.tensor.shape, &out)
        with nogil:
            for i in range(v.tensor.ndim):
                n *= v.tensor.shape[i]
            for i in range(n):
                (<float *>out.dl_tensor.data)[i] = by * (<const float *>v.tensor.data)[i]
    finally:
        dlx_release(&v)
    return dlx_export_like(out, x)


def dot(x, y):
    """Return the sum of products, of arguments that are taken together."""
    cdef dlx_want[2] wants
    cdef dlx_view[2] vs
    cdef PyObject *xs[2]
    cdef double total = 0
    cdef int64_t i
    wants[0] = dlx_want(b"x", DLX_NDIM | DLX_ROW_MAJOR, 1, DLDataType(kDLFloat, 64, 1), kDLCPU)
    wants[1] = dlx_want(b"y", DLX_NDIM | DLX_ROW_MAJOR, 1, DLDataType(kDLFloat, 64, 1), kDLCPU)
    xs[:] = [<PyObject *>x, <PyObject *>y]
    dlx_borrow_all(xs, wants, 2, NULL, vs)
    try:
        if vs[0].tensor.shape[0] != vs[1].tensor.shape[0]:
            raise ValueError("lengths differ")
        for i in range(vs[0].tensor.shape[0]):
            total += (<const double *>vs[0].tensor.data)[i] * (<const double *>vs[1].tensor.data)[i]
    finally:
        dlx_release_all(vs, 2)
    return total


cdef class Image:
    """Bytes, rows by columns."""

    cdef unsigned char *pixels
    cdef int64_t[2] shape
    cdef int64_t[2] strides

    def __cinit__(self, int64_t rows, int64_t columns):
        self.shape[:] = [rows, columns]
        self.strides[:] = [columns, 1]
        self.pixels = <unsigned char *>PyMem_Calloc(rows * columns + 1, 1)
        if self.pixels == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.pixels)


cdef int image_fill "image_fill"(object self, DLTensor *out, uint64_t *flags) except -1:
    cdef Image image = self
    out.data = image.pixels
    out.device.device_type = kDLCPU
    out.dtype = DLDataType(kDLUInt, 8, 1)
    out.ndim = 2
    out.shape = image.shape
    out.strides = image.strides
    return 0


cdef object image_make "image_make"(DLManagedTensorVersioned *managed):
    cdef DLTensor *t = &managed.dl_tensor
    cdef int64_t i, j, rows, columns
    if t.ndim != 2 or t.dtype.code != kDLUInt or t.dtype.bits != 8 or t.device.device_type != kDLCPU:
        raise BufferError("an Image is of two dimensions of bytes")
    image = Image(t.shape[0], t.shape[1])
    rows = t.strides[0] if t.strides != NULL else t.shape[1]
    columns = t.strides[1] if t.strides != NULL else 1
    for i in range(t.shape[0]):
        for j in range(t.shape[1]):
            (<Image>image).pixels[i * t.shape[1] + j] = (<unsigned char *>t.data)[
                t.byte_offset + i * rows + j * columns]
    dlx_delete(managed)
    return image


image_publish(<PyTypeObject *>Image)
