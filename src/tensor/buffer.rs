//! The buffer protocol, for tensors in host memory.

use std::ffi::{CStr, c_int, c_long, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi::*;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::snapshot::Snapshot;
use crate::types::dtype::{self, scalar};
use crate::types::{device, layout};

/// The `struct` formats of one number, with its type and its bits in C. The first of several for a type is the one to
/// write: `l` where C's `long` has 64 bits, because NumPy distinguishes `long` from `long long`.
pub(crate) const FORMATS: [(&CStr, DLDataTypeCode, u8); 19] = [
    (c"f", kDLFloat, 32),
    (c"d", kDLFloat, 64),
    (c"e", kDLFloat, 16),
    (c"?", kDLBool, 8),
    (c"b", kDLInt, 8),
    (c"B", kDLUInt, 8),
    (c"c", kDLUInt, 8),
    (c"h", kDLInt, 16),
    (c"H", kDLUInt, 16),
    (c"i", kDLInt, 32),
    (c"I", kDLUInt, 32),
    (c"l", kDLInt, c_long::BITS as u8),
    (c"L", kDLUInt, c_long::BITS as u8),
    (c"q", kDLInt, 64),
    (c"Q", kDLUInt, 64),
    (c"n", kDLInt, isize::BITS as u8),
    (c"N", kDLUInt, usize::BITS as u8),
    (c"Zf", kDLComplex, 64),
    (c"Zd", kDLComplex, 128),
];

/// The `struct` format of a dtype, or `None` if it has none.
pub(crate) fn format(dtype: DLDataType) -> Option<&'static CStr> {
    let mut formats = FORMATS.iter();
    let found = formats.find(|&&(_, code, bits)| scalar(code, bits) == dtype);
    found.map(|&(format, ..)| format)
}

/// Refuses memory that is not host memory, pinned or not, and dtypes that have no buffer format.
pub(crate) fn describe(snapshot: &Snapshot) -> PyResult<&'static CStr> {
    let meta = snapshot.meta();
    if !device::is_readable(meta.device) {
        return Err(PyBufferError::new_err(format!(
            "the tensor is on {}; a Python buffer requires memory on cpu",
            meta.device
        )));
    }
    format(meta.dtype).ok_or_else(|| {
        PyBufferError::new_err(format!(
            "a Python buffer cannot describe {}; use DLPack or numpy(), which may know the dtype",
            meta.dtype
        ))
    })
}

/// Strides in bytes; those of the contiguous row-major layout for a tensor without elements: CPython checks strides without
/// checking whether there are any.
pub(crate) fn byte_strides(snapshot: &Snapshot) -> Box<[isize]> {
    let item = dtype::bits(snapshot.meta().dtype).div_ceil(8) as isize;
    let stride = |index: usize| match snapshot.size() {
        0 => layout::row_major(snapshot.shape(), index),
        _ => snapshot.strides()[index],
    };
    // The elements lie in one address space, so strides between them do not overflow; strides of extents 0 and 1 are
    // never used.
    (0..snapshot.ndim())
        .map(|index| (stride(index) as isize).wrapping_mul(item))
        .collect()
}

/// Fills `view`, or raises if the tensor does not meet the flags; `owner` is the object that holds `snapshot`.
///
/// # Safety
///
/// `view` is a `Py_buffer` to fill, as passed to `bf_getbuffer`.
pub(crate) unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    snapshot: &Snapshot,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the caller's, to be filled. An error leaves it empty, as the buffer protocol requires.
    unsafe { view.write(ffi::Py_buffer::new()) };
    let format = describe(snapshot)?;
    let readonly = snapshot.is_protected();
    let asks = |flag: c_int| flags & flag == flag;
    let row_major = snapshot.is_row_major();
    let column_major = layout::is_column_major(snapshot.shape(), snapshot.strides());
    let refused = if asks(ffi::PyBUF_WRITABLE) && readonly {
        Some(if snapshot.has(MAYBE_READ_ONLY) {
            "the tensor's producer does not say whether it is writable"
        } else {
            "the tensor is read-only"
        })
    } else if asks(ffi::PyBUF_C_CONTIGUOUS) && !row_major {
        Some("the tensor is not row-major contiguous")
    } else if asks(ffi::PyBUF_F_CONTIGUOUS) && !column_major {
        Some("the tensor is not column-major contiguous")
    } else if asks(ffi::PyBUF_ANY_CONTIGUOUS) && !row_major && !column_major {
        Some("the tensor is not contiguous")
    } else if !asks(ffi::PyBUF_STRIDES) && !row_major {
        Some("the tensor is not row-major contiguous, and the consumer requested no strides")
    } else {
        None
    };
    if let Some(reason) = refused {
        return Err(PyBufferError::new_err(reason));
    }
    // The buffer protocol requires both to be NULL without dimensions.
    let asks_for_some = |flag: c_int| asks(flag) && snapshot.ndim() > 0;
    let strides = asks_for_some(ffi::PyBUF_STRIDES).then(|| Box::new(byte_strides(snapshot)));
    let mut filled = ffi::Py_buffer::new();
    filled.buf = snapshot.meta().data;
    filled.len = snapshot.nbytes() as isize;
    filled.itemsize = dtype::bits(snapshot.meta().dtype).div_ceil(8) as isize;
    filled.readonly = c_int::from(readonly);
    // At most `MAX_NDIM`; a run of bytes for who asks for no shape.
    let ndim = asks(ffi::PyBUF_ND).then_some(snapshot.ndim() as c_int);
    filled.ndim = ndim.unwrap_or(1);
    if asks(ffi::PyBUF_FORMAT) {
        filled.format = format.as_ptr().cast_mut();
    }
    if asks_for_some(ffi::PyBUF_ND) {
        filled.shape = snapshot.shape().as_ptr().cast::<isize>().cast_mut();
    }
    if let Some(strides) = strides {
        filled.strides = strides.as_ptr().cast_mut();
        filled.internal = Box::into_raw(strides).cast();
    }
    filled.obj = owner.clone().into_ptr();
    // SAFETY: the caller's, to be filled. Shape and format live as long as `obj`, to which the view holds a reference;
    // the strides live until `release` (S4, exports).
    unsafe { view.write(filled) };
    Ok(())
}

/// Frees the strides allocated by [`fill`].
///
/// # Safety
///
/// `view` was filled by [`fill`] and is being released.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller guarantees a filled view.
    let internal: *mut c_void = unsafe { (*view).internal };
    if !internal.is_null() {
        // SAFETY: `fill` stored the box of the strides there, and a buffer is released once.
        drop(unsafe { Box::<Box<[isize]>>::from_raw(internal.cast()) });
    }
}
