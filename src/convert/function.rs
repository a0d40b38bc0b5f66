//! `convert`: a tensor of one library as one of another.

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

/// ``x`` as a tensor of another library: ``to`` is its array type (``torch.Tensor``, ``np.ndarray``,
/// ``jax.Array``, a subclass of `ExchangeMixin`, `Tensor`) or its namespace (``torch``, ``jax.numpy``).
///
/// The memory is shared wherever the other library can describe it. Where it cannot, or would not respect that it
/// is read-only, the elements are copied, unless ``copy=False``; ``copy=True`` always copies. NumPy arrays over memory
/// whose producer cannot say whether it may be written (an array of JAX) are read-only. ``device`` is where
/// the result must be, as a name, a pair or a `Device`.
///
/// ``x`` itself is returned where it is an instance of the type already and nothing else is asked for; of
/// ``np.ndarray`` only arrays of that very class are, others are viewed as one.
///
/// Raises ``BufferError`` for what the other library does not take, `CopyRefused` where ``copy=False`` rules out
/// the copy that it would take, and what `from_dlpack` raises.
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
        // The usual target, without a look at what is remembered.
        return if numpy::is_ndarray(x) && asked.is_met_by(x)? {
            Ok(x.clone())
        } else {
            deliver::to_numpy(x, &asked)
        };
    }
    make(x, &Target::of(to)?, &asked)
}

/// An instance of what `target` is.
fn make<'py>(
    x: &Bound<'py, PyAny>,
    target: &Target<'py>,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let class = &target.class;
    let is_one = match target.via {
        // A subclass of an array may mean something else by its operators.
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
