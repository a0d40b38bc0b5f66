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
    on_cpu(&meta).map_err(PyTypeError::new_err)?;
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
    on_cpu(&meta).map_err(PyBufferError::new_err)?;
    if decode(py, meta.dtype, &[0; LARGEST][..size(&meta)]).is_none() {
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
    let (size, mut bytes) = (size(meta), [0; LARGEST]);
    let place = (meta.data.cast::<u8>()).wrapping_offset(offset as isize * size as isize);
    // SAFETY: the element is readable (S7) and has as many bytes; `bytes` has room for them.
    unsafe { copy_nonoverlapping(place, bytes.as_mut_ptr(), size) };
    decode(py, meta.dtype, &bytes[..size])
}

/// Bytes of an element that is a number; larger ones are none.
fn size(meta: &Meta) -> usize {
    ((dtype::bits(meta.dtype) / 8) as usize).min(LARGEST)
}

/// Refuses elements that are elsewhere.
fn on_cpu(meta: &Meta) -> Result<(), String> {
    if meta.device == device::CPU {
        return Ok(());
    }
    Err(format!(
        "the tensor is on {}; only elements on cpu have values as numbers: t.to(device=\"cpu\") copies them there",
        meta.device
    ))
}

#[cold]
fn no_number(meta: &Meta) -> String {
    let dtype = meta.dtype;
    format!("Python has no number for an element of {dtype}; convert it to another dtype")
}

/// The error for an element that is no such number.
#[cold]
fn no(what: &str, snapshot: &Snapshot) -> PyErr {
    let dtype = snapshot.meta().dtype;
    PyTypeError::new_err(format!("an element of {dtype} is not {what}"))
}

/// The number that an element of these bytes is.
fn decode<'py>(py: Python<'py>, dtype: DLDataType, bytes: &[u8]) -> Option<Bound<'py, PyAny>> {
    let value = unsigned(bytes);
    Some(match (dtype.code, dtype.bits) {
        _ if dtype.lanes != 1 => return None,
        (kDLBool, 8) => PyBool::new(py, value != 0).to_owned().into_any(),
        (kDLUInt, 8 | 16 | 32 | 64) => PyInt::new(py, value).into_any(),
        (kDLInt, bits @ (8 | 16 | 32 | 64)) => {
            // The sign is the highest of the bits.
            let unused = 64 - bits;
            PyInt::new(py, (value << unused).cast_signed() >> unused).into_any()
        }
        (kDLComplex, _) => {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            let (real, imaginary) = (float(kDLFloat, real)?, float(kDLFloat, imaginary)?);
            PyComplex::from_doubles(py, real, imaginary).into_any()
        }
        (code, _) => PyFloat::new(py, float(code, bytes)?).into_any(),
    })
}

/// The integer that up to eight bytes are.
fn unsigned(bytes: &[u8]) -> u64 {
    let append = |higher, byte: &u8| higher << 8 | u64::from(*byte);
    if cfg!(target_endian = "little") {
        bytes.iter().rfold(0, append)
    } else {
        bytes.iter().fold(0, append)
    }
}

/// The floating-point number that these bytes are.
fn float(code: DLDataTypeCode, bytes: &[u8]) -> Option<f64> {
    let bits = unsigned(bytes);
    match (code, bytes.len()) {
        (kDLFloat, 2) => Some(half(bits as u16)),
        (kDLFloat, 4) => Some(f32::from_bits(bits as u32).into()),
        (kDLFloat, 8) => Some(f64::from_bits(bits)),
        (kDLBfloat, 2) => Some(f32::from_bits((bits as u32) << 16).into()),
        _ => None,
    }
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
