//! `dlx.from_buffer`, and the bytes of a tensor.

#![forbid(unsafe_code)]

use std::ptr::NonNull;

use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::{self, buffer};
use crate::api::from_dlpack::{dimensions, number};
use crate::copy::host;
use crate::tensor::bytes;
use crate::tensor::checked::Meta;
use crate::tensor::object::Tensor;
use crate::types::dtype::{self, DType};
use crate::types::error::copy_refused;
use crate::types::layout;

/// Make a `Tensor` over the bytes of ``buffer``, which it holds.
///
/// ``buffer`` is an object with the buffer protocol whose bytes are in C order; its own format and shape do not count.
/// ``shape`` and ``strides`` count elements (compact and row-major without ``strides``). ``offset`` counts bytes from the
/// start of the buffer to the first element; by default the elements begin where the buffer begins, so
/// ``from_buffer(t.raw(), t.shape, t.dtype, strides=t.strides)`` has the elements of ``t``. ``padded`` says that elements
/// of less than a byte take one each, as `Tensor.is_padded` does.
///
/// The tensor is read-only if the buffer or ``readonly`` says so, or if ``buffer`` is of a class that its library calls
/// immutable. An address that is no multiple of the size of an element is copied, which keeps strides and ``readonly``;
/// ``copy=False`` raises `CopyRefused` then. ``copy=True`` always copies, and the copy is writable unless
/// ``readonly=True``.
///
/// Raises ``BufferError`` if an element would lie outside of the buffer, and for a buffer in another order;
/// ``ValueError`` and ``TypeError`` for other bad arguments.
///
///     >>> dlx.from_buffer(bytes([1, 0, 2, 0]), (2,), "int16")
///     dlx.Tensor(int16[2], cpu, readonly, [1, 2])
///     >>> dlx.from_buffer(bytes(4), (2,), "int16", copy=True).readonly
///     False
#[pyfunction]
#[pyo3(signature = (buffer, shape, dtype, *, strides=None, offset=None, copy=None, readonly=false, padded=false))]
#[allow(clippy::too_many_arguments, reason = "the public keywords")]
pub(crate) fn from_buffer<'py>(
    buffer: &Bound<'py, PyAny>,
    shape: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    strides: Option<&Bound<'_, PyAny>>,
    offset: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
    readonly: bool,
    padded: bool,
) -> PyResult<Bound<'py, Tensor>> {
    let py = buffer.py();
    let (shape, strides) = dimensions(shape, strides)?;
    let offset = offset.map(|offset| number(offset, "offset", "a number of bytes"));
    let offset: Option<i64> = offset.transpose()?;
    let size = layout::size(&shape)?;
    let dtype = DType::of(dtype)?;
    dtype::known(dtype)?;
    let mut meta = Meta::on_cpu(NonNull::dangling().as_ptr(), dtype, 0);
    if padded {
        meta.flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
    }
    let whole = buffer::bytes(buffer)?;
    let elements = (size, &*shape, strides.as_deref());
    let place = bytes::place(&meta, elements, offset, whole.size())?;
    let mut taken = whole.part(place.start, &[place.length], &[1])?;
    let address = whole.meta().data.addr() as u64 + place.first as u64;
    let aligned = place.length == 0 || address.is_multiple_of(layout::alignment(meta.dtype));
    if readonly
        || copy != Some(true) && (taken.is_protected() || adapters::immutable(buffer)?.is_some())
    {
        meta.flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
    }
    if copy == Some(true) || !aligned {
        if copy == Some(false) {
            let message = format!(
                "copy=False, but the address {address:#x} is no multiple of the size of an element"
            );
            return Err(copy_refused(py, message));
        }
        taken = host::compact(py, &taken)?;
        meta.flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
    }
    let start = taken.meta().data;
    meta.data = start.wrapping_byte_offset((place.first - place.start) as isize);
    let made = taken.within(meta, &shape, strides.as_deref())?;
    // The tensor alone holds the buffer now, as the garbage collector has to see.
    drop((whole, taken));
    Tensor::holding(py, made)
}
