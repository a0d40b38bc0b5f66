//! `convert` while a trace is on: by way of a `dlx.Tensor`, whose end is that of the result's memory.

use pyo3::prelude::*;

use crate::convert::function::{make, stays};
use crate::convert::source::Options;
use crate::convert::target::Target;
use crate::stream;
use crate::tensor::object::Tensor;
use crate::tensor::trace::imported;
use crate::types::device::Device;

/// `convert`, noted.
#[pyfunction]
#[pyo3(signature = (x, to, /, *, device=None, copy=None))]
pub(crate) fn convert<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let asked = Options {
        device: device.map(Device::of).transpose()?,
        copy,
    };
    let target = Target::of(to)?;
    if stays(x, &target, &asked)? {
        return Ok(x.clone());
    }
    if Tensor::of(x).is_some() {
        return make(x, &target, &asked);
    }
    let Ok(snapshot) = asked.import(x, |device| stream::current(py, device)) else {
        // A way without a tensor of dlx may succeed, and its error is that of an untraced call.
        return make(x, &target, &asked);
    };
    let tensor = Tensor::holding(py, snapshot)?;
    // SAFETY: attached; a new object, and two that the caller holds.
    unsafe { imported(tensor.as_ptr(), x.as_ptr(), to.as_ptr(), "convert") };
    let rest = Options {
        device: asked.device,
        // It has just been made, for this call alone.
        copy: copy.filter(|&copy| !copy),
    };
    make(tensor.as_any(), &target, &rest)
}
