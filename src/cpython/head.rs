//! The head of Python objects, which stable ABIs for builds without a GIL do not describe.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyAny;

/// Whether the size of a head is known only at run time.
pub(crate) const IS_OPAQUE: bool = size_of::<ffi::PyObject>() == 0;

/// What a head is a multiple of where it is opaque: CPython places what follows for `max_align_t`.
pub(crate) const ALIGNMENT: usize = 16;

static SIZE: AtomicUsize = AtomicUsize::new(0);

/// The size of a head: a constant, unless it is opaque. Then [`find`] must have been called.
#[inline(always)]
pub(crate) fn size() -> usize {
    if IS_OPAQUE {
        SIZE.load(Ordering::Relaxed)
    } else {
        size_of::<ffi::PyObject>()
    }
}

/// Asks CPython for the size of a head, if it is opaque.
pub(crate) fn find(py: Python<'_>) -> PyResult<()> {
    if IS_OPAQUE {
        let size: usize = py.get_type::<PyAny>().getattr("__basicsize__")?.extract()?;
        SIZE.store(size.next_multiple_of(ALIGNMENT), Ordering::Relaxed);
    }
    Ok(())
}

/// Whether a head has more than a count and a type, as in free-threaded builds.
pub(crate) fn is_free_threaded() -> bool {
    size() > 2 * size_of::<usize>()
}
