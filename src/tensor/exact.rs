//! Telling a `dlx.Tensor` by the address of its class: PyO3's own check is a call that costs as much as a borrow.

#![allow(unsafe_code, reason = "the cast that the comparison has proven")]

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::Tensor;

impl Tensor {
    /// `object`, if it is a tensor; the class cannot be derived from.
    #[inline(always)]
    pub(crate) fn of<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, Self>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let py = object.py();
        let class = CLASS.get_or_init(py, || py.get_type::<Self>().unbind());
        (object.get_type_ptr().cast() == class.as_ptr()).then(|| {
            // SAFETY: its type is the class of `Tensor`.
            unsafe { object.cast_unchecked() }
        })
    }
}
