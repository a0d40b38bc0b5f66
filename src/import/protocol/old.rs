//! Methods that have not heard of `max_version`: functions written in Python, whose code says so.
//!
//! To call one with it costs a `TypeError`, which takes longer than many exports. A type that answered so is asked first
//! whether its object's method has such code; whatever else it has is called as any other.

#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::cpython::call::attribute;

/// Types that answered by a `TypeError`, by address, to decide only whether to look at the method.
static TYPES: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
const PLACES: usize = 64;
/// Code without `max_version`, held so that no other takes its address; the rest is called as any other.
static CODES: [OnceLock<Py<PyAny>>; 32] = [const { OnceLock::new() }; 32];
/// `CO_VARKEYWORDS`: the function takes any keyword.
const VARKEYWORDS: u32 = 8;

/// The place of the type of `x`, and its address.
#[inline(always)]
fn place(x: &Bound<'_, PyAny>) -> (&'static AtomicUsize, usize) {
    let address = x.get_type_ptr().addr();
    (&TYPES[(address >> 4) % PLACES], address)
}

/// `__dlpack__` of `x`, if it is known to take no `max_version`.
#[inline(always)]
pub(super) fn method<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (place, address) = place(x);
    if place.load(Ordering::Relaxed) == address {
        known(x)
    } else {
        Ok(None)
    }
}

#[inline(never)]
fn known<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(method) = attribute(x, intern!(x.py(), "__dlpack__"))? else {
        return Ok(None);
    };
    let Some(code) = code(&method)? else {
        return Ok(None);
    };
    let mut known = CODES.iter().map_while(OnceLock::get);
    Ok(known.any(|each| each.is(&code)).then_some(method))
}

/// Notes the method of `x`, which has answered without `max_version`, after a `TypeError` with it.
#[cold]
pub(super) fn note(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(method) = attribute(x, intern!(x.py(), "__dlpack__"))? else {
        return Ok(());
    };
    let Some(code) = code(&method)? else {
        return Ok(());
    };
    if takes_max_version(&code)? {
        return Ok(());
    }
    let mut places = CODES
        .iter()
        .map(|free| free.get_or_init(|| code.clone().unbind()));
    if places.any(|held| held.is(&code)) {
        let (place, address) = place(x);
        place.store(address, Ordering::Relaxed);
    }
    Ok(())
}

/// The code of a method that is a function written in Python.
fn code<'py>(method: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    static TYPES: PyOnceLock<[Py<PyType>; 2]> = PyOnceLock::new();
    let py = method.py();
    let [bound, function] = TYPES.get_or_try_init(py, || {
        let module = py.import("types")?;
        let class = |name| {
            module
                .getattr(name)?
                .cast_into::<PyType>()
                .map_err(PyErr::from)
        };
        Ok::<_, PyErr>([class("MethodType")?, class("FunctionType")?].map(Bound::unbind))
    })?;
    if !method.get_type().is(bound) {
        return Ok(None);
    }
    match attribute(method, intern!(py, "__func__"))? {
        Some(found) if found.get_type().is(function) => attribute(&found, intern!(py, "__code__")),
        _ => Ok(None),
    }
}

/// Whether a call with the keyword may succeed.
fn takes_max_version(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let number = |name: &str| code.getattr(name)?.extract::<u32>();
    let named = number("co_argcount")? + number("co_kwonlyargcount")?;
    let names = code.getattr("co_varnames")?.cast_into::<PyTuple>()?;
    let names = names.get_slice(0, usize::try_from(named)?);
    Ok(number("co_flags")? & VARKEYWORDS != 0 || names.contains("max_version")?)
}
