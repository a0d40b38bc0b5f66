//! The buffer protocol (PEP 3118): `bytes`, `array.array`, `mmap`, ctypes and others.

use std::ffi::{CStr, c_char, c_int};
use std::hint::black_box;
use std::ptr::from_ref;
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi::*;
use crate::tensor::buffer::FORMATS;
use crate::tensor::checked::{Checked, Dimensions, Meta, dimensions_at};
use crate::tensor::held_buffer::Buffer;
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::dtype::{BYTE, NATIVE, scalar};
use crate::types::error::{EXCEPTION_SET, Error, broken, failed};
use crate::types::layout;

impl Buffer {
    /// Requests the buffer of `x` with the `PyBUF_*` in `flags`.
    ///
    /// # Errors
    ///
    /// The exporter's, such as `ValueError` for a released `memoryview`.
    pub(super) fn get(x: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        // Exporters may point fields into the struct, so it must not move.
        // `calloc`, which the compiler makes of an allocation of zeros, takes three times as long as `malloc`.
        let place = black_box(Box::new_uninit());
        let view = Box::into_raw(Box::write(place, ffi::Py_buffer::new()));
        // SAFETY: a live object, attached, and our struct to fill.
        if unsafe { ffi::PyObject_GetBuffer(x.as_ptr(), view, flags) } != 0 {
            // SAFETY: the box made above; nothing was exported, so nothing else refers to it.
            drop(unsafe { Box::from_raw(view) });
            return Err(failed(&x.get_type(), FUNCTION));
        }
        // SAFETY: a box, filled above.
        let buffer = unsafe { Self::filled(view) };
        // SAFETY: attached.
        if unsafe { ffi::PyErr_Occurred() }.is_null() {
            return Ok(buffer);
        }
        Err(broken(&x.get_type(), FUNCTION, EXCEPTION_SET))
    }

    /// The format of an element; NULL means bytes.
    fn format(&self) -> &CStr {
        let format = self.view().format;
        if format.is_null() {
            return c"B";
        }
        // SAFETY: a C string that the exporter keeps until the release (S10).
        unsafe { CStr::from_ptr(format) }
    }

    /// Whether some dimension is an array of pointers to the next.
    fn is_indirect(&self, ndim: usize) -> bool {
        let suboffsets: *const i64 = self.view().suboffsets.cast();
        if suboffsets.is_null() {
            return false;
        }
        // SAFETY: not NULL, so it points to `ndim` suboffsets until the release (S10).
        let suboffsets = unsafe { slice::from_raw_parts(suboffsets, ndim) };
        suboffsets.iter().any(|&suboffset| suboffset >= 0)
    }

    /// The tensor over the buffer, with these flags; it holds the buffer.
    fn into_snapshot(self, flags: u64) -> Result<Snapshot, Error> {
        // SAFETY: in a box, which does not move with `self`; the snapshot has copied the dimensions when it can end.
        let view = unsafe { &*from_ref(self.view()) };
        let (dtype, item) = element(self.format())?;
        if view.itemsize as i64 != item {
            return Err(Error::refused(format!(
                "the buffer has itemsize {}, but elements of format {:?} have itemsize {item}",
                view.itemsize,
                self.format()
            )));
        }
        // Divided only where it is needed: a division is slow.
        let only = match view.shape.is_null() {
            true => [view.len as i64 / item],
            false => [0],
        };
        let (shape, strides) = dimensions(view, &only)?;
        if self.is_indirect(shape.len()) {
            return Err(Error::refused(
                "the buffer has suboffsets; expected strided elements in one block of memory",
            ));
        }
        let strides = strides
            .map(|strides| layout::element_strides(shape, strides, item))
            .transpose()?;
        let meta = Meta::on_cpu(view.buf, dtype, flags);
        let checked = Checked::new(meta, shape, strides.as_deref())?;
        if checked.size.checked_mul(item) != Some(view.len as i64) {
            return Err(Error::refused(format!(
                "the buffer has {} bytes, but shape {shape:?} with itemsize {item} requires another number",
                view.len
            )));
        }
        Ok(checked.over(Source::Buffer(self, None)))
    }
}

/// The shape, and the strides in bytes, if any; exporters may omit the shape of one dimension, of extent `only`.
#[inline(always)]
fn dimensions<'a>(view: &'a ffi::Py_buffer, only: &'a [i64; 1]) -> Result<Dimensions<'a>, Error> {
    let shape = match view.shape.is_null() && view.ndim == 1 {
        true => only.as_ptr(),
        false => view.shape.cast_const().cast(),
    };
    // SAFETY: where they are not NULL, both point to `ndim` numbers until the release (S10), and `only` is one.
    unsafe { dimensions_at(shape, view.strides.cast(), view.ndim) }
}

/// What error messages call the function of an exporter.
const FUNCTION: &str = "the buffer function";

/// The bytes of a buffer, whatever its elements are.
///
/// # Errors
///
/// `BufferError` unless they are in C order, and what the exporter raises.
#[cold]
pub(crate) fn bytes(x: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    let buffer = Buffer::get(x, ffi::PyBUF_STRIDED_RO)?;
    // SAFETY: attached, and filled by `get`.
    if unsafe { ffi::PyBuffer_IsContiguous(buffer.view(), b'C' as c_char) } == 0 {
        return Err(Error::refused("the bytes of the buffer are not in C order").into());
    }
    let (place, length) = (buffer.view().buf, [buffer.view().len as i64]);
    let meta = Meta::on_cpu(place, BYTE, buffer.flags());
    let checked = Checked::new(meta, &length, None)?;
    Ok(checked.over(Source::Buffer(buffer, None)))
}

/// Whether `x` supports the buffer protocol.
#[inline(always)]
pub(crate) fn has(x: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object; only its type is inspected.
    unsafe { ffi::PyObject_CheckBuffer(x.as_ptr()) != 0 }
}

/// The number of bytes of the elements of `x`, if their strides are known in bytes alone, as those of a field of a packed
/// struct: only a copy is a tensor.
#[cold]
pub(crate) fn packed(x: &Bound<'_, PyAny>) -> Option<i64> {
    let buffer = has(x).then(|| Buffer::get(x, ffi::PyBUF_FULL_RO))?.ok()?;
    let (shape, strides) = dimensions(buffer.view(), &[0]).ok()?;
    layout::element_strides(shape, strides?, buffer.view().itemsize as i64).err()?;
    Some(buffer.view().len as i64)
}

/// Imports an object that supports the buffer protocol; `None` if it does not.
pub(super) fn snapshot(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    if !has(x) {
        return Ok(None);
    }
    let buffer = Buffer::get(x, ffi::PyBUF_FULL_RO)?;
    let flags = buffer.flags();
    Ok(Some(buffer.into_snapshot(flags)?))
}

/// Imports the buffer of `x`, of row-major elements, with these flags, whatever the buffer says of them.
///
/// # Errors
///
/// The exporter's, also for another layout.
pub(super) fn read(x: &Bound<'_, PyAny>, flags: u64) -> PyResult<Snapshot> {
    let buffer = Buffer::get(x, ffi::PyBUF_ND | ffi::PyBUF_FORMAT)?;
    Ok(buffer.into_snapshot(flags)?)
}

/// The dtype and itemsize of a `struct` format: one number in native byte order.
fn element(format: &CStr) -> Result<(DLDataType, i64), Error> {
    let text = format.to_bytes();
    let (order, letters) = match text {
        [b'!', letters @ ..] => (b'>', letters),
        [order @ (b'@' | b'=' | b'<' | b'>'), letters @ ..] => (*order, letters),
        _ => (b'@', text),
    };
    let is_it = |format: &CStr| {
        let known = format.to_bytes();
        // The first letter tells most of them apart.
        known.first() == letters.first() && known == letters
    };
    let known = FORMATS.iter().find(|(format, ..)| is_it(format));
    let found = known.and_then(|&(_, code, bits)| match letters {
        // With '@' or no prefix, sizes are those of the C compiler.
        _ if order == b'@' => Some((code, bits)),
        b"l" | b"L" => Some((code, 32)),
        b"n" | b"N" => None,
        _ => Some((code, bits)),
    });
    let foreign = matches!(order, b'<' | b'>') && order != NATIVE;
    let (code, bits) = found
        .filter(|&(_, bits)| bits == 8 || !foreign)
        .ok_or_else(|| {
            Error::refused(format!(
                "the buffer has elements of format {format:?}; expected one of ? c b B h H i I l L q Q n N \
                 e f d Zf Zd, in native byte order"
            ))
        })?;
    Ok((scalar(code, bits), i64::from(bits / 8)))
}
