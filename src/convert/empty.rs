//! `empty`: uninitialized memory of any library's allocator.

#![forbid(unsafe_code)]

use std::ptr::NonNull;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyType};

use crate::abi::*;
use crate::classes::mixin;
use crate::convert::function::convert;
use crate::convert::target::{Target, Via};
use crate::copy::by_driver;
use crate::exchange::Table;
use crate::import::protocol;
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::device::Device;
use crate::types::dtype;
use crate::types::dtype::DType;
use crate::types::error::bad_integers;

/// A tensor whose elements are not initialized: they hold whatever was in the memory before.
///
/// ``shape`` is an int or a sequence of ints, ``dtype`` whatever `DType` takes. ``like`` is a tensor, an array type or
/// a namespace whose kind the result is, from the allocator of its exchange table, or from ``__dlx_empty__`` of an
/// `ExchangeMixin` class; other libraries get memory of dlx's own. Without it the result is a `Tensor`.
/// ``device`` is that of the tensor ``like``, or else the CPU. Memory of dlx's own on CUDA and ROCm is there for work on
/// dlx's current stream, and is freed in its order.
///
/// Raises ``ValueError`` for a shape that cannot be, ``BufferError`` for a dtype or a device that the library does not
/// have or where there is no driver, ``MemoryError``, and what else its allocator reports, by name.
#[pyfunction]
#[pyo3(signature = (shape, dtype, *, device=None, like=None))]
pub(crate) fn empty<'py>(
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    like: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = shape.py();
    let shape = extents(shape)?;
    let dtype = DType::of(dtype)?;
    let given = device.map(Device::of).transpose()?;
    let (class, here) = match like {
        None => (None, None),
        Some(like) if like.is_instance_of::<PyType>() || like.is_instance_of::<PyModule>() => {
            (Some(like.clone()), None)
        }
        Some(like) => (Some(like.get_type().into_any()), protocol::device(like)?),
    };
    let device = given.or(here).unwrap_or(device::CPU);
    // No allocator is asked for what no tensor can be.
    let meta = Meta {
        device,
        ..Meta::on_cpu(NonNull::dangling().as_ptr(), dtype, 0)
    };
    Checked::new(meta, &shape, None).map_err(|error| PyValueError::new_err(error.message()))?;
    let Some(class) = class else {
        let snapshot = by_driver::empty(&shape, dtype, device)?;
        return Ok(Tensor::new(py, snapshot)?.into_any());
    };
    let target = Target::of(&class)?;
    match &target.via {
        Via::Table(table) if table.allocates() => of_table(&target, table, &shape, dtype, device),
        Via::Mixin => mixin::empty(&target.class, &shape, dtype, device),
        _ => {
            let tensor = Tensor::new(py, by_driver::empty(&shape, dtype, device)?)?;
            convert(tensor.as_any(), target.class.as_any(), None, None)
        }
    }
}

/// Memory of a library's own allocator, as an object that the same table makes.
fn of_table<'py>(
    target: &Target<'py>,
    table: &Table,
    shape: &[i64],
    dtype: DLDataType,
    device: DLDevice,
) -> PyResult<Bound<'py, PyAny>> {
    let class = &target.class;
    let managed = table.allocate(class, shape, dtype, device)?;
    let snapshot = Snapshot::import(managed, None).map_err(|(error, _)| error)?;
    let meta = snapshot.meta();
    if (snapshot.shape(), meta.dtype, meta.device) != (shape, dtype, device) {
        return Err(PyBufferError::new_err(format!(
            "the allocator of {} gave a {}{:?} on {} in place of a {}{shape:?} on {}",
            target.name(),
            dtype::name(meta.dtype),
            snapshot.shape(),
            device::name(meta.device),
            dtype::name(dtype),
            device::name(device),
        )));
    }
    let made = table.import(class, snapshot.offer(true)?)?;
    target.check(&made)?;
    Ok(made)
}

/// The extents of an int or a sequence of ints.
fn extents(shape: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    let one = shape.extract::<i64>().map(|extent| vec![extent]);
    one.or_else(|_| shape.extract()).map_err(|error| {
        let message = format!("shape is {shape}: an int or a sequence of ints is accepted");
        bad_integers(shape.py(), &error, message)
    })
}
