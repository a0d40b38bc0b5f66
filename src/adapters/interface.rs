//! The dict that NumPy's array interface and CUDA's share.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::abi::*;
use crate::cpython::call::attribute;
use crate::types::dtype::{NATIVE, canonical, scalar};
use crate::types::error::{caused, is_urgent, type_name};
use crate::types::layout::{self, Integers};

/// The dict of an interface; entries that are None count as absent.
pub(super) struct Interface<'a, 'py> {
    /// The attribute it came from.
    name: &'a Bound<'py, PyString>,
    dict: Bound<'py, PyDict>,
}

/// Dtype, shape, and strides in elements, `None` for compact row-major.
type Elements = (DLDataType, Vec<i64>, Option<Vec<i64>>);

impl<'a, 'py> Interface<'a, 'py> {
    /// The interface in attribute `name` of `x`, if any.
    pub(super) fn of(
        x: &Bound<'py, PyAny>,
        name: &'a Bound<'py, PyString>,
    ) -> PyResult<Option<Self>> {
        let Some(answer) = attribute(x, name)? else {
            return Ok(None);
        };
        match answer.cast_into::<PyDict>() {
            Ok(dict) => Ok(Some(Self { name, dict })),
            Err(error) => Err(wrong_answer(x, name, &error.into_inner(), "a dict")),
        }
    }

    /// Refuses versions other than `known`.
    pub(super) fn check_version(&self, known: RangeInclusive<i64>, said: &str) -> PyResult<()> {
        let version: i64 = self.required("version", said)?;
        if known.contains(&version) {
            return Ok(());
        }
        let name = self.name;
        Err(PyBufferError::new_err(format!(
            "{name} has version {version}; expected {said}"
        )))
    }

    pub(super) fn get(&self, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.dict.get_item(key)?;
        Ok(value.filter(|value| !value.is_none()))
    }

    pub(super) fn optional<T: FromPyObjectOwned<'py>>(
        &self,
        key: &str,
        accepted: &str,
    ) -> PyResult<Option<T>> {
        let value = self.get(key)?;
        value
            .map(|value| self.extract(key, &value, accepted))
            .transpose()
    }

    pub(super) fn required<T: FromPyObjectOwned<'py>>(
        &self,
        key: &str,
        accepted: &str,
    ) -> PyResult<T> {
        self.optional(key, accepted)?.ok_or_else(|| {
            PyBufferError::new_err(format!("{} has no {key:?}; expected {accepted}", self.name))
        })
    }

    /// Converts the value of an entry.
    pub(super) fn extract<T: FromPyObjectOwned<'py>>(
        &self,
        key: &str,
        value: &Bound<'py, PyAny>,
        accepted: &str,
    ) -> PyResult<T> {
        let extracted = value.extract().map_err(Into::into);
        extracted.map_err(|cause: PyErr| {
            if is_urgent(value.py(), &cause) {
                return cause;
            }
            caused(value.py(), self.malformed(key, value, accepted), cause)
        })
    }

    /// Dtype, shape and strides; refuses a mask.
    pub(super) fn elements(&self) -> PyResult<Elements> {
        if let Some(mask) = self.get("mask")? {
            return Err(self.malformed("mask", &mask, "none"));
        }
        let (dtype, item) = self.dtype()?;
        let Integers(shape) = self.required("shape", "a tuple of ints")?;
        let strides = match self.optional("strides", "a tuple of ints, or None")? {
            None => None,
            Some(Integers(strides)) if strides.len() == shape.len() => {
                Some(layout::element_strides(&shape, &strides, item)?)
            }
            Some(Integers(strides)) => {
                return Err(PyBufferError::new_err(format!(
                    "{} has strides {strides:?} for shape {shape:?}; expected one per dimension",
                    self.name
                )));
            }
        };
        Ok((dtype, shape, strides))
    }

    /// The dtype and itemsize of `typestr`; `descr` must not contradict it.
    fn dtype(&self) -> PyResult<(DLDataType, i64)> {
        let py = self.dict.py();
        let typestr: Bound<'py, PyString> = self.required("typestr", "a str such as '<f4'")?;
        let text = typestr.to_cow()?;
        let found = text.split_at_checked(2).and_then(|(start, digits)| {
            let [order, kind] = *start.as_bytes() else {
                return None;
            };
            let itemsize = canonical(digits)?;
            let known = order == NATIVE || (itemsize == 1 && b"<>|".contains(&order));
            Some((dtype(kind, itemsize).filter(|_| known)?, itemsize))
        });
        let found = found.ok_or_else(|| refused_type(&format!("typestr {text:?}")))?;
        if let Some(descr) = self.get("descr")? {
            let trivial = PyList::new(py, [("", &typestr)])?;
            if !descr.eq(trivial)? {
                return Err(self.malformed("descr", &descr, "none, or no more than typestr says"));
            }
        }
        Ok(found)
    }

    /// The error for an entry whose value is not accepted.
    #[cold]
    fn malformed(&self, key: &str, value: &Bound<'_, PyAny>, accepted: &str) -> PyErr {
        match value.repr() {
            Ok(value) => PyBufferError::new_err(format!(
                "{} has {key} {value}; expected {accepted}",
                self.name
            )),
            Err(error) => error,
        }
    }
}

/// The dtype of a `typekind` and an itemsize.
pub(super) fn dtype(kind: u8, itemsize: i64) -> Option<DLDataType> {
    let (code, sizes): (_, &[i64]) = match kind {
        b'b' => (kDLBool, &[1]),
        b'i' => (kDLInt, &[1, 2, 4, 8]),
        b'u' => (kDLUInt, &[1, 2, 4, 8]),
        b'f' => (kDLFloat, &[2, 4, 8]),
        b'c' => (kDLComplex, &[8, 16]),
        _ => return None,
    };
    // At most 16 bytes.
    (sizes.contains(&itemsize)).then(|| scalar(code, itemsize as u8 * 8))
}

/// The error for an element type that is not accepted.
#[cold]
pub(super) fn refused_type(found: &str) -> PyErr {
    PyBufferError::new_err(format!(
        "the array interface has elements of {found}; expected b1, i1 to i8, u1 to u8, f2 to f8, c8 or c16 \
         in native byte order"
    ))
}

/// The error for an attribute of a wrong type.
#[cold]
pub(super) fn wrong_answer(
    x: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
    answer: &Bound<'_, PyAny>,
    accepted: &str,
) -> PyErr {
    PyTypeError::new_err(format!(
        "{name} of {} is {}, not {accepted}",
        type_name(&x.get_type()),
        type_name(&answer.get_type())
    ))
}
