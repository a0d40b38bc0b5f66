//! The fast entry of `Tensor.__dlpack__`, with the usual keywords or none.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::api::entry::{FastEntry, Made, Name, set_on_class};
use crate::cpython::once::intern;
use crate::cpython::vector::Arguments;
use crate::tensor::capsule;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::dtype;
use crate::types::error::unseen;

/// Installs the entry `__dlpack__` on the class `Tensor`.
pub(crate) fn set(py: Python<'_>) -> PyResult<()> {
    // Only a bound method reveals its C function.
    let sample = Tensor::new(py, Snapshot::allocate(&[0], dtype::BYTE, 0)?)?;
    set_on_class::<Dlpack>(&sample)
}

/// `tensor.__dlpack__(**keywords)` of a tensor without streams, for a capsule without a copy.
struct Dlpack;

impl FastEntry for Dlpack {
    const NAME: (&'static str, Name) = ("__dlpack__", Name::Dlpack);

    #[inline(always)]
    fn call<'py>(tensor: &Bound<'py, PyAny>, arguments: Arguments<'_, 'py>) -> Option<Made> {
        let py = tensor.py();
        let tensor = Tensor::of(tensor)?.get();
        if arguments.positional != 0 {
            return None;
        }
        let mut versioned = false;
        let names = arguments.names.as_deref();
        for (index, value) in arguments.values.iter().enumerate() {
            let name = names?.get_borrowed_item(index).ok()?;
            if name.is(intern!(py, "max_version")) {
                // The minor version decides nothing.
                versioned = capsule::is_versioned(Some((major(value)?, 0)));
            } else if !value.is_none() || !is_known(py, &name) {
                return None;
            }
        }
        let snapshot = tensor.fast_snapshot()?;
        Some(capsule::of(py, snapshot, versioned, false).into())
    }
}

/// Whether `name` is a keyword of `__dlpack__` other than `max_version`.
fn is_known(py: Python<'_>, name: &Bound<'_, PyAny>) -> bool {
    name.is(intern!(py, "copy"))
        || name.is(intern!(py, "dl_device"))
        || name.is(intern!(py, "stream"))
}

/// The major version in a pair.
fn major(version: &Bound<'_, PyAny>) -> Option<i64> {
    let version = version.cast_exact::<PyTuple>().ok()?;
    let major = version.get_borrowed_item(0).ok()?;
    (version.len() == 2).then(|| major.extract().map_err(unseen).ok())?
}
