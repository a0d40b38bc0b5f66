//! `convert`: converts a tensor of one library to another.

#![forbid(unsafe_code)]

use pyo3::intern;
use pyo3::prelude::*;

use crate::adapters::numpy;
use crate::classes::mixin;
use crate::convert::deliver;
use crate::convert::source::{Input, Options};
use crate::convert::target::{Target, Via};
use crate::copy::request::Request;
use crate::import::ladder::from_dlpack;
use crate::stream;
use crate::tensor::object::Tensor;
use crate::types::device::Device;

/// Convert ``x`` to a tensor of another library.
///
/// ``to`` is its array type (``torch.Tensor``, ``np.ndarray``, ``jax.Array``, a subclass of `ExchangeMixin`, `Tensor`)
/// or its namespace (``torch``, ``jax.numpy``).
///
/// The result shares the memory if the other library can describe it. If it cannot, or would not respect that the
/// memory is read-only, the elements are copied, unless ``copy=False``; ``copy=True`` always copies. A NumPy array is
/// read-only if the producer cannot tell whether its memory may be written (JAX). ``device`` is where the result must
/// be: a name, a pair or a `Device`.
///
/// Returns ``x`` itself if it is already an instance of the type and neither ``device`` nor ``copy`` asks for more. For
/// ``np.ndarray``, instances of subclasses are returned as plain views.
///
/// Raises ``BufferError`` if the other library does not accept the tensor, `CopyRefused` if ``copy=False`` rules out a
/// copy that it would accept, and the exceptions of `from_dlpack`.
#[pyfunction]
#[inline(always)]
#[pyo3(signature = (x, to, /, *, device=None, copy=None))]
pub(crate) fn convert<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let asked = Options {
        device: device.map(Device::of).transpose()?,
        copy,
    };
    if numpy::is_class(to) {
        // The most common target skips the lookup of tables.
        return if numpy::is_ndarray(x) && asked.is_met_by(x)? {
            Ok(x.clone())
        } else {
            deliver::to_numpy(x, &asked)
        };
    }
    make(x, &Target::of(to)?, &asked)
}

/// Makes an instance of the target's class.
fn make<'py>(
    x: &Bound<'py, PyAny>,
    target: &Target<'py>,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let class = &target.class;
    let is_one = match target.via {
        // A subclass of ndarray may give operators another meaning.
        Via::Numpy => x.get_type().is(class),
        _ => !numpy::is_ndarray(x) && target.is_class_of(x)?,
    };
    if is_one && asked.is_met_by(x)? {
        return Ok(x.clone());
    }
    match &target.via {
        Via::Tensor => {
            let request = Request {
                device: asked.device,
                copy: asked.copy,
                ..Request::NOTHING
            };
            Ok(Tensor::holding(py, from_dlpack(x, &request)?)?.into_any())
        }
        Via::Numpy => {
            let array = deliver::to_numpy(x, asked)?;
            if array.get_type().is(class) {
                Ok(array)
            } else {
                array.call_method1(intern!(py, "view"), (class,))
            }
        }
        Via::Mixin => {
            let snapshot = asked.import(x, |device| mixin::stream_of(class, device))?;
            mixin::import_tensor(class, &Tensor::holding(py, snapshot)?)
        }
        Via::Table(table) => {
            if asked.is_nothing()
                && numpy::is_ndarray(x)
                && let Some(made) = deliver::array_to_table(x, target, table)?
            {
                return Ok(made);
            }
            let source = Input::of(x, asked, |device| table.stream_of(py, device), false)?;
            deliver::to_table(source, target, table, asked, py)
        }
        Via::Function(function) => {
            let source = Input::of(x, asked, |device| stream::current(py, device), false)?;
            deliver::to_function(source, target, function, asked)
        }
    }
}
