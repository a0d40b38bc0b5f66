//! `convert` while a trace is on: by way of a `dlx.Tensor`, whose end is that of the result's memory.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::adapters::numpy;
use crate::convert::function;
use crate::convert::source::Options;
use crate::convert::target::{Target, Via};
use crate::exchange::slot::is_mixin;
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
    let plain = |x: &Bound<'py, PyAny>, copy: Option<bool>, detach: bool| {
        let keywords = PyDict::new(py);
        keywords.set_item("device", device)?;
        keywords.set_item("copy", copy)?;
        keywords.set_item("dtype", dtype)?;
        keywords.set_item("detach", detach)?;
        // Through Python: a second caller that the compiler knows would change how it compiles the first.
        wrap_pyfunction!(function::py_convert, py)?.call((x, to), Some(&keywords))
    };
    let by_tensor = || {
        let detached = detach.then(|| function::detached(x)).transpose()?;
        let x = detached.as_ref().unwrap_or(x);
        let asked = Options {
            device: device.map(Device::of).transpose()?,
            copy,
            dtype: None,
        };
        let target = Target::of(to)?;
        // What `convert` may return as it is, and what may make the result itself.
        let is_kept = match target.via {
            Via::Numpy => x.get_type().is(&target.class) && asked.is_met_by(x)?,
            Via::Mixin(_) => is_mixin(&x.get_type()),
            _ => !numpy::is_ndarray(x) && target.is_class_of(x)? && asked.is_met_by(x)?,
        };
        if is_kept || Tensor::of(x).is_some() {
            return Ok(None);
        }
        let snapshot = asked.import(x, |device| stream::current(py, device))?;
        let tensor = Tensor::holding(py, snapshot)?;
        // SAFETY: attached; a new object, and two that the caller holds.
        unsafe {
            imported(
                tensor.as_ptr(),
                x.as_ptr(),
                target.class.as_ptr(),
                "convert",
            )
        };
        // If a copy was asked for, the tensor is one.
        plain(tensor.as_any(), copy.filter(|&copy| !copy), false).map(Some)
    };
    match by_tensor() {
        Ok(Some(made)) => Ok(made),
        // A way without a tensor of dlx may succeed, and its error is that of an untraced call.
        Err(error) if !error.is_instance_of::<PyException>(py) => Err(error),
        Ok(None) | Err(_) => plain(x, copy, detach),
    }
}
