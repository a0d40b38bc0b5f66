//! The exchange table of `dlx.Tensor`.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::Tensor;
use crate::abi::*;
use crate::error::Error;
use crate::exchange::{self, Exchange, Published};
use crate::managed::Managed;
use crate::snapshot::Snapshot;
use crate::{device, stream};

/// The table, one for the process (R114).
pub(super) static TABLE: Published = Published(exchange::table::<Tensor>());

/// The object as a tensor, or the error of a table that got another type (R127).
fn tensor<'a>(object: &'a Borrowed<'_, '_, PyAny>) -> PyResult<&'a Tensor> {
    match object.cast::<Tensor>() {
        Ok(tensor) => Ok(tensor.get()),
        Err(_) => Err(stranger(object)),
    }
}

/// Names the other type. PyO3 drops references while it finds the name, so it must know of the attachment.
#[cold]
fn stranger(object: &Bound<'_, PyAny>) -> PyErr {
    let name = || {
        object
            .get_type()
            .fully_qualified_name()
            .map(|name| name.to_string())
    };
    let name = Python::try_attach(|_| name().ok()).flatten();
    PyBufferError::new_err(format!(
        "the exchange table of dlx.Tensor was given {}",
        name.as_deref().unwrap_or("an object of another type")
    ))
}

impl Exchange for Tensor {
    fn export(object: Borrowed<'_, '_, PyAny>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        let tensor = tensor(&object)?;
        stream::for_export(None, tensor.snapshot())?;
        Ok(tensor.snapshot().export(false)?)
    }

    fn borrow(object: Borrowed<'_, '_, PyAny>) -> PyResult<DLTensor> {
        let tensor = tensor(&object)?;
        stream::for_export(None, tensor.snapshot())?;
        Ok(tensor.snapshot().dl_tensor())
    }

    fn import(py: Python<'_>, snapshot: Snapshot) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, Self::new(snapshot))?.into_any())
    }

    fn allocate(
        shape: &[i64],
        dtype: DLDataType,
        device: DLDevice,
    ) -> Result<Managed<DLManagedTensorVersioned>, Error> {
        if device != device::CPU {
            let name = device::name(device);
            let message = format!("dlx does not allocate on {name}, only on cpu");
            return Err(Error::refused(message));
        }
        Snapshot::allocate(shape, dtype, 0)?.export(true)
    }

    fn current_work_stream(device: DLDevice) -> PyResult<i64> {
        Ok(stream::current_work_stream(device))
    }
}
