//! Elements as numbers of Python: of a tensor that has one, and all of them in lists.

use std::ptr::copy_nonoverlapping;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList};

use crate::abi::*;
use crate::tensor::checked::Meta;
use crate::tensor::snapshot::Snapshot;
use crate::types::{device, dtype};

/// Bytes of the largest element that is a number.
const LARGEST: usize = 16;

/// The value of the only element of a tensor on the CPU.
///
/// # Errors
///
/// `TypeError` for more or fewer elements, for those on a device, and for those that Python has no number for.
pub(crate) fn number<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyAny>> {
    let (meta, shape) = (snapshot.meta(), snapshot.shape());
    if snapshot.size() != 1 {
        return Err(PyTypeError::new_err(format!(
            "the tensor has shape {shape:?}; only one element has a value as a number"
        )));
    }
    if meta.device != device::CPU {
        return Err(PyTypeError::new_err(format!(
            "the tensor is on {}; only an element on cpu has a value as a number: t.to(device=\"cpu\") copies it there",
            device::name(meta.device)
        )));
    }
    // SAFETY: there is one element, on the CPU.
    unsafe { read(py, &meta, 0) }.ok_or_else(|| PyTypeError::new_err(no_number(&meta)))
}

/// As [`number`], which must be an int, of a tensor without dimensions (array API): `bytes` takes the memory of others.
pub(crate) fn integer<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyAny>> {
    let number = number(py, snapshot)?;
    if !number.is_exact_instance_of::<PyInt>() {
        return Err(no("an index", snapshot));
    }
    if snapshot.ndim() != 0 {
        return Err(PyTypeError::new_err(format!(
            "the tensor has shape {:?}; only one without dimensions is an index: int(t)",
            snapshot.shape()
        )));
    }
    Ok(number)
}

/// As [`number`], which must not be complex; the error says that it is not `what`.
pub(crate) fn real<'py>(
    py: Python<'py>,
    what: &str,
    snapshot: &Snapshot,
) -> PyResult<Bound<'py, PyAny>> {
    let number = number(py, snapshot)?;
    match number.is_instance_of::<PyComplex>() {
        true => Err(no(what, snapshot)),
        false => Ok(number),
    }
}

/// The elements of a tensor on the CPU in nested lists, or the only one of a tensor without dimensions.
///
/// # Errors
///
/// `BufferError` for those on a device, and for those that Python has no number for.
pub(crate) fn list<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyAny>> {
    let meta = snapshot.meta();
    if meta.device != device::CPU {
        return Err(PyBufferError::new_err(format!(
            "the tensor is on {}; only elements on cpu have values as numbers: t.to(device=\"cpu\") copies them there",
            device::name(meta.device)
        )));
    }
    if decode(py, meta.dtype, [0; LARGEST]).is_none() {
        return Err(PyBufferError::new_err(no_number(&meta)));
    }
    nested(py, &meta, snapshot.shape(), snapshot.strides(), 0)
}

/// The elements of these dimensions, the first of which is `offset` elements after that of the tensor.
fn nested<'py>(
    py: Python<'py>,
    meta: &Meta,
    shape: &[i64],
    strides: &[i64],
    offset: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let ([extent, shape @ ..], [stride, strides @ ..]) = (shape, strides) else {
        // SAFETY: each dimension has given an index below its extent, so this is an element, on the CPU.
        let number = unsafe { read(py, meta, offset) };
        return number.ok_or_else(|| PyBufferError::new_err(no_number(meta)));
    };
    let list = PyList::empty(py);
    for index in 0..*extent {
        list.append(nested(py, meta, shape, strides, offset + index * stride)?)?;
    }
    Ok(list.into_any())
}

/// Reads the element that is `offset` elements after the first.
///
/// # Safety
///
/// The tensor is on the CPU and has such an element.
unsafe fn read<'py>(py: Python<'py>, meta: &Meta, offset: i64) -> Option<Bound<'py, PyAny>> {
    let size = (dtype::bits(meta.dtype) / 8) as usize;
    let mut bytes = [0; LARGEST];
    // Other sizes belong to no number.
    if size <= LARGEST {
        let place = meta
            .data
            .cast::<u8>()
            .wrapping_offset(offset as isize * size as isize);
        // SAFETY: the element is readable (S7) and has as many bytes; `bytes` has room for them.
        unsafe { copy_nonoverlapping(place, bytes.as_mut_ptr(), size) };
    }
    decode(py, meta.dtype, bytes)
}

#[cold]
fn no_number(meta: &Meta) -> String {
    let dtype = dtype::name(meta.dtype);
    format!("Python has no number for an element of {dtype}; convert it to another dtype")
}

/// The error for an element that is no such number.
#[cold]
fn no(what: &str, snapshot: &Snapshot) -> PyErr {
    let dtype = dtype::name(snapshot.meta().dtype);
    PyTypeError::new_err(format!("an element of {dtype} is not {what}"))
}

/// The number that the first of `bytes` are.
fn decode(py: Python<'_>, dtype: DLDataType, bytes: [u8; LARGEST]) -> Option<Bound<'_, PyAny>> {
    let (halves, _) = bytes.as_chunks();
    let (words, _) = bytes.as_chunks();
    let (doubles, _) = bytes.as_chunks();
    let byte = bytes[0];
    let short = |at: usize| u16::from_ne_bytes(halves[at]);
    let word = |at: usize| u32::from_ne_bytes(words[at]);
    let double = |at: usize| u64::from_ne_bytes(doubles[at]);
    let single = |at| f64::from(f32::from_bits(word(at)));
    let int = |value: i64| PyInt::new(py, value).into_any();
    let uint = |value: u64| PyInt::new(py, value).into_any();
    let float = |value| PyFloat::new(py, value).into_any();
    let complex = |real, imaginary| PyComplex::from_doubles(py, real, imaginary).into_any();
    Some(match (dtype.code, dtype.bits, dtype.lanes) {
        (kDLBool, 8, 1) => PyBool::new(py, byte != 0).to_owned().into_any(),
        (kDLInt, 8, 1) => int(byte.cast_signed().into()),
        (kDLInt, 16, 1) => int(short(0).cast_signed().into()),
        (kDLInt, 32, 1) => int(word(0).cast_signed().into()),
        (kDLInt, 64, 1) => int(double(0).cast_signed()),
        (kDLUInt, 8, 1) => uint(byte.into()),
        (kDLUInt, 16, 1) => uint(short(0).into()),
        (kDLUInt, 32, 1) => uint(word(0).into()),
        (kDLUInt, 64, 1) => uint(double(0)),
        (kDLFloat, 16, 1) => float(half(short(0))),
        (kDLFloat, 32, 1) => float(single(0)),
        (kDLFloat, 64, 1) => float(f64::from_bits(double(0))),
        (kDLBfloat, 16, 1) => float(f32::from_bits(u32::from(short(0)) << 16).into()),
        (kDLComplex, 32, 1) => complex(half(short(0)), half(short(1))),
        (kDLComplex, 64, 1) => complex(single(0), single(1)),
        (kDLComplex, 128, 1) => complex(f64::from_bits(double(0)), f64::from_bits(double(1))),
        _ => return None,
    })
}

/// An IEEE half.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (bits >> 10 & 0x1F, f64::from(bits & 0x3FF));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1F if fraction == 0.0 => f64::INFINITY,
        0x1F => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 0 {
        magnitude
    } else {
        -magnitude
    }
}
