//! `dlx.Pointer`: the address of a tensor, as Triton takes it.

#![forbid(unsafe_code)]

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::api::from_dlpack::from_dlpack;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::device::Device;
use crate::types::dtype::DType;
use crate::types::error::Error;

/// The address of a tensor, which it holds, with its dtype and device.
///
/// That is what Triton's kernels take. Made by `as_pointer` and by `launcher` with ``give="pointer"``, whose pointers
/// end with the call.
#[pyclass(frozen, weakref, module = "dlx._core")]
pub(crate) struct Pointer {
    tensor: Py<Tensor>,
}

impl Pointer {
    /// A pointer to the elements of `tensor`.
    pub(super) fn new<'py>(tensor: Bound<'py, Tensor>) -> PyResult<Bound<'py, Self>> {
        let py = tensor.py();
        let tensor = tensor.unbind();
        Bound::new(py, Self { tensor })
    }
}

#[pymethods]
impl Pointer {
    /// Address of the first element; 0 if there are no elements.
    ///
    /// Raises ``BufferError`` after the call that it was made for, and if the tensor lies inside of a buffer object.
    fn data_ptr(&self) -> PyResult<usize> {
        Ok(address(self.tensor.get().snapshot()?)?)
    }

    /// Type of one element; its ``str`` is the name that Triton knows.
    #[getter]
    fn dtype(&self) -> DType {
        DType(self.tensor.get().described().meta().dtype)
    }

    /// Device that the memory is on.
    #[getter]
    fn device(&self) -> Device {
        Device(self.tensor.get().device())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("dlx.Pointer to {}", self.tensor.bind(py).repr()?))
    }

    /// The tensor may hold an object that refers back to this one.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tensor)
    }
}

/// The address of the first element, or the handle of the buffer object that begins with it.
///
/// # Errors
///
/// `BufferError` if the first element lies inside of a buffer object, which no handle says.
pub(super) fn address(snapshot: &Snapshot) -> Result<usize, Error> {
    let meta = snapshot.meta();
    match meta.byte_offset {
        0 => Ok(meta.data.addr()),
        bytes => Err(Error::refused(format!(
            "the tensor begins {bytes} bytes inside of a buffer object, which has no address; use dlx.borrow"
        ))),
    }
}

/// Import ``x`` as a `Pointer`, which holds its memory.
///
/// ``stream`` is the one that the pointer will be used on, as in `from_dlpack`; it waits for the producer's. The memory
/// goes back when the pointer is gone, and ``stream`` is done with it.
///
/// A pointer says nothing of strides, and nothing of memory that must not be written to: a kernel that takes it as its
/// own argument checks neither. `launcher` does, and makes the producer wait for what was launched.
///
/// Raises the exceptions of `from_dlpack`.
#[pyfunction]
#[pyo3(signature = (x, /, stream=None))]
pub(crate) fn as_pointer<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, Pointer>> {
    let tensor = from_dlpack(x, None, None, stream, "auto")?;
    address(tensor.get().snapshot()?)?;
    Pointer::new(tensor)
}
