//! Lookups of attributes without raising, and calls of methods without a dict, through functions of CPython outside
//! the stable ABI of 3.11 (S23, CPython's functions, in `docs/safety.md`).

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::OnceLock;

use pyo3::exceptions::{PyAttributeError, PySystemError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::cpython::lookup::is_in_type;
use crate::cpython::symbol::symbol;

/// `PyObject_GetOptionalAttr`.
type GetOptionalAttr =
    unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject, *mut *mut ffi::PyObject) -> c_int;

/// `PyObject_VectorcallMethod`.
type VectorcallMethod = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The functions that this interpreter has.
struct Functions {
    get_optional_attr: Option<GetOptionalAttr>,
    vectorcall_method: Option<VectorcallMethod>,
    /// `PyObject_Vectorcall`, whose first parameter is the callable object in place of a name, the last one likewise.
    vectorcall: Option<VectorcallMethod>,
}

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`: the callee may temporarily overwrite the first argument's slot.
pub(super) const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);

/// The functions, looked up once.
fn functions() -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Functions {
        // SAFETY: `PyObject_GetOptionalAttr` has had this signature since CPython 3.13, and its predecessor since 3.7
        // (S23).
        get_optional_attr: unsafe { symbol("PyObject_GetOptionalAttr") }
            // SAFETY: as above.
            .or_else(|| unsafe { symbol("_PyObject_LookupAttr") }),
        // SAFETY: `PyObject_VectorcallMethod` has had this signature since CPython 3.9 (S23).
        vectorcall_method: unsafe { symbol("PyObject_VectorcallMethod") },
        // SAFETY: `PyObject_Vectorcall` has had this signature since CPython 3.9 (S23).
        vectorcall: unsafe { symbol("PyObject_Vectorcall") },
    })
}

/// A function that calls by vector.
#[inline(always)]
fn there(function: Option<VectorcallMethod>) -> PyResult<VectorcallMethod> {
    function.ok_or_else(|| PySystemError::new_err("CPython has no PyObject_Vectorcall"))
}

/// The attribute of `x`, or `None`. CPython's function creates no `AttributeError` for a missing attribute.
#[inline(never)]
pub(crate) fn attribute<'py>(
    x: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(get) = functions().get_optional_attr else {
        return x.getattr_opt(name);
    };
    let mut found = null_mut();
    // SAFETY: both objects are live, the thread is attached, and `found` is a local.
    match unsafe { get(x.as_ptr(), name.as_ptr(), &mut found) } {
        0 => Ok(None),
        // SAFETY: a new reference, or NULL with an exception.
        _ => unsafe { Bound::from_owned_ptr_or_err(x.py(), found) }.map(Some),
    }
}

/// Whether `x` has a method `name`, without binding it if the type has it.
#[inline(always)]
pub(crate) fn has(x: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    Ok(is_in_type(x.get_type_ptr(), name) == Some(true) || attribute(x, name)?.is_some())
}

/// The result of calling the method `name` of `x`, or `None` if there is no such method.
#[inline]
pub(crate) fn answer<'py>(
    x: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !has(x, name)? {
        return Ok(None);
    }
    match x.call_method0(name) {
        // An instance may hide an attribute of its type.
        Err(error)
            if error.is_instance_of::<PyAttributeError>(x.py())
                && attribute(x, name)?.is_none() =>
        {
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

/// The single keyword argument of a call: a tuple with its name, and its value.
pub(crate) type Keyword<'a, 'py> = (&'a Bound<'py, PyTuple>, &'a Bound<'py, PyAny>);

/// Calls the method `name` of a producer with one keyword.
#[inline]
pub(crate) fn call_method<'py>(
    x: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    (names, value): Keyword<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let vectorcall = there(functions().vectorcall_method)?;
    let mut arguments = [x.as_ptr(), value.as_ptr()];
    let (arguments, count) = (arguments.as_mut_ptr(), 1 | ARGUMENTS_OFFSET);
    // SAFETY: the name, the receiver and one value per keyword are live, the thread is attached, and the array is a
    // local that may be written to.
    let result = unsafe { vectorcall(name.as_ptr(), arguments, count, names.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(x.py(), result) }
}

/// Calls `function` with the `arguments` but for the first, whose place it may use; the last ones have `names`.
#[inline(never)]
pub(crate) fn vectorcall<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &mut [Bound<'py, PyAny>],
    names: Option<&Bound<'py, PyTuple>>,
) -> PyResult<Bound<'py, PyAny>> {
    let positional = arguments.len() - 1 - names.map_or(0, |names| names.len());
    let vectorcall = there(functions().vectorcall)?;
    let first = arguments.as_mut_ptr().wrapping_add(1).cast();
    let count = positional | ARGUMENTS_OFFSET;
    let names = names.map_or(null_mut(), Bound::as_ptr);
    // SAFETY: the function, the arguments and one of them for each name are live, the thread is attached, and there is
    // a place before them that may be written to; a `Bound` is the pointer to its object.
    let result = unsafe { vectorcall(function.as_ptr(), first, count, names) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}

/// The most arguments of [`call_with`].
const MOST: usize = 6;

/// Calls `function` with these arguments, without a tuple for them.
#[inline(never)]
pub(crate) fn call_with<'py, const N: usize>(
    function: &Bound<'py, PyAny>,
    arguments: &[&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    call_here(function, arguments)
}

/// As [`call_with`], for a loop that calls.
#[inline(always)]
pub(crate) fn call_here<'py, const N: usize>(
    function: &Bound<'py, PyAny>,
    arguments: &[&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    let vectorcall = there(functions().vectorcall)?;
    const { assert!(N <= MOST) };
    // One place before them, which the callee may write to.
    let mut all = [null_mut(); MOST + 1];
    let mut count = 0;
    for (place, argument) in all[1..].iter_mut().zip(arguments) {
        *place = argument.as_ptr();
        count += 1;
    }
    let (start, count) = (all[1..].as_mut_ptr(), count | ARGUMENTS_OFFSET);
    // SAFETY: the function and as many arguments are live, the thread is attached, and there is a place before them
    // that may be written to.
    let result = unsafe { vectorcall(function.as_ptr(), start, count, null_mut()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}

#[cfg(test)]
mod tests;
