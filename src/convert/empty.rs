//! `empty`: uninitialized memory from any library's allocator.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyModule, PyString, PyTuple, PyType};

use crate::api::entry::{FastEntry, Made, Name};
use crate::classes::mixin;
use crate::convert::function::as_asked;
use crate::convert::source::Options;
use crate::convert::target::{Target, Via};
use crate::copy::by_driver;
use crate::cpython::boundary::counted;
use crate::cpython::once::intern;
use crate::cpython::vector::Arguments;
use crate::exchange::Table;
use crate::import::protocol;
use crate::tensor::checked::{self, Checked, Prototype, parts};
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::tensor::trace;
use crate::types::device::{self, Device};
use crate::types::dtype::DType;
use crate::types::error::{Shown, bad_integers};
use crate::types::layout::Integers;

/// Make a tensor with uninitialized elements, which hold whatever was in the memory before.
///
/// ``shape`` is an int or a sequence of ints, in elements; ``dtype`` is anything that `DType` accepts. ``like`` is a
/// tensor, an array type, or a namespace or its name, that the result is an array of: its memory comes from the allocator
/// of the exchange table or, for an `ExchangeMixin` class, from ``__dlx_empty__``; other libraries get memory from dlx. An
/// `ExchangeMixin` instance makes the result by its ``__dlx_like__``.
/// Without ``like`` the result is a `Tensor`. ``device`` defaults to that of a tensor ``like``, else to the CPU. dlx
/// allocates CUDA and ROCm memory for work on its current stream, and frees it in the order of that stream.
///
/// With ``shared=True`` the memory is a segment of zeros that `dlx.share` passes to other processes of this host without
/// a copy, whatever ``like`` is, which has to take it as it is. Linux and the CPU only.
///
/// Raises ``ValueError`` for an invalid shape, ``BufferError`` for a dtype or device that the library does not support
/// or if there is no driver, ``MemoryError``, and other errors of the allocator; with ``shared=True`` `CopyRefused` for a
/// library that copies what it imports.
///
///     >>> dlx.empty((2, 3), "float32").shape
///     (2, 3)
///     >>> import numpy as np
///     >>> dlx.empty(4, "int8", like=np.ndarray).shape
///     (4,)
#[pyfunction]
#[inline(never)]
#[pyo3(signature = (shape, dtype, *, device=None, like=None, shared=false))]
pub(crate) fn empty<'py>(
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    like: Option<&Bound<'py, PyAny>>,
    shared: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = shape.py();
    let shape = extents(shape)?;
    let dtype = DType::of(dtype)?;
    let given = device.map(Device::of).transpose()?;
    let (target, here) = match like {
        None => (None, None),
        Some(like)
            if like.is_instance_of::<PyType>()
                || like.is_instance_of::<PyModule>()
                || like.is_instance_of::<PyString>() =>
        {
            (Some(Target::of(like)?), None)
        }
        Some(like) => (Some(Target::like(like)?), protocol::device(like)?),
    };
    let device = given.or(here).unwrap_or(device::CPU);
    // Check the shape before any allocator sees it.
    let wanted = Prototype {
        shape: &shape,
        dtype,
        device,
    };
    Checked::planned(wanted).map_err(|error| PyValueError::new_err(error.message()))?;
    let made = match target {
        _ if shared => {
            // What was read above: reading it again could give something else.
            let arguments = (PyTuple::new(py, shape)?, DType(dtype), Device(device), like);
            let door = ("share", "_empty", "dlx.empty(shared=True)");
            let empty = py.import("dlx")?.call_method1("_door", door)?;
            empty.call1(arguments)?
        }
        None => Tensor::new(py, by_driver::empty(wanted)?)?.into_any(),
        Some(target) => match &target.via {
            Via::Table(table) if table.allocator.is_some() => of_table(&target, table, wanted)?,
            Via::Mixin(like) => mixin::empty(&target.class, like.as_ref(), wanted)?,
            _ => {
                let tensor = Tensor::new(py, by_driver::empty(wanted)?)?;
                as_asked(tensor.as_any(), target.class.as_any(), &Options::default())?
            }
        },
    };
    if trace::is_on() {
        trace::begun(&made, c"empty", None, None);
    }
    Ok(made)
}

/// `empty(shape, dtype, like=)`.
pub(crate) struct Fast;

impl FastEntry for Fast {
    const NAME: (&'static str, Name) = ("empty", Name::Empty);

    #[inline(always)]
    fn call<'py>(_module: &Bound<'py, PyAny>, arguments: Arguments<'_, 'py>) -> Option<Made> {
        let ([shape, dtype, like], Some(names)) = (arguments.values, arguments.names) else {
            return None;
        };
        let py = shape.py();
        let is_usual = names.len() == 1 && names.get_borrowed_item(0).ok()?.is(intern!(py, "like"));
        let like = Some(&**like).filter(|like| !like.is_none());
        is_usual.then(|| counted(py, || empty(shape, dtype, None, like, false)).into())
    }
}

/// Allocates through a library's table, and imports the memory through the same table.
fn of_table<'py>(
    target: &Target<'py>,
    table: &Table,
    wanted: Prototype<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let class = &target.class;
    let managed = Snapshot::conforming(table.allocate(class, wanted)?)?;
    let (made, _, (shape, _)) = parts(&managed)?;
    let made = Prototype {
        shape,
        dtype: made.dtype,
        device: made.device,
    };
    if made != wanted {
        return Err(PyBufferError::new_err(format!(
            "the allocator of {} returned a {made} instead of a {wanted}",
            target.name(),
        )));
    }
    let made = table.import(class, checked::offer(managed)?)?;
    target.check(&made)?;
    Ok(made)
}

/// The extents of a shape given as an int or a sequence of ints.
fn extents(shape: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    // The usual shape; an int is tried first otherwise, and its error costs more than the tensor.
    if let Ok(shape) = shape.cast_exact::<PyTuple>() {
        let usual = |extent: &Bound<'_, PyAny>| extent.cast_exact::<PyInt>().ok()?.extract().ok();
        let extents: Option<Vec<_>> = shape.iter_borrowed().map(|extent| usual(&extent)).collect();
        if let Some(extents) = extents {
            return Ok(extents);
        }
    }
    let one = shape.extract::<i64>().map(|extent| vec![extent]);
    one.or_else(|error| match shape.is_instance_of::<PyInt>() {
        true => Err(error),
        false => shape.extract().map(|Integers(extents)| extents),
    })
    .map_err(|error| {
        let message = format!(
            "shape is {}; expected an int or a sequence of ints",
            Shown(shape)
        );
        bad_integers(shape.py(), &error, message)
    })
}
