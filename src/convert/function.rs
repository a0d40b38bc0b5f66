//! `convert`: converts a tensor of one library to another.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::adapters::{buffer, jax, numpy, torch};
use crate::api::entry::{FastEntry, Made, Name};
use crate::api::from_dlpack::is_tensor;
use crate::classes::mixin;
use crate::convert::deliver;
use crate::convert::source::{Options, noted, tensor_of};
use crate::convert::target::{Target, Via};
use crate::copy::request::Request;
use crate::cpython::boundary::counted;
use crate::cpython::call::attribute;
use crate::cpython::lookup::is_subtype;
use crate::cpython::modules::python;
use crate::cpython::once::intern;
use crate::cpython::vector::Arguments;
use crate::exchange::slot::{inner_of, is_mixin};
use crate::import::ladder::{from_dlpack, is_accepted};
use crate::stream;
use crate::tensor::object::Tensor;
use crate::types::device::Device;
use crate::types::error::{Shown, caused};

/// Convert ``x`` to a tensor of another library.
///
/// ``to`` is its array type (``torch.Tensor``, ``np.ndarray``, ``jax.Array``, a subclass of `ExchangeMixin`, `Tensor`),
/// its namespace (``torch``, ``jax.numpy``, one of array-api-compat), the name of either, or one of its tensors, which
/// stands for its type: the result is made by its ``__dlx_like__`` if it is an instance of `ExchangeMixin`.
///
/// The result shares the memory if the other library can describe it. If it cannot, or would let read-only memory be
/// written (that of JAX, MLX, TensorFlow and a ``pandas.Index`` is), the elements are copied, unless ``copy=False``;
/// ``copy=True`` always copies. With ``share_readonly=True`` such memory is shared all the same, and nobody may write to
/// the result. Each copy is logged by ``logging.getLogger("dlx")`` at DEBUG. A NumPy array is read-only if the producer
/// cannot tell whether its memory may be written. ``device`` is where the result must be: a name, a pair, a `Device`, or
/// a device of torch, JAX or CuPy.
///
/// ``dtype`` is anything that `DType` accepts, or a mapping: ``{"float64": "float32"}`` casts only float64. If the elements
/// are of another dtype, the other library casts them, after the conversion; if it cannot take them, their own does,
/// before. Nothing else changes a dtype. With ``detach=True`` the result is that of ``x.detach()``, where ``x``
/// has such a method: for tensors that record gradients, which are refused otherwise.
///
/// Returns ``x`` itself if it is already an instance of the type and the options do not ask for more; if they do, an
/// `ExchangeMixin` instance makes the result by its own ``__dlx_like__``. For ``np.ndarray``, instances of subclasses are
/// returned as plain views.
///
/// Raises ``TypeError`` for what is no tensor, ``BufferError`` if the other library does not accept the tensor or has no
/// such dtype, `CopyRefused` if ``copy=False`` rules out a copy that it would accept, and the exceptions of `from_dlpack`.
///
///     >>> import numpy as np
///     >>> a = np.arange(3.0)
///     >>> dlx.convert(a, dlx.Tensor)  # or torch, jax.Array, "cupy"
///     dlx.Tensor(float64[3], cpu, [0.0, 1.0, 2.0])
///     >>> dlx.convert(memoryview(a), np.ndarray, dtype="float32")
///     array([0., 1., 2.], dtype=float32)
#[pyfunction(name = "convert")]
#[inline(always)]
#[pyo3(signature = (x, /, to, *, device=None, copy=None, dtype=None, detach=false, share_readonly=false))]
#[allow(clippy::too_many_arguments, reason = "the keywords of `convert`")]
pub(crate) fn py_convert<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    dtype: Option<&Bound<'py, PyAny>>,
    detach: bool,
    share_readonly: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if let Some(dtype) = dtype {
        let how = (x, model(x, to), dtype, device, copy, detach, share_readonly);
        return python(py, "dlx._libraries.cast", "convert", how);
    }
    let asked = Options {
        device: device.map(Device::of).transpose()?,
        copy,
        share_readonly,
    };
    match detach {
        true => convert_detached(x, to, &asked),
        false => as_asked(x, to, &asked),
    }
}

/// `convert(x, to)` without keywords.
pub(crate) struct Fast;

impl FastEntry for Fast {
    const NAME: (&'static str, Name) = ("convert", Name::Convert);

    #[inline(always)]
    fn call<'py>(_module: &Bound<'py, PyAny>, arguments: Arguments<'_, 'py>) -> Option<Made> {
        let ([x, to], None) = (arguments.values, arguments.names) else {
            return None;
        };
        Some(counted(x.py(), || as_asked(x, to, &Options::default())).into())
    }
}

/// Converts `x.detach()`, where `x` has such a method; the result may still have to be cast.
pub(crate) fn convert_detached<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    as_asked(&detached(x)?, model(x, to), asked)
}

/// What the result is made like: an instance of the class keeps what it says of itself.
fn model<'a, 'py>(x: &'a Bound<'py, PyAny>, to: &'a Bound<'py, PyAny>) -> &'a Bound<'py, PyAny> {
    let class = to.cast::<PyType>().cloned();
    let class = class.unwrap_or_else(|_| to.get_type());
    match is_mixin(&class) && is_subtype(x.get_type_ptr(), &class) {
        true => x,
        false => to,
    }
}

/// What `x.detach()` returns, or `x` itself if it has no such method; of a mixin instance, what it exports is asked.
fn detached<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let inner = inner_of(x)?;
    // What is no tensor may mean something else by that name, as files do.
    if !is_tensor(&inner)? || torch::only_exports(&inner)? || torch::decides(&inner)? {
        return Ok(x.clone());
    }
    match attribute(&inner, intern!(x.py(), "detach"))? {
        Some(detach) => detach
            .call0()
            .map_err(|error| torch::explain(&inner, error)),
        None => Ok(x.clone()),
    }
}

/// Converts with these options, or a copy if only that can be a tensor; the result may still have to be cast.
#[inline(always)]
pub(crate) fn as_asked<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    match once(x, to, asked) {
        Err(error) if asked.copy.is_none() && error.is_instance_of::<PyBufferError>(x.py()) => {
            let nbytes = buffer::packed(&inner_of(x)?).ok_or(error)?;
            let copy = Some(true);
            let made = once(x, to, &Options { copy, ..*asked })?;
            deliver::log(x, nbytes, "its strides are no multiples of its itemsize")?;
            Ok(made)
        }
        Err(error)
            if error.is_instance_of::<PyAttributeError>(x.py())
                && (x.is_instance_of::<PyType>() || !is_accepted(x)?) =>
        {
            let py = x.py();
            let named = PyTypeError::new_err(Shown(error.value(py)).to_string());
            Err(caused(py, named, error.cause(py)))
        }
        found => found,
    }
}

#[inline(always)]
fn once<'py>(
    x: &Bound<'py, PyAny>,
    to: &Bound<'py, PyAny>,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    if numpy::is_class(to) {
        // The most common target skips the lookup of tables.
        return if numpy::is_ndarray(x) && asked.is_met_by(x)? {
            Ok(x.clone())
        } else {
            deliver::to_numpy(x, to, asked)
        };
    }
    make(x, &Target::of(to)?, asked)
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
    if is_one && asked.is_met_by(x)? && (x.get_type().is(class) || !torch::only_exports(x)?) {
        return Ok(x.clone());
    }
    match &target.via {
        Via::Tensor => {
            let request = Request::of(asked.device, asked.copy);
            let made = Tensor::holding(py, from_dlpack(x, &request)?)?;
            Ok(noted(made, x, class).into_any())
        }
        Via::Numpy => {
            let array = deliver::to_numpy(x, class.as_any(), asked)?;
            if array.get_type().is(class) {
                return Ok(array);
            }
            let made = deliver::viewed(&array, target)?;
            // By this a subclass carries its attributes over.
            let finalize = made.getattr(intern!(py, "__array_finalize__"))?;
            if is_one && !finalize.is_none() {
                finalize.call1((x,))?;
            }
            Ok(made)
        }
        Via::Mixin(like) => {
            let snapshot = asked.import(x, false, |device| mixin::stream_of(class, device))?;
            // An instance that is moved or copied keeps what it says of itself.
            let own = Some(x).filter(|_| is_one && is_subtype(x.get_type_ptr(), class));
            let tensor = noted(Tensor::holding(py, snapshot)?, x, class);
            mixin::make_like(class, own.or(like.as_ref()), &tensor)
        }
        Via::Table(table) => {
            if asked.is_nothing()
                && numpy::is_ndarray(x)
                && let Some(made) = deliver::array_to_table(x, target, table)?
            {
                return Ok(made);
            }
            let tensor = tensor_of(x, asked, false, |device| table.stream_of(py, device))?;
            deliver::to_table(x, noted(tensor, x, class), target, table, asked)
        }
        Via::Function(found) => {
            let fast = asked.is_nothing().then(|| numpy::fast_if_array(x));
            let tensor = match fast.flatten() {
                Some(snapshot) => Tensor::new(py, snapshot)?,
                None => tensor_of(x, asked, false, |device| stream::current(py, device))?,
            };
            let tensor = noted(tensor, x, class);
            let made = deliver::to_function(x, tensor, target, found, asked)?;
            match is_one && asked.device.is_none() && jax::is_array(x)? {
                true => jax::beside(made, x),
                false => Ok(made),
            }
        }
    }
}
