//! PyO3's prelude, with dlx's own methods of `PyAny`: those that may run Python code.
//!
//! PyO3 declares CPython's functions as unable to unwind, so the methods here call them by `cpython/unwind.rs`. A lint
//! (`clippy.toml`) forbids PyO3's.

use std::ffi::c_int;
use std::fmt;
use std::ptr::null_mut;
use std::sync::OnceLock;

use pyo3::exceptions::{PyAttributeError, PyException};
use pyo3::type_object::{PyTypeCheck, PyTypeInfo};
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use pyo3::{BoundObject, IntoPyObjectExt, ffi, intern};

use crate::cpython::interpreter::unraisable;
use crate::cpython::symbol::symbol;
use crate::cpython::unwind::{cpython, cpython2, cpython3, stopping};

pub(crate) use pyo3::prelude::*;

/// A name of an attribute.
pub(crate) trait Name<'py>: IntoPyObject<'py, Target = PyString> {}

impl<'py, N: IntoPyObject<'py, Target = PyString>> Name<'py> for N {}

/// Arguments of a call.
pub(crate) trait Arguments<'py>: IntoPyObject<'py, Target = PyTuple> {}

impl<'py, A: IntoPyObject<'py, Target = PyTuple>> Arguments<'py> for A {}

/// The methods of PyO3's trait that dlx uses.
pub(crate) trait PyAnyMethods<'py> {
    fn is<T: AsRef<Py<PyAny>>>(&self, other: T) -> bool;
    fn is_none(&self) -> bool;
    fn is_callable(&self) -> bool;
    fn is_instance_of<T: PyTypeCheck>(&self) -> bool;
    fn is_exact_instance_of<T: PyTypeInfo>(&self) -> bool;
    fn get_type(&self) -> Bound<'py, PyType>;
    fn get_type_ptr(&self) -> *mut ffi::PyTypeObject;
    fn extract<'a, T: FromPyObject<'a, 'py>>(&'a self) -> Result<T, T::Error>;

    fn getattr(&self, name: impl Name<'py>) -> PyResult<Bound<'py, PyAny>>;
    fn getattr_opt(&self, name: impl Name<'py>) -> PyResult<Option<Bound<'py, PyAny>>>;
    fn hasattr(&self, name: impl Name<'py>) -> PyResult<bool>;
    fn setattr(&self, name: impl Name<'py>, value: impl IntoPyObject<'py>) -> PyResult<()>;
    fn delattr(&self, name: impl Name<'py>) -> PyResult<()>;

    fn call(
        &self,
        arguments: impl Arguments<'py>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>>;
    fn call0(&self) -> PyResult<Bound<'py, PyAny>>;
    fn call1(&self, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>>;
    fn call_method(
        &self,
        name: impl Name<'py>,
        arguments: impl Arguments<'py>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>>;
    fn call_method0(&self, name: impl Name<'py>) -> PyResult<Bound<'py, PyAny>>;
    fn call_method1(
        &self,
        name: impl Name<'py>,
        arguments: impl Arguments<'py>,
    ) -> PyResult<Bound<'py, PyAny>>;

    fn is_truthy(&self) -> PyResult<bool>;
    fn is_instance(&self, class: &Bound<'py, PyAny>) -> PyResult<bool>;
    fn eq(&self, other: impl IntoPyObject<'py>) -> PyResult<bool>;
    fn contains(&self, value: impl IntoPyObject<'py>) -> PyResult<bool>;
    fn hash(&self) -> PyResult<isize>;
    fn index(&self) -> PyResult<Bound<'py, PyAny>>;
    fn len(&self) -> PyResult<usize>;
    fn repr(&self) -> PyResult<Bound<'py, PyString>>;
    fn str(&self) -> PyResult<Bound<'py, PyString>>;
    fn get_item(&self, key: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>>;
    fn try_iter(&self) -> PyResult<Items<'py>>;
}

impl<'py> PyAnyMethods<'py> for Bound<'py, PyAny> {
    #[inline(always)]
    fn is<T: AsRef<Py<PyAny>>>(&self, other: T) -> bool {
        pyo3::types::PyAnyMethods::is(self, other)
    }

    #[inline(always)]
    fn is_none(&self) -> bool {
        pyo3::types::PyAnyMethods::is_none(self)
    }

    #[inline(always)]
    fn is_callable(&self) -> bool {
        pyo3::types::PyAnyMethods::is_callable(self)
    }

    #[inline(always)]
    fn is_instance_of<T: PyTypeCheck>(&self) -> bool {
        pyo3::types::PyAnyMethods::is_instance_of::<T>(self)
    }

    #[inline(always)]
    fn is_exact_instance_of<T: PyTypeInfo>(&self) -> bool {
        pyo3::types::PyAnyMethods::is_exact_instance_of::<T>(self)
    }

    #[inline(always)]
    fn get_type(&self) -> Bound<'py, PyType> {
        pyo3::types::PyAnyMethods::get_type(self)
    }

    #[inline(always)]
    fn get_type_ptr(&self) -> *mut ffi::PyTypeObject {
        pyo3::types::PyAnyMethods::get_type_ptr(self)
    }

    #[inline(always)]
    fn extract<'a, T: FromPyObject<'a, 'py>>(&'a self) -> Result<T, T::Error> {
        pyo3::types::PyAnyMethods::extract(self)
    }

    fn getattr(&self, name: impl Name<'py>) -> PyResult<Bound<'py, PyAny>> {
        let name = name.into_pyobject_or_pyerr(self.py())?;
        computed(self, &name.as_borrowed())
    }

    fn getattr_opt(&self, name: impl Name<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let name = name.into_pyobject_or_pyerr(self.py())?;
        optional(self, &name.as_borrowed())
    }

    fn hasattr(&self, name: impl Name<'py>) -> PyResult<bool> {
        Ok(self.getattr_opt(name)?.is_some())
    }

    fn setattr(&self, name: impl Name<'py>, value: impl IntoPyObject<'py>) -> PyResult<()> {
        let value = value.into_pyobject_or_pyerr(self.py())?;
        set_attribute(self, name, value.as_ptr())
    }

    fn delattr(&self, name: impl Name<'py>) -> PyResult<()> {
        set_attribute(self, name, null_mut())
    }

    fn call(
        &self,
        arguments: impl Arguments<'py>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = arguments.into_pyobject_or_pyerr(self.py())?;
        called(self, &arguments.as_borrowed(), keywords)
    }

    fn call0(&self) -> PyResult<Bound<'py, PyAny>> {
        self.call1(PyTuple::empty(self.py()))
    }

    fn call1(&self, arguments: impl Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.call(arguments, None)
    }

    fn call_method(
        &self,
        name: impl Name<'py>,
        arguments: impl Arguments<'py>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.getattr(name)?.call(arguments, keywords)
    }

    fn call_method0(&self, name: impl Name<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.getattr(name)?.call0()
    }

    fn call_method1(
        &self,
        name: impl Name<'py>,
        arguments: impl Arguments<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.call_method(name, arguments, None)
    }

    #[inline(never)]
    fn is_truthy(&self) -> PyResult<bool> {
        let is = cpython(ffi::PyObject_IsTrue);
        // SAFETY: attached, with a live object.
        let answer = stopping(|| unsafe { is(self.as_ptr()) });
        Ok(checked(self.py(), answer as isize)? != 0)
    }

    #[inline(never)]
    fn is_instance(&self, class: &Bound<'py, PyAny>) -> PyResult<bool> {
        let is = cpython2(ffi::PyObject_IsInstance);
        // SAFETY: attached, with live objects.
        let answer = stopping(|| unsafe { is(self.as_ptr(), class.as_ptr()) });
        Ok(checked(self.py(), answer as isize)? != 0)
    }

    fn eq(&self, other: impl IntoPyObject<'py>) -> PyResult<bool> {
        let other = other.into_pyobject_or_pyerr(self.py())?;
        let compare = cpython3(ffi::PyObject_RichCompare);
        // SAFETY: attached, with live objects.
        let made = stopping(|| unsafe { compare(self.as_ptr(), other.as_ptr(), ffi::Py_EQ) });
        // SAFETY: a new reference, or NULL with an exception.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), made) }?.is_truthy()
    }

    fn contains(&self, value: impl IntoPyObject<'py>) -> PyResult<bool> {
        let value = value.into_pyobject_or_pyerr(self.py())?;
        let contains = cpython2(ffi::PySequence_Contains);
        // SAFETY: attached, with live objects.
        let answer = stopping(|| unsafe { contains(self.as_ptr(), value.as_ptr()) });
        Ok(checked(self.py(), answer as isize)? != 0)
    }

    fn hash(&self) -> PyResult<isize> {
        let hash = cpython(ffi::PyObject_Hash);
        // SAFETY: attached, with a live object.
        checked(self.py(), stopping(|| unsafe { hash(self.as_ptr()) }))
    }

    #[inline(never)]
    fn index(&self) -> PyResult<Bound<'py, PyAny>> {
        let index = cpython(ffi::PyNumber_Index);
        // SAFETY: attached, with a live object.
        let made = stopping(|| unsafe { index(self.as_ptr()) });
        // SAFETY: a new reference, or NULL with an exception.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), made) }
    }

    #[inline(never)]
    fn len(&self) -> PyResult<usize> {
        let len = cpython(ffi::PyObject_Size);
        // SAFETY: attached, with a live object.
        let answer = stopping(|| unsafe { len(self.as_ptr()) });
        Ok(checked(self.py(), answer)? as usize)
    }

    #[inline(never)]
    fn repr(&self) -> PyResult<Bound<'py, PyString>> {
        let repr = cpython(ffi::PyObject_Repr);
        // SAFETY: attached, with a live object.
        let made = stopping(|| unsafe { repr(self.as_ptr()) });
        // SAFETY: a new reference, or NULL with an exception.
        Ok(unsafe { Bound::from_owned_ptr_or_err(self.py(), made) }?.cast_into()?)
    }

    #[inline(never)]
    fn str(&self) -> PyResult<Bound<'py, PyString>> {
        let str = cpython(ffi::PyObject_Str);
        // SAFETY: attached, with a live object.
        let made = stopping(|| unsafe { str(self.as_ptr()) });
        // SAFETY: a new reference, or NULL with an exception.
        Ok(unsafe { Bound::from_owned_ptr_or_err(self.py(), made) }?.cast_into()?)
    }

    fn get_item(&self, key: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>> {
        let key = key.into_pyobject_or_pyerr(self.py())?;
        let get = cpython2(ffi::PyObject_GetItem);
        // SAFETY: attached, with live objects.
        let found = stopping(|| unsafe { get(self.as_ptr(), key.as_ptr()) });
        // SAFETY: a new reference, or NULL with an exception.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), found) }
    }

    fn try_iter(&self) -> PyResult<Items<'py>> {
        let iter = cpython(ffi::PyObject_GetIter);
        // SAFETY: attached, with a live object.
        let made = stopping(|| unsafe { iter(self.as_ptr()) });
        // SAFETY: a new reference, or NULL with an exception.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), made) }.map(Items)
    }
}

/// An attribute, or `None`.
#[inline(never)]
fn optional<'py>(
    x: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(get) = get_optional_attr() else {
        return without_optional(x, name);
    };
    let mut found = null_mut();
    // SAFETY: both objects are live, the thread is attached, and `found` is a local.
    match stopping(|| unsafe { get(x.as_ptr(), name.as_ptr(), &mut found) }) {
        0 => Ok(None),
        // SAFETY: a new reference, or NULL with an exception.
        _ => unsafe { Bound::from_owned_ptr_or_err(x.py(), found) }.map(Some),
    }
}

/// An attribute, which may be computed.
#[inline(never)]
fn computed<'py>(
    x: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    stored(x, name)
}

/// An attribute, inlined for what reads one that is stored.
#[inline(always)]
pub(crate) fn stored<'py>(
    x: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let get = cpython2(ffi::PyObject_GetAttr);
    // SAFETY: attached, with live objects.
    let found = stopping(|| unsafe { get(x.as_ptr(), name.as_ptr()) });
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(x.py(), found) }
}

#[inline(never)]
fn called<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let call = cpython3(ffi::PyObject_Call);
    let keywords = keywords.map_or(null_mut(), Bound::as_ptr);
    // SAFETY: attached; the objects are live, and NULL means no keywords.
    let made = stopping(|| unsafe { call(function.as_ptr(), arguments.as_ptr(), keywords) });
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), made) }
}

/// `PyObject_GetOptionalAttr`, which creates no `AttributeError` for a missing attribute, as able to unwind.
type GetOptionalAttr = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut *mut ffi::PyObject,
) -> c_int;

/// The function of this interpreter, outside the stable ABI of 3.11 (S23, CPython's functions, in `docs/safety.md`).
fn get_optional_attr() -> Option<GetOptionalAttr> {
    static GET: OnceLock<Option<GetOptionalAttr>> = OnceLock::new();
    *GET.get_or_init(|| {
        // SAFETY: `PyObject_GetOptionalAttr` has had this signature since CPython 3.13, and its predecessor since 3.7
        // (S23).
        unsafe { symbol("PyObject_GetOptionalAttr") }
            // SAFETY: as above.
            .or_else(|| unsafe { symbol("_PyObject_LookupAttr") })
    })
}

/// An attribute, or `None`, where CPython has no function for that.
#[cold]
fn without_optional<'py>(
    x: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match x.getattr(name) {
        Err(error) if error.is_instance_of::<PyAttributeError>(x.py()) => Ok(None),
        found => found.map(Some),
    }
}

/// Sets an attribute; deletes it if the value is NULL.
fn set_attribute<'py>(
    x: &Bound<'py, PyAny>,
    name: impl Name<'py>,
    value: *mut ffi::PyObject,
) -> PyResult<()> {
    let name = name.into_pyobject_or_pyerr(x.py())?;
    let set = cpython3(ffi::PyObject_SetAttr);
    // SAFETY: attached; the object, the name, and the value if there is one are live.
    let answer = stopping(|| unsafe { set(x.as_ptr(), name.as_ptr(), value) });
    checked(x.py(), answer as isize).map(drop)
}

/// The answer of a function that returns -1 with an exception.
fn checked(py: Python<'_>, answer: isize) -> PyResult<isize> {
    match answer {
        -1 => Err(PyErr::fetch(py)),
        answer => Ok(answer),
    }
}

/// An object whose text is a part of a message.
pub(crate) struct Shown<'a, 'py>(pub(crate) &'a Bound<'py, PyAny>);

impl fmt::Display for Shown<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.str() {
            Ok(text) => f.write_str(&text.to_string_lossy()),
            Err(error) => {
                let py = self.0.py();
                // What it raises says nothing of what the message is about; an interrupt is not lost in silence.
                if !error.is_instance_of::<PyException>(py) {
                    unraisable(py, error);
                }
                f.write_str("<an object that str() refuses>")
            }
        }
    }
}

/// What an iterator gives.
pub(crate) struct Items<'py>(Bound<'py, PyAny>);

impl<'py> Iterator for Items<'py> {
    type Item = PyResult<Bound<'py, PyAny>>;

    fn next(&mut self) -> Option<Self::Item> {
        let py = self.0.py();
        let next = cpython(ffi::PyIter_Next);
        // SAFETY: attached, with an iterator.
        let found = stopping(|| unsafe { next(self.0.as_ptr()) });
        // SAFETY: a new reference, or NULL at the end or with an exception.
        match unsafe { Bound::from_owned_ptr_or_opt(py, found) } {
            Some(item) => Some(Ok(item)),
            None => PyErr::take(py).map(Err),
        }
    }
}

/// The module that a class names. Its own class may answer for it, by any code.
pub(crate) fn module_of<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyString>> {
    Ok(class
        .getattr(intern!(class.py(), "__module__"))?
        .cast_into()?)
}

/// Imports a module, or finds it if it is there.
pub(crate) fn import_module<'py>(
    py: Python<'py>,
    name: impl Name<'py>,
) -> PyResult<Bound<'py, PyModule>> {
    let name = name.into_pyobject_or_pyerr(py)?;
    let import = cpython(ffi::PyImport_Import);
    // SAFETY: attached, with a live string.
    let found = stopping(|| unsafe { import(name.as_ptr()) });
    // SAFETY: a new reference, or NULL with an exception.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, found) }?.cast_into()?)
}
