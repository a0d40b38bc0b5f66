//! The fast path for common arrays.

use std::ptr::null_mut;

use pyo3::prelude::*;

use super::{FEW, NPY_ARRAY_WRITEABLE, PyArray_Descr, PyArrayObject, element, is_ndarray};
use crate::cpython::interpreter::PythonOwner;
use crate::tensor::checked::{Meta, extents};
use crate::tensor::managed::read_only;
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::layout;

/// An array of the class itself, with one of NumPy's own dtypes in native byte order and strides that are multiples of
/// the itemsize.
struct FastArray<'a> {
    meta: Meta,
    shape: &'a [i64],
    byte_strides: &'a [i64],
    /// log2 of the itemsize: byte strides shifted right by it are in elements.
    shift: u32,
}

/// The array as a snapshot that holds it; `None` means that the slow path decides.
///
/// NumPy has verified that shape and strides stay within the address space. Runs no Python code.
#[inline(always)]
pub(crate) fn fast(x: &Bound<'_, PyAny>) -> Option<Snapshot> {
    let fast = read(x)?;
    let owner = Source::Python(PythonOwner::new(x.clone().unbind()));
    let dimension = |index: usize| (fast.shape[index], fast.byte_strides[index] >> fast.shift);
    let ndim = fast.shape.len();
    Some(Snapshot::new(fast.meta, owner, None, ndim, dimension))
}

/// As [`fast`], where `x` may as well be anything else.
#[inline(always)]
pub(crate) fn fast_if_array(x: &Bound<'_, PyAny>) -> Option<Snapshot> {
    #[inline(never)]
    fn apart(x: &Bound<'_, PyAny>) -> Option<Snapshot> {
        fast(x)
    }
    if is_ndarray(x) { apart(x) } else { None }
}

/// Calls `make` for a fast array of few dimensions: with its memory, shape, and strides in elements. `None` means that the
/// slow path decides.
#[inline(always)]
pub(super) fn few<R>(
    x: &Bound<'_, PyAny>,
    make: impl FnOnce(Meta, &[i64], &[i64]) -> R,
) -> Option<R> {
    let fast = read(x)?;
    let mut few = [0; FEW];
    let strides = few.get_mut(..fast.shape.len())?;
    for (stride, &bytes) in strides.iter_mut().zip(fast.byte_strides) {
        *stride = bytes >> fast.shift;
    }
    Some(make(fast.meta, fast.shape, strides))
}

/// The memory of a fast array of few dimensions that has row-major elements, and some.
#[inline(always)]
pub(crate) fn row_major(x: &Bound<'_, PyAny>) -> Option<Meta> {
    few(x, |meta, shape, strides| {
        let is_row_major = !shape.contains(&0) && layout::is_row_major(shape, strides);
        is_row_major.then_some(meta)
    })?
}

/// The fields of a fast array.
#[inline(always)]
fn read<'a>(x: &'a Bound<'_, PyAny>) -> Option<FastArray<'a>> {
    if !is_ndarray(x) {
        return None;
    }
    // SAFETY: `x` is an array of the known layout (S9, NumPy's layout).
    let array = unsafe { x.as_ptr().cast::<PyArrayObject>().read() };
    // SAFETY: the layout of dtypes is known with that of arrays (S9).
    let descr = unsafe { array.descr.cast::<PyArray_Descr>().read() };
    let dtype = element::fast(descr.type_num, descr.byteorder as u8)?;
    // SAFETY: the array has `nd` extents, unchanged until Python code runs (S9).
    let shape = unsafe { extents(array.dimensions.cast(), array.nd) }.ok()?;
    // SAFETY: as for the extents.
    let byte_strides = unsafe { extents(array.strides.cast(), array.nd) }.ok()?;
    let shift = (dtype.bits / 8).trailing_zeros();
    let (mut size, mut rest) = (1_i64, 0);
    for (&bytes, &extent) in byte_strides.iter().zip(shape) {
        rest |= bytes & ((1 << shift) - 1);
        size *= extent;
    }
    if rest != 0 {
        return None;
    }
    let data = match size {
        0 => null_mut(),
        _ => array.data.cast(),
    };
    let flags = read_only(array.flags & NPY_ARRAY_WRITEABLE == 0);
    let meta = Meta::on_cpu(data, dtype, flags);
    Some(FastArray {
        meta,
        shape,
        byte_strides,
        shift,
    })
}
