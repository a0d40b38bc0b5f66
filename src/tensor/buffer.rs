//! CPU tensors as Python sees memory: the buffer protocol.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi::*;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::snapshot::Snapshot;
use crate::types::{device, dtype, layout};

/// How the `struct` module writes a dtype, `None` where it cannot; 64-bit integers have the letter of C's
/// `long` where that is theirs, because NumPy tells `long` and `long long` apart.
pub(crate) fn format(dtype: DLDataType) -> Option<&'static CStr> {
    let long = size_of::<std::ffi::c_long>() == 8;
    Some(match (dtype.code, dtype.bits, dtype.lanes) {
        (kDLBool, 8, 1) => c"?",
        (kDLInt, 8, 1) => c"b",
        (kDLInt, 16, 1) => c"h",
        (kDLInt, 32, 1) => c"i",
        (kDLInt, 64, 1) => {
            if long {
                c"l"
            } else {
                c"q"
            }
        }
        (kDLUInt, 8, 1) => c"B",
        (kDLUInt, 16, 1) => c"H",
        (kDLUInt, 32, 1) => c"I",
        (kDLUInt, 64, 1) => {
            if long {
                c"L"
            } else {
                c"Q"
            }
        }
        (kDLFloat, 16, 1) => c"e",
        (kDLFloat, 32, 1) => c"f",
        (kDLFloat, 64, 1) => c"d",
        (kDLComplex, 64, 1) => c"Zf",
        (kDLComplex, 128, 1) => c"Zd",
        _ => return None,
    })
}

/// Refuses what is not host memory, pinned or not, or has a dtype that Python buffers cannot name.
pub(crate) fn describe(snapshot: &Snapshot) -> PyResult<&'static CStr> {
    let meta = snapshot.meta();
    if !device::is_readable(meta.device) {
        let name = device::name(meta.device);
        let message = format!("the tensor is on {name}, only memory on cpu can be a Python buffer");
        return Err(PyBufferError::new_err(message));
    }
    format(meta.dtype).ok_or_else(|| {
        PyBufferError::new_err(format!(
            "a Python buffer cannot name {}; the tensor travels by DLPack, and numpy() may know the dtype",
            dtype::name(meta.dtype)
        ))
    })
}

/// The strides in bytes.
pub(crate) fn byte_strides(snapshot: &Snapshot) -> Box<[isize]> {
    let item = dtype::bits(snapshot.meta().dtype).div_ceil(8) as isize;
    // Elements of a tensor lie in one address space, so no stride between two of them overflows; others
    // (of extents 0 and 1) are never walked.
    let strides = snapshot.strides().iter();
    strides
        .map(|&stride| (stride as isize).wrapping_mul(item))
        .collect()
}

/// The strides in bytes that the tensor would have in row-major order, with nothing between the elements.
fn compact_strides(snapshot: &Snapshot) -> Box<[isize]> {
    let item = dtype::bits(snapshot.meta().dtype).div_ceil(8) as isize;
    let stride = |index| layout::row_major(snapshot.shape(), index) as isize;
    (0..snapshot.ndim())
        .map(|index| stride(index).wrapping_mul(item))
        .collect()
}

/// Fills `view`, or says what the flags ask for that the tensor is not; `owner` is the object that holds
/// `snapshot`.
///
/// # Safety
///
/// `view` is a `Py_buffer` to fill, as `bf_getbuffer` gets it.
pub(crate) unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    snapshot: &Snapshot,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the caller's to be filled. A refusal leaves it empty, as the buffer protocol asks.
    unsafe { view.write(ffi::Py_buffer::new()) };
    let format = describe(snapshot)?;
    let readonly = snapshot.is_protected();
    let asks = |flag: c_int| flags & flag == flag;
    let row_major = snapshot.is_row_major();
    let column_major = layout::is_column_major(snapshot.shape(), snapshot.strides());
    let refused = if asks(ffi::PyBUF_WRITABLE) && readonly {
        Some(if snapshot.has(MAYBE_READ_ONLY) {
            "the tensor's producer does not say whether it may be written"
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
        Some("the tensor is not row-major contiguous, and no strides were asked for")
    } else {
        None
    };
    if let Some(reason) = refused {
        return Err(PyBufferError::new_err(reason));
    }
    // Without dimensions both are NULL, says the buffer protocol.
    let asks_for_some = |flag: c_int| asks(flag) && snapshot.ndim() > 0;
    let strides = asks_for_some(ffi::PyBUF_STRIDES).then(|| {
        Box::new(match snapshot.size() {
            // CPython looks at the stride of one dimension, and not whether there is an element.
            0 => compact_strides(snapshot),
            _ => byte_strides(snapshot),
        })
    });
    let shape: *const i64 = snapshot.shape().as_ptr();
    let mut filled = ffi::Py_buffer::new();
    filled.buf = snapshot.meta().data;
    filled.len = snapshot.nbytes() as isize;
    filled.itemsize = dtype::bits(snapshot.meta().dtype).div_ceil(8) as isize;
    filled.readonly = c_int::from(readonly);
    // At most 64.
    filled.ndim = snapshot.ndim() as c_int;
    filled.format = if asks(ffi::PyBUF_FORMAT) {
        format.as_ptr().cast_mut()
    } else {
        null_mut()
    };
    filled.shape = if asks_for_some(ffi::PyBUF_ND) {
        shape.cast::<isize>().cast_mut()
    } else {
        null_mut()
    };
    if let Some(strides) = strides {
        filled.strides = strides.as_ptr().cast_mut();
        filled.internal = Box::into_raw(strides).cast();
    }
    filled.obj = owner.clone().into_ptr();
    // SAFETY: the caller's to be filled. Shape and format live as long as `obj`, which the view owns; the
    // strides until `release` (S4).
    unsafe { view.write(filled) };
    Ok(())
}

/// Frees what [`fill`] allocated.
///
/// # Safety
///
/// `view` was filled by [`fill`] and is being released.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller's promise.
    let internal: *mut c_void = unsafe { (*view).internal };
    if !internal.is_null() {
        // SAFETY: `fill` put the box of the strides there, and a buffer is released once.
        drop(unsafe { Box::<Box<[isize]>>::from_raw(internal.cast()) });
    }
}

/// The dtype of the same size that a Python buffer can name.
pub(crate) fn stand_in(dtype: DLDataType) -> Option<DLDataType> {
    let bits = match dtype.bits {
        ..=8 => 8,
        bits => bits,
    };
    let stand_in = DLDataType {
        code: kDLUInt,
        bits,
        lanes: dtype.lanes,
    };
    format(stand_in).map(|_| stand_in)
}

/// Whether a Python buffer can name the dtype.
pub(crate) fn is_nameable(dtype: DLDataType) -> bool {
    format(dtype).is_some()
}
