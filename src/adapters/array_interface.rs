//! NumPy's array interface, version 3: the C struct of `__array_struct__` and the dict of
//! `__array_interface__`, for objects that have nothing better.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{NonNull, with_exposed_provenance_mut};

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyString, PyTuple};

use super::buffer::Buffer;
use crate::abi::*;
use crate::checked::{Checked, Memo, extents};
use crate::dtype::canonical;
use crate::error::{Error, type_name};
use crate::interpreter::PythonOwner;
use crate::snapshot::{Snapshot, Source};
use crate::{capsule, layout};

/// `PyArrayInterface` of NumPy's documentation.
#[repr(C)]
struct PyArrayInterface {
    two: c_int,
    nd: c_int,
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *mut isize,
    strides: *mut isize,
    data: *mut c_void,
    descr: *mut ffi::PyObject,
}

const NOTSWAPPED: c_int = 0x200;
const WRITEABLE: c_int = 0x400;

/// The tensor of an object that has `__array_struct__`; it holds the object and the capsule, since either may
/// own the memory. DLPack promises no alignment, so the ALIGNED flag means nothing here.
pub(super) fn from_struct(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let Some(answer) = x.getattr_opt(intern!(x.py(), "__array_struct__"))? else {
        return Ok(None);
    };
    let Ok(capsule) = answer.cast::<PyCapsule>() else {
        return Err(wrong_answer(x, "__array_struct__", &answer, "a capsule"));
    };
    let interface = capsule::contents(capsule, None)?.cast::<PyArrayInterface>();
    // SAFETY: the capsule of `__array_struct__` points to this struct while it lives (S11).
    let two = unsafe { (*interface.as_ptr()).two };
    if two != 2 {
        return Err(PyBufferError::new_err(format!(
            "__array_struct__ begins with {two}; a PyArrayInterface begins with 2"
        )));
    }
    // SAFETY: as above; the first field says that it is the struct.
    let interface = unsafe { interface.as_ref() };
    // SAFETY: shape and strides have `nd` values where they are not NULL, while the capsule lives (S11).
    let (shape, strides) = unsafe { dimensions(interface) }?;
    let (kind, itemsize) = (interface.typekind as u8, i64::from(interface.itemsize));
    let swapped = itemsize > 1 && interface.flags & NOTSWAPPED == 0;
    let dtype = dtype(kind, itemsize).filter(|_| !swapped).ok_or_else(|| {
        let order = if swapped { "swapped" } else { "native" };
        let kind = char::from(kind);
        refused_type(&format!(
            "typekind {kind:?}, itemsize {itemsize} and {order} byte order"
        ))
    })?;
    let flags = read_only(interface.flags & WRITEABLE == 0);
    let strides = strides
        .map(|strides| layout::element_strides(shape, strides, itemsize))
        .transpose()?;
    let memo = Memo::on_cpu(interface.data, dtype, flags);
    let checked = Checked::new(memo, shape, strides.as_deref())?;
    let held = (
        PythonOwner::new(x.clone().unbind()),
        PythonOwner::new(answer.clone().unbind()),
    );
    Ok(Some(checked.over(Source::Held(Box::new(held)))))
}

/// Shape, and strides in bytes if there are any.
///
/// # Safety
///
/// Where they are not NULL, `shape` and `strides` point to `nd` values that stay valid and unchanged for as
/// long as the slices are used.
unsafe fn dimensions(interface: &PyArrayInterface) -> Result<(&[i64], Option<&[i64]>), Error> {
    // SAFETY: the caller's promise.
    let shape = unsafe { extents(interface.shape.cast(), interface.nd) }?;
    let Some(strides) = NonNull::new(interface.strides) else {
        return Ok((shape, None));
    };
    // SAFETY: the caller's promise; `nd` was checked with the shape.
    let strides = unsafe { std::slice::from_raw_parts(strides.as_ptr().cast(), shape.len()) };
    Ok((shape, Some(strides)))
}

/// The tensor of an object that has `__array_interface__`; it holds the object, and the buffer where `data`
/// is one.
pub(super) fn from_dict(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let Some(answer) = x.getattr_opt(intern!(x.py(), "__array_interface__"))? else {
        return Ok(None);
    };
    let Ok(dict) = answer.cast::<PyDict>() else {
        return Err(wrong_answer(x, "__array_interface__", &answer, "a dict"));
    };
    let interface = Interface(dict);
    let version: i64 = interface.required("version", "3")?;
    if version != 3 {
        return Err(PyBufferError::new_err(format!(
            "__array_interface__ has version {version}, accepted is 3"
        )));
    }
    if let Some(mask) = interface.get("mask")? {
        return Err(malformed("mask", &mask, "none"));
    }
    let (dtype, item) = interface.dtype()?;
    let shape: Vec<i64> = interface.required("shape", "a tuple of ints")?;
    let strides: Option<Vec<i64>> = interface.optional("strides", "a tuple of ints, or None")?;
    if let Some(strides) = strides
        .as_ref()
        .filter(|strides| strides.len() != shape.len())
    {
        return Err(PyBufferError::new_err(format!(
            "__array_interface__ has strides {strides:?} for shape {shape:?}: accepted is one per dimension"
        )));
    }
    let strides = strides
        .map(|strides| layout::element_strides(&shape, &strides, item))
        .transpose()?;
    let owner = PythonOwner::new(x.clone().unbind());
    let offset: i64 = interface.optional("offset", "an int")?.unwrap_or(0);
    let data: Bound<'_, PyAny> = interface.required("data", "a pair or a buffer")?;
    let (memo, source) = if data.is_instance_of::<PyTuple>() {
        let (address, flag): (usize, Bound<'_, PyAny>) =
            extract("data", &data, "(address, read-only)")?;
        if offset != 0 {
            return Err(PyBufferError::new_err(format!(
                "__array_interface__ has offset {offset}, which is for data that are a buffer, not an address"
            )));
        }
        let address = with_exposed_provenance_mut(address);
        let memo = Memo::on_cpu(address, dtype, read_only(flag.is_truthy()?));
        (memo, Source::Held(Box::new(owner)))
    } else {
        let buffer = Buffer::get(&data, ffi::PyBUF_SIMPLE)?;
        let length = buffer.view().len as i64;
        check_inside(length, offset, &shape, strides.as_deref(), item)?;
        let start = buffer.view().buf.wrapping_byte_offset(offset as isize);
        let memo = Memo::on_cpu(start, dtype, buffer.flags());
        (memo, Source::Held(Box::new((owner, buffer))))
    };
    let checked = Checked::new(memo, &shape, strides.as_deref())?;
    Ok(Some(checked.over(source)))
}

/// The dict of `__array_interface__`; an entry that is None counts as absent.
struct Interface<'a, 'py>(&'a Bound<'py, PyDict>);

impl<'py> Interface<'_, 'py> {
    fn get(&self, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.0.get_item(key)?;
        Ok(value.filter(|value| !value.is_none()))
    }

    fn optional<T: FromPyObjectOwned<'py>>(
        &self,
        key: &str,
        accepted: &str,
    ) -> PyResult<Option<T>> {
        let value = self.get(key)?;
        value
            .map(|value| extract(key, &value, accepted))
            .transpose()
    }

    fn required<T: FromPyObjectOwned<'py>>(&self, key: &str, accepted: &str) -> PyResult<T> {
        self.optional(key, accepted)?.ok_or_else(|| {
            PyBufferError::new_err(format!(
                "__array_interface__ has no {key:?}, accepted is {accepted}"
            ))
        })
    }

    /// What `typestr` says, and `descr` must not contradict; with the size of an element.
    fn dtype(&self) -> PyResult<(DLDataType, i64)> {
        let py = self.0.py();
        let typestr: Bound<'py, PyString> = self.required("typestr", "a str such as '<f4'")?;
        let text = typestr.to_cow()?;
        let native = if cfg!(target_endian = "little") {
            b'<'
        } else {
            b'>'
        };
        let found = text.split_at_checked(2).and_then(|(start, digits)| {
            let [order, kind] = *start.as_bytes() else {
                return None;
            };
            let itemsize = canonical(digits)?;
            let known = order == native || (itemsize == 1 && b"<>|".contains(&order));
            Some((dtype(kind, itemsize).filter(|_| known)?, itemsize))
        });
        let found = found.ok_or_else(|| refused_type(&format!("typestr {text:?}")))?;
        if let Some(descr) = self.get("descr")? {
            let trivial = PyList::new(py, [("", &typestr)])?;
            if !descr.eq(trivial)? {
                return Err(malformed(
                    "descr",
                    &descr,
                    "none, or what says no more than typestr",
                ));
            }
        }
        Ok(found)
    }
}

/// Refuses elements that lie outside a buffer of `length` bytes.
fn check_inside(
    length: i64,
    offset: i64,
    shape: &[i64],
    strides: Option<&[i64]>,
    item: i64,
) -> Result<(), Error> {
    let size = layout::size(shape)?;
    if size == 0 {
        return Ok(());
    }
    let (low, high) = match strides {
        Some(strides) => layout::span(shape, strides)?,
        None => (0, size - 1),
    };
    let byte = |element: i64| i128::from(offset) + i128::from(element) * i128::from(item);
    let (start, end) = (byte(low), byte(high) + i128::from(item));
    if start < 0 || end > i128::from(length) {
        return Err(Error::refused(format!(
            "__array_interface__ has elements in bytes {start} to {end} of a buffer of {length}"
        )));
    }
    Ok(())
}

/// The dtype of a `typekind` and a size in bytes.
fn dtype(kind: u8, itemsize: i64) -> Option<DLDataType> {
    let (code, sizes): (_, &[i64]) = match kind {
        b'b' => (kDLBool, &[1]),
        b'i' => (kDLInt, &[1, 2, 4, 8]),
        b'u' => (kDLUInt, &[1, 2, 4, 8]),
        b'f' => (kDLFloat, &[2, 4, 8]),
        b'c' => (kDLComplex, &[8, 16]),
        _ => return None,
    };
    sizes.contains(&itemsize).then(|| DLDataType {
        code,
        // At most 16 bytes.
        bits: itemsize as u8 * 8,
        lanes: 1,
    })
}

fn read_only(yes: bool) -> u64 {
    if yes {
        DLPACK_FLAG_BITMASK_READ_ONLY
    } else {
        0
    }
}

/// The value of an entry.
fn extract<'py, T: FromPyObjectOwned<'py>>(
    key: &str,
    value: &Bound<'py, PyAny>,
    accepted: &str,
) -> PyResult<T> {
    let extracted = value.extract().map_err(Into::into);
    extracted.map_err(|cause: PyErr| {
        let error = malformed(key, value, accepted);
        error.set_cause(value.py(), Some(cause));
        error
    })
}

/// The error for an entry that says what is not accepted.
#[cold]
fn malformed(key: &str, value: &Bound<'_, PyAny>, accepted: &str) -> PyErr {
    match value.repr() {
        Ok(value) => PyBufferError::new_err(format!(
            "__array_interface__ has {key} {value}, accepted is {accepted}"
        )),
        Err(error) => error,
    }
}

/// The error for elements that are not accepted.
#[cold]
fn refused_type(found: &str) -> PyErr {
    PyBufferError::new_err(format!(
        "the array interface has elements of {found}; accepted are b1, i1 to i8, u1 to u8, f2 to f8, c8 and \
         c16 in native byte order"
    ))
}

/// The error for an attribute that is of a wrong type.
#[cold]
fn wrong_answer(
    x: &Bound<'_, PyAny>,
    name: &str,
    answer: &Bound<'_, PyAny>,
    accepted: &str,
) -> PyErr {
    PyTypeError::new_err(format!(
        "{name} of {} is {}, not {accepted}",
        type_name(&x.get_type()),
        type_name(&answer.get_type())
    ))
}
