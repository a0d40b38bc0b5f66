//! Values and names that attached threads make once, and that no fork leaves half made.
//!
//! PyO3's `PyOnceLock`, and `intern!` with it, detach inside the lock under which one thread makes the value. If another
//! thread forks then, the child has a lock that nobody opens.

#![forbid(unsafe_code)]

use std::sync::OnceLock;

use pyo3::PyTypeCheck;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::{PySequence, PyString, PyTuple};

/// A value that is kept from the first on. Threads that find none make one each, outside of any lock.
pub(crate) struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    pub(crate) fn get(&self, _py: Python<'_>) -> Option<&T> {
        self.0.get()
    }

    /// The value, or else that of `make`, which may run Python.
    #[inline]
    pub(crate) fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        match self.get(py) {
            Some(value) => value,
            None => self.keep(make()),
        }
    }

    /// As [`Once::get_or_init`]; an error is not kept.
    #[inline]
    pub(crate) fn get_or_try_init<E>(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        match self.get(py) {
            Some(value) => Ok(value),
            None => make().map(|value| self.keep(value)),
        }
    }

    #[cold]
    fn keep(&self, value: T) -> &T {
        self.0.get_or_init(|| value)
    }
}

impl<T: PyTypeCheck> Once<Py<T>> {
    /// What `module` has under `name`.
    pub(crate) fn import<'py>(
        &self,
        py: Python<'py>,
        module: &str,
        name: &str,
    ) -> PyResult<&Bound<'py, T>> {
        let import = || Ok(py.import(module)?.getattr(name)?.cast_into()?.unbind());
        let found = self.get_or_try_init(py, import);
        found.map(|found: &Py<T>| found.bind(py))
    }
}

/// A name that is made at its first use.
pub(crate) struct Interned(&'static str, Once<Py<PyString>>);

impl Interned {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self(text, Once::new())
    }

    #[inline]
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        let make = || PyString::intern(py, self.0).unbind();
        self.1.get_or_init(py, make).bind(py)
    }
}

/// The interned `str` of a literal.
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static NAME: $crate::cpython::once::Interned = $crate::cpython::once::Interned::new($text);
        NAME.get($py)
    }};
}
pub(crate) use intern;

/// Has PyO3 make those of its own locked values that dlx needs: the class with which it compares each error, that of
/// sequences, the length of iterators, and the names of what it reads from classes.
pub(crate) fn make_those_of_pyo3(py: Python<'_>) -> PyResult<()> {
    py.get_type::<PySequence>();
    let _length = PyTuple::empty(py).as_any().try_iter()?.size_hint();
    let class = py.get_type::<PanicException>();
    class.mro();
    class.module().map(drop)
}
