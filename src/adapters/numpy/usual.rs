//! The usual array, read in one piece.

use std::ptr::null_mut;

use pyo3::prelude::*;

use super::{FEW, NPY_ARRAY_WRITEABLE, PyArray_Descr, PyArrayObject, element, is_ndarray};
use crate::abi::DLPACK_FLAG_BITMASK_READ_ONLY;
use crate::checked::{Checked, Memo, extents};
use crate::device;
use crate::interpreter::PythonOwner;
use crate::snapshot::{Snapshot, Source};

/// The usual array as a snapshot that holds it: of the class itself, with a dtype of NumPy's own in native byte
/// order and strides that are multiples of the itemsize. `None` says nothing about others.
///
/// NumPy has made sure that shape and strides stay within an address space. Nothing here runs Python code.
#[inline(always)]
pub(crate) fn usual(x: &Bound<'_, PyAny>) -> Option<Snapshot> {
    if !is_ndarray(x) {
        return None;
    }
    // SAFETY: `x` is an array of the proven layout (S9).
    let array = unsafe { x.as_ptr().cast::<PyArrayObject>().read() };
    // SAFETY: the layout of dtypes is proven with that of arrays (S9).
    let descr = unsafe { array.descr.cast::<PyArray_Descr>().read() };
    let dtype = element::usual(descr.type_num, descr.byteorder as u8)?;
    // SAFETY: the array has `nd` extents, which stay as they are until Python code runs (S9).
    let shape = unsafe { extents(array.dimensions.cast(), array.nd) }.ok()?;
    // SAFETY: as for the extents.
    let byte_strides = unsafe { extents(array.strides.cast(), array.nd) }.ok()?;
    if shape.len() > FEW {
        return None;
    }
    let shift = (dtype.bits / 8).trailing_zeros();
    let mut strides = [0; FEW];
    let (mut size, mut rest) = (1_i64, 0);
    for ((stride, &bytes), &extent) in strides.iter_mut().zip(byte_strides).zip(shape) {
        *stride = bytes >> shift;
        rest |= bytes & ((1 << shift) - 1);
        size *= extent;
    }
    if rest != 0 {
        return None;
    }
    let readonly = array.flags & NPY_ARRAY_WRITEABLE == 0;
    let memo = Memo {
        data: match size {
            0 => null_mut(),
            _ => array.data.cast(),
        },
        byte_offset: 0,
        device: device::CPU,
        dtype,
        flags: u64::from(readonly) * DLPACK_FLAG_BITMASK_READ_ONLY,
    };
    let checked = Checked {
        memo,
        size,
        shape,
        strides: Some(&strides[..shape.len()]),
    };
    let owner = PythonOwner::new(x.clone().unbind());
    Some(checked.over(Source::Python(owner)))
}
