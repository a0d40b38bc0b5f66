//! A tensor on its way to another library, and what was asked for.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::abi::*;
use crate::classes::no_sync_export;
use crate::copy::request::Request;
use crate::exchange::slot::is_mixin;
use crate::import::ladder::from_dlpack;
use crate::import::protocol;
use crate::import::protocol::FastExport;
use crate::stream;
use crate::stream::Stream;
use crate::stream::usage::Release;
use crate::tensor::checked::parts;
use crate::tensor::managed::Managed;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;

/// What the caller asked for.
pub(crate) struct Options {
    pub(crate) device: Option<DLDevice>,
    pub(crate) copy: Option<bool>,
}

impl Options {
    pub(super) fn is_nothing(&self) -> bool {
        self.device.is_none() && self.copy.is_none()
    }

    /// Whether `x`, whose type is right, need not be converted.
    pub(super) fn is_met_by(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.copy != Some(true)
            && match self.device {
                None => true,
                there => protocol::device(x)? == there,
            })
    }

    /// The tensor of `x`, ready on the stream that the other library works on.
    pub(super) fn import(
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
pub(super) enum Input<'py> {
    /// As the producer's own library exports it, on the CPU.
    Managed(Managed<DLManagedTensorVersioned>),
    /// As dlx holds it; `fresh` if nobody else does.
    Tensor {
        tensor: Bound<'py, Tensor>,
        fresh: bool,
    },
}

impl<'py> Input<'py> {
    /// The tensor of `x`, ready on the stream of its device that `stream_of` tells; for `any_stream` it will be used on
    /// the CPU or not at all.
    pub(super) fn of(
        x: &Bound<'py, PyAny>,
        asked: &Options,
        stream_of: impl Fn(DLDevice) -> PyResult<i64>,
        any_stream: bool,
    ) -> PyResult<Self> {
        let asks_nothing = asked.device.is_none() && asked.copy != Some(true);
        if asks_nothing && let Some(tensor) = Tensor::of(x) {
            let snapshot = tensor.get().snapshot()?;
            if snapshot.usage().is_some() {
                let device = snapshot.meta().device;
                snapshot.order(&Stream::of_table(stream_of(device)?, device))?;
            }
            let tensor = tensor.clone();
            return Ok(Self::Tensor {
                tensor,
                fresh: false,
            });
        }
        let direct = if asks_nothing {
            no_sync_export::fast_export(x, &stream_of, any_stream)?
        } else {
            None
        };
        match direct {
            Some(FastExport::Managed(managed)) => {
                let (tensor, flags, _) = parts(&managed)?;
                let copied = flags & DLPACK_FLAG_BITMASK_IS_COPIED != 0;
                // What is on a device with streams has to be ordered; what is a copy may have to be refused.
                let again = stream::has_streams(tensor.device) || (copied && asked.copy.is_some());
                if !again {
                    return Ok(Self::Managed(managed));
                }
            }
            Some(FastExport::Snapshot(snapshot)) => {
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
    pub(super) fn into_tensor(self, py: Python<'py>) -> PyResult<Bound<'py, Tensor>> {
        match self {
            Self::Managed(managed) => Tensor::new(py, snapshot(managed)?),
            Self::Tensor { tensor, .. } => Ok(tensor),
        }
    }
}

pub(super) fn snapshot(managed: Managed<DLManagedTensorVersioned>) -> PyResult<Snapshot> {
    Ok(Snapshot::import(managed, None).map_err(|(error, _)| error)?)
}
