//! Checks TensorFlow tensors before calling their `__dlpack__`, which aborts the process if the elements are not numbers
//! (strings, variants, resources).

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::PyTypeObject;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyType};

use crate::cpython::call::attribute;
use crate::cpython::lookup::{is_in_type, reports_its_class};
use crate::cpython::modules::loaded_class;
use crate::cpython::once::intern;
use crate::types::dtype::DType;
use crate::types::error::caused;

/// Whether `class` is that of TensorFlow's eager tensors; does not import TensorFlow.
pub(crate) fn is_eager_class(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    if lacks_graph(py, class.as_type_ptr()) {
        return Ok(false);
    }
    let module = intern!(py, "tensorflow.python.framework.ops");
    let own = loaded_class(module, intern!(py, "EagerTensor"))?;
    Ok(own.is_some_and(|own| own.is(class)))
}

/// Whether `x` is a TensorFlow tensor, whatever `sys.modules` says.
///
/// # Errors
///
/// `BufferError` for one with a dtype that DLPack lacks.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    if is_foreign(x.py(), x.get_type_ptr()) {
        Ok(false)
    } else {
        of_unknown(x)
    }
}

/// Whether objects of `class` certainly are not tensors of TensorFlow: they lack what all of these have, and do not claim
/// to be of another class.
#[inline(always)]
pub(crate) fn is_foreign(py: Python<'_>, class: *mut PyTypeObject) -> bool {
    lacks_graph(py, class) && reports_its_class(py, class)
}

/// To ask CPython's cache for an attribute takes less than to find a module.
#[inline(always)]
fn lacks_graph(py: Python<'_>, class: *mut PyTypeObject) -> bool {
    is_in_type(class, intern!(py, "graph")) == Some(false)
}

/// As [`check`], for what may be one, or stand for one: its dtype is of TensorFlow's kind.
#[cold]
#[inline(never)]
fn of_unknown(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let Some(dtype) = attribute(x, intern!(py, "dtype"))? else {
        return Ok(false);
    };
    let number = attribute(&dtype, intern!(py, "as_datatype_enum"))?;
    // A mock has whatever it is asked for.
    let Some(number) = number.filter(|number| number.is_instance_of::<PyInt>()) else {
        return Ok(false);
    };
    /// The numbers of accepted dtypes, which are the same in every release (`DataType` in TensorFlow's `types.proto`): the
    /// name takes longer than the export.
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = number.extract().ok();
    let bit = number.map_or(0, |number| 1_u64.unbounded_shl(number));
    if NUMBERS.load(Ordering::Relaxed) & bit != 0 {
        return Ok(true);
    }
    let Err(error) = DType::of(&dtype) else {
        NUMBERS.fetch_or(bit, Ordering::Relaxed);
        return Ok(true);
    };
    let message = format!(
        "the TensorFlow tensor has elements of {}; expected bool, integers, floating-point or complex numbers",
        dtype.str()?
    );
    Err(caused(py, PyBufferError::new_err(message), error))
}
