//! Descriptors, mappings and names of shared memory, each owned by a Python object from the call that makes it.
//!
//! A signal handler of Python may raise between any two bytecodes. What it interrupts here ends with its object, and no
//! number of a descriptor or an address is in Python's hands without one. Linux only.

mod descriptor;
pub(crate) mod file;
pub(crate) mod link;
pub(crate) mod mapping;
mod message;
mod segment;

use std::io;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// `OSError` as Python raises it: of the class for its number, with the kernel's words.
fn os_error(py: Python<'_>, error: &io::Error) -> PyErr {
    let number = error.raw_os_error().unwrap_or(libc::EIO);
    let words = py
        .import("os")
        .and_then(|os| os.call_method1("strerror", (number,))?.extract::<String>());
    match words {
        Ok(words) => PyOSError::new_err((number, words)),
        Err(error) => error,
    }
}
