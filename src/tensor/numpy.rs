//! `Tensor.numpy`.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::abi::*;
use crate::tensor::buffer;
use crate::tensor::checked::Meta;
use crate::tensor::object::Tensor;
use crate::types::device;
use crate::types::dtype::{numpy_dtype, scalar};
use crate::types::error::caused;

/// Implements [`Tensor::numpy`].
pub(crate) fn to_numpy<'py>(slf: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let numpy = py.import("numpy")?;
    let snapshot = slf.get().snapshot()?;
    let Meta { dtype, device, .. } = snapshot.meta();
    if buffer::format(dtype).is_some() || !device::is_readable(device) {
        let view = PyMemoryView::from(slf.as_any())?;
        return numpy.call_method1("asarray", (view,));
    }
    let padded = snapshot.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
    let unknown =
        |why: &str| PyBufferError::new_err(format!("NumPy cannot represent {dtype}: {why}"));
    if dtype.lanes != 1 || (dtype.bits < 8 && !padded) {
        return Err(unknown("it has neither vectors nor packed elements"));
    }
    let stand_in = scalar(kDLUInt, dtype.bits.max(8));
    if buffer::format(stand_in).is_none() {
        return Err(unknown("it has no dtype of that size"));
    }
    let absent = || unknown("ml_dtypes does not have it, or is not installed");
    let ml_dtype = numpy_dtype(py, dtype).map_err(|error| caused(py, absent(), error))?;
    let raw = Tensor::new(py, snapshot.reinterpret(stand_in)?)?;
    to_numpy(&raw)?.call_method1("view", (ml_dtype,))
}
