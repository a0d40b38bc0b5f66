//! `convert`: a tensor of one library as one of another.

#![forbid(unsafe_code)]

pub(crate) mod bridge;
pub(crate) mod empty;

mod deliver;
mod target;

use pyo3::intern;
use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::numpy;
use crate::classes::{mixin, no_sync_export};
use crate::copy::request::Request;
use crate::exchange::slot::is_mixin;
use crate::import::ladder::from_dlpack;
use crate::import::protocol;
use crate::import::protocol::Usual;
use crate::stream;
use crate::stream::Stream;
use crate::stream::release::Release;
use crate::tensor::checked::parts;
use crate::tensor::managed::Managed;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::device::Device;
pub(crate) use target::{Target, Via};

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
    let asked = Asked {
        device: device.map(Device::of).transpose()?,
        copy,
    };
    if numpy::is_class(to) {
        // The usual target, without a look at what is remembered.
        return match numpy::is_ndarray(x) && asked.is_met_by(x)? {
            true => Ok(x.clone()),
            false => deliver::to_numpy(x, &asked),
        };
    }
    make(x, &Target::of(to)?, &asked)
}

/// What the caller asked for.
pub(crate) struct Asked {
    pub(crate) device: Option<DLDevice>,
    pub(crate) copy: Option<bool>,
}

impl Asked {
    fn is_nothing(&self) -> bool {
        self.device.is_none() && self.copy.is_none()
    }

    /// Whether `x`, whose type is right, need not be converted.
    fn is_met_by(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.copy != Some(true)
            && match self.device {
                None => true,
                there => protocol::device(x)? == there,
            })
    }

    /// The tensor of `x`, ready on the stream that the other library works on.
    fn import(
        &self,
        x: &Bound<'_, PyAny>,
        stream_of: impl Fn(DLDevice) -> PyResult<i64>,
    ) -> PyResult<Snapshot> {
        let request = Request {
            device: self.device,
            copy: self.copy,
            stream_of: Some(&stream_of),
            release: Release::None,
            ..Request::NOTHING
        };
        from_dlpack(x, &request)
    }
}

/// A tensor on its way.
enum Source<'py> {
    /// As the producer's own library exports it, on the CPU.
    Managed(Managed<DLManagedTensorVersioned>),
    /// As dlx holds it; `fresh` if nobody else does.
    Tensor {
        tensor: Bound<'py, Tensor>,
        fresh: bool,
    },
}

impl<'py> Source<'py> {
    /// The tensor of `x`, ready on the stream of its device that `stream_of` tells; for `any_stream` it will be used on
    /// the CPU or not at all.
    fn of(
        x: &Bound<'py, PyAny>,
        asked: &Asked,
        stream_of: impl Fn(DLDevice) -> PyResult<i64>,
        any_stream: bool,
    ) -> PyResult<Self> {
        let asks_nothing = asked.device.is_none() && asked.copy != Some(true);
        if asks_nothing && let Some(tensor) = Tensor::of(x) {
            let snapshot = tensor.get().snapshot()?;
            if snapshot.work().is_some() {
                let device = snapshot.memo().device;
                snapshot.order(&Stream::of_table(stream_of(device)?, device))?;
            }
            let tensor = tensor.clone();
            return Ok(Self::Tensor {
                tensor,
                fresh: false,
            });
        }
        let direct = match asks_nothing {
            true => no_sync_export::direct(x, &stream_of, any_stream)?,
            false => None,
        };
        match direct {
            Some(Usual::Managed(managed)) => {
                let (tensor, flags, _) = parts(&managed)?;
                let copied = flags & DLPACK_FLAG_BITMASK_IS_COPIED != 0;
                // What is on a device with streams has to be ordered; what is a copy may have to be refused.
                let again = stream::has_streams(tensor.device) || (copied && asked.copy.is_some());
                if !again {
                    return Ok(Self::Managed(managed));
                }
            }
            Some(Usual::Snapshot(snapshot)) => {
                return Ok(Self::Tensor {
                    tensor: Tensor::new(x.py(), snapshot)?,
                    fresh: true,
                });
            }
            None => {}
        }
        let snapshot = asked.import(x, stream_of)?;
        // What a producer exports is made for this, what dlx holds is shared (R38).
        let held = Tensor::of(x).is_some() || is_mixin(&x.get_type());
        Ok(Self::Tensor {
            tensor: Tensor::new(x.py(), snapshot)?,
            fresh: asked.copy == Some(true) || !held,
        })
    }

    /// As a `dlx.Tensor`.
    fn into_tensor(self, py: Python<'py>) -> PyResult<Bound<'py, Tensor>> {
        match self {
            Self::Managed(managed) => Tensor::new(py, snapshot(managed)?),
            Self::Tensor { tensor, .. } => Ok(tensor),
        }
    }
}

fn snapshot(managed: Managed<DLManagedTensorVersioned>) -> PyResult<Snapshot> {
    Ok(Snapshot::import(managed, None).map_err(|(error, _)| error)?)
}

/// An instance of what `target` is.
fn make<'py>(
    x: &Bound<'py, PyAny>,
    target: &Target<'py>,
    asked: &Asked,
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
            match array.get_type().is(class) {
                true => Ok(array),
                false => array.call_method1(intern!(py, "view"), (class,)),
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
            let source = Source::of(x, asked, |device| table.stream_of(py, device), false)?;
            deliver::to_table(source, target, table, asked, py)
        }
        Via::Function(function) => {
            let source = Source::of(x, asked, |device| stream::current(py, device), false)?;
            deliver::to_function(source, target, function, asked)
        }
    }
}
