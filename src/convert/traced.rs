//! `convert` while a trace is on: by way of a `dlx.Tensor`, whose end is that of the result's memory.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::adapters::numpy;
use crate::convert::function;
use crate::convert::source::Options;
use crate::convert::target::{Target, Via};
use crate::stream;
use crate::tensor::object::Tensor;
use crate::tensor::trace::imported;
use crate::types::device::Device;

/// `convert`, noted.
#[pyfunction]
#[pyo3(signature = (x, to, /, *, device=None, copy=None, dtype=None, detach=false))]
pub(crate) fn convert<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    dtype: Option<&Bound<'py, PyAny>>,
    detach: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let detached = detach.then(|| function::detached(x)).transpose()?;
    let x = detached.as_ref().unwrap_or(x);
    let plain = |x: &Bound<'py, PyAny>, copy: Option<bool>| {
        let keywords = PyDict::new(py);
        keywords.set_item("device", device)?;
        keywords.set_item("copy", copy)?;
        keywords.set_item("dtype", dtype)?;
        // Through Python: a second caller that the compiler knows would change how it compiles the first.
        wrap_pyfunction!(function::py_convert, py)?.call((x, to), Some(&keywords))
    };
    let asked = Options {
        device: device.map(Device::of).transpose()?,
        copy,
        dtype: None,
    };
    if Tensor::of(x).is_some() || is_one(x, &Target::of(to)?)? && asked.is_met_by(x)? {
        return plain(x, copy);
    }
    let Ok(snapshot) = asked.import(x, |device| stream::current(py, device)) else {
        // A way without a tensor of dlx may succeed, and its error is that of an untraced call.
        return plain(x, copy);
    };
    let tensor = Tensor::holding(py, snapshot)?;
    // SAFETY: attached; a new object, and two that the caller holds.
    unsafe { imported(tensor.as_ptr(), x.as_ptr(), to.as_ptr(), "convert") };
    // If a copy was asked for, the tensor is one.
    plain(tensor.as_any(), copy.filter(|&copy| !copy))
}

/// Whether `x` may be what `convert` returns as it is.
fn is_one(x: &Bound<'_, PyAny>, target: &Target<'_>) -> PyResult<bool> {
    match target.via {
        Via::Numpy => Ok(x.get_type().is(&target.class)),
        _ => Ok(!numpy::is_ndarray(x) && target.is_class_of(x)?),
    }
}
