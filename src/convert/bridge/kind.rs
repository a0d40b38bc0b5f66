//! The types that bridged functions meet, and those that their arguments and results become.

#![forbid(unsafe_code)]

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::cpython::once::intern;
use crate::cpython::type_map::TypeMap;

/// A map from the types that a function meets to values. Types that find no slot are asked each time.
#[pyclass(frozen, module = "dlx._core")]
pub(crate) struct Types(pub(super) TypeMap<Known, 32>);

/// A value, and the kind that it may be.
pub(super) struct Known(pub(super) Py<PyAny>, pub(super) Option<Py<Kind>>);

#[pymethods]
impl Types {
    #[new]
    pub(super) fn new() -> Self {
        Self(TypeMap::new())
    }

    /// The value for ``cls``, or None.
    fn get(&self, cls: &Bound<'_, PyType>) -> Option<Py<PyAny>> {
        Some(self.0.get(cls.as_type_ptr())?.0.clone_ref(cls.py()))
    }

    /// Add a value for ``cls``, if it has none and a slot is free.
    fn add(&self, cls: &Bound<'_, PyType>, value: &Bound<'_, PyAny>) {
        let kind = value.cast::<Kind>().ok().map(|kind| kind.clone().unbind());
        self.0.add(cls, Known(value.clone().unbind(), kind));
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for (class, Known(value, kind)) in self.0.entries() {
            visit.call(class)?;
            visit.call(value)?;
            visit.call(kind)?;
        }
        Ok(())
    }
}

/// A tensor type ``to`` that arguments or results are converted to.
///
/// ``known`` has the exact types of tensors: what is no instance of ``to``, whose bases may change, is converted.
/// ``default`` is the ``__dlx_like__`` of `ExchangeMixin`, if ``to`` is such a class.
#[pyclass(frozen, subclass, module = "dlx._core")]
pub(crate) struct Kind {
    #[pyo3(get)]
    pub(super) to: Py<PyType>,
    #[pyo3(get)]
    pub(super) known: Py<Types>,
    default: Option<Py<PyAny>>,
}

#[pymethods]
impl Kind {
    #[new]
    fn new(to: Py<PyType>, known: Py<Types>, default: Option<Py<PyAny>>) -> Self {
        Self { to, known, default }
    }

    /// Whether the class of ``x`` now has a ``__dlx_like__`` of its own, so that results are made like ``x``.
    #[inline(always)]
    pub(super) fn likes(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(default) = &self.default else {
            return Ok(false);
        };
        let hook = x.get_type().getattr(intern!(x.py(), "__dlx_like__"))?;
        Ok(!hook.is(default))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.to)?;
        visit.call(&self.default)?;
        visit.call(&self.known)
    }
}
