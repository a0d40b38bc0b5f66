//! Classes whose objects CPython calls by vector, without a tuple and a dict of the arguments (S28 of `docs/safety.md`).

use std::ffi::{CStr, c_ulong, c_void};
use std::slice;

use pyo3::PyClass;
use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyTuple, PyType};

use crate::cpython::boundary::{guard, panicked, raised};
use crate::cpython::call::ARGUMENTS_OFFSET;
use crate::cpython::symbol::symbol;
use crate::cpython::{derived, head};

/// `vectorcallfunc`.
pub(crate) type Entry = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The arguments of a call, the last of which have names.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'a, 'py> {
    pub(crate) values: &'a [Borrowed<'a, 'py, PyAny>],
    pub(crate) names: Option<Borrowed<'a, 'py, PyTuple>>,
    /// How many have no names.
    pub(crate) positional: usize,
}

impl<'a, 'py> Arguments<'a, 'py> {
    /// Those that CPython passes.
    ///
    /// # Safety
    ///
    /// So many positional arguments, then one value for each name in `names`, which is a tuple or NULL; the caller holds all
    /// of them during the call.
    #[inline(always)]
    pub(crate) unsafe fn of(
        py: Python<'py>,
        values: *const *mut ffi::PyObject,
        positional: usize,
        names: *mut ffi::PyObject,
    ) -> Self {
        // SAFETY: NULL or a live object, as the caller promises.
        let names = unsafe { Borrowed::from_ptr_or_opt(py, names) };
        // SAFETY: the caller passes a tuple.
        let names = names.map(|names| unsafe { names.cast_unchecked::<PyTuple>() });
        let values = match positional + names.as_ref().map_or(0, |names| names.len()) {
            0 => &[],
            // SAFETY: so many live objects, as the caller promises, and a `Borrowed` is the pointer to one.
            count => unsafe { slice::from_raw_parts(values.cast(), count) },
        };
        Self {
            values,
            names,
            positional,
        }
    }
}

/// A class of PyO3 whose objects are called by vector.
pub(crate) trait ByVector: PyClass<Frozen = True> + Sync {
    /// The offset of a field that holds [`entry`] for this class.
    const ENTRY: usize;

    /// Calls the object. PyO3 does not count the attachment (S20).
    fn call<'py>(
        &self,
        py: Python<'py>,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// What CPython calls for objects of a class that [`class`] has made.
///
/// # Safety
///
/// Called by CPython with the thread attached, an object of `T`, as many positional arguments as `count` says without its
/// highest bit, then one value for each name in `names`, which is a tuple or NULL.
pub(crate) unsafe extern "C" fn entry<T: ByVector>(
    object: *mut ffi::PyObject,
    values: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let body = || {
        // SAFETY: the caller's promise.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: the caller holds the object during the call.
        let object = unsafe { Borrowed::from_ptr(py, object) };
        // SAFETY: an object of `T`, as the caller promises.
        let object = unsafe { object.cast_unchecked::<T>() };
        // SAFETY: the caller's promise, without that bit.
        let arguments = unsafe { Arguments::of(py, values, count & !ARGUMENTS_OFFSET, names) };
        let made = object.get().call(py, arguments);
        made.map_or_else(raised, Bound::into_ptr)
    };
    guard(body, |payload| raised(panicked(&*payload)))
}

/// `Py_TPFLAGS_HAVE_VECTORCALL`, since CPython 3.8; in the stable ABI since 3.12.
const BY_VECTOR: c_ulong = 1 << 11;

/// A class derived from PyO3's of `T`, named `name`.
///
/// # Errors
///
/// `SystemError` if CPython cannot call by vector.
pub(crate) fn class<'py, T: ByVector>(
    py: Python<'py>,
    name: &'static CStr,
) -> PyResult<Bound<'py, PyType>> {
    // SAFETY: `PyVectorcall_Call` is a function, whose address is only passed on.
    let Some(by_tuple) = (unsafe { symbol::<*mut c_void>("PyVectorcall_Call") }) else {
        return Err(PySystemError::new_err("CPython has no PyVectorcall_Call"));
    };
    // PyO3 places the value of an object behind its head, as that of a tensor (S24).
    let offset = head::size() + T::ENTRY;
    let mut members = [
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            // Within an object.
            offset: offset as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            ..Default::default()
        },
        ffi::PyMemberDef::default(),
    ];
    let slots = [
        (ffi::Py_tp_members, members.as_mut_ptr().cast()),
        (ffi::Py_tp_call, by_tuple),
    ];
    // SAFETY: a function of this type, and members of which the last is zero.
    unsafe { derived::class(&py.get_type::<T>(), name, BY_VECTOR, &slots) }
}
