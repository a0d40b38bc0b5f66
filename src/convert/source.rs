//! The tensor to convert, and the options of the call.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::abi::*;
use crate::copy::request::{Asked, Request};
use crate::exchange::slot::is_mixin;
use crate::import::export;
use crate::import::ladder::from_dlpack;
use crate::import::protocol;
use crate::stream;
use crate::stream::usage::Release;
use crate::tensor::capsule::Exported;
use crate::tensor::managed::ManagedVersioned;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::tensor::trace;
use crate::types::error::Error;
use crate::types::{device, dtype};

/// The options of a conversion.
pub(crate) struct Options {
    pub(crate) device: Option<DLDevice>,
    pub(crate) copy: Option<bool>,
    /// Whether a library that would let read-only memory be written gets it all the same.
    pub(crate) share_readonly: bool,
}

impl Options {
    pub(crate) const NOTHING: Options = Options {
        device: None,
        copy: None,
        share_readonly: false,
    };

    pub(super) fn is_nothing(&self) -> bool {
        self.device.is_none() && self.copy.is_none()
    }

    /// Whether `x`, which has the right type, can be returned as it is.
    pub(super) fn is_met_by(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.copy != Some(true)
            && match self.device {
                None => true,
                there => protocol::device(x)? == there,
            })
    }

    /// Imports `x`, ordered for the stream that `stream_of` gives for its device.
    pub(super) fn import(
        &self,
        x: &Bound<'_, PyAny>,
        stream_of: impl Fn(DLDevice) -> PyResult<i64>,
    ) -> PyResult<Snapshot> {
        let asked = Asked::by_consumer(&stream_of);
        let request = Request {
            device: self.device,
            copy: self.copy,
            stream: Some(&asked),
            release: Release::None,
        };
        from_dlpack(x, &request)
    }
}

/// Who takes the tensor.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Taker {
    /// NumPy, which takes only CPU memory, so that no stream matters.
    Numpy,
    Table,
    /// An importer, which is given a `dlx.Tensor`.
    Function,
}

impl Taker {
    /// Refuses a tensor that this one would use before it is ready: a table does not order, and here neither can dlx.
    fn check(self, snapshot: &Snapshot) -> Result<(), Error> {
        let device = snapshot.meta().device;
        if self == Self::Table && device::is_later(device) {
            return Err(Error::refused(format!(
                "the tensor is on {}, a device of a DLPack after 1.3, of which dlx knows no streams; call the from_dlpack \
                 of the library",
                device::name(device)
            )));
        }
        Ok(())
    }
}

/// A tensor to convert.
pub(super) enum Input<'py> {
    /// On the CPU, as the producer's own library exports it.
    Managed(ManagedVersioned),
    /// Held by dlx; `fresh` if it was made for this conversion and is not shared.
    Tensor {
        tensor: Bound<'py, Tensor>,
        fresh: bool,
    },
}

impl<'py> Input<'py> {
    /// Imports `x`, ordered for the stream that `stream_of` gives for its device.
    pub(super) fn of(
        x: &Bound<'py, PyAny>,
        asked: &Options,
        stream_of: impl Fn(DLDevice) -> PyResult<i64>,
        taker: Taker,
    ) -> PyResult<Self> {
        let asks_nothing = asked.device.is_none() && asked.copy != Some(true);
        if asks_nothing && let Some(tensor) = Tensor::of(x) {
            taker.check(export::ordered(x, &stream_of)?)?;
            let (tensor, fresh) = (tensor.clone(), false);
            return Ok(Self::Tensor { tensor, fresh });
        }
        let direct = if asks_nothing {
            export::fast_export(x, &stream_of, taker == Taker::Numpy)?
        } else {
            None
        };
        match direct {
            Some(Exported::Managed(managed)) => {
                let (tensor, flags) = managed.read()?;
                let copied = flags & DLPACK_FLAG_BITMASK_IS_COPIED != 0;
                // The direct path neither orders streams, nor applies `copy` to a copy made by the producer, nor keeps
                // the version of what only a later DLPack defines.
                let again = stream::needs_order(tensor.device)
                    || dtype::is_later(tensor.dtype)
                    || (copied && asked.copy.is_some());
                if !again {
                    return Ok(Self::Managed(managed));
                }
            }
            Some(Exported::Snapshot(snapshot)) => {
                let copied = snapshot.has(DLPACK_FLAG_BITMASK_IS_COPIED);
                if !(copied && asked.copy.is_some()) {
                    return Self::holding(x.py(), snapshot, true);
                }
            }
            None => {}
        }
        let snapshot = asked.import(x, stream_of)?;
        taker.check(&snapshot)?;
        // A producer's tensor was made for this conversion; a dlx.Tensor shares its own (R38).
        let held = Tensor::of(x).is_some() || is_mixin(&x.get_type());
        Self::holding(x.py(), snapshot, asked.copy == Some(true) || !held)
    }

    /// The tensor of `snapshot`.
    pub(super) fn holding(py: Python<'py>, snapshot: Snapshot, fresh: bool) -> PyResult<Self> {
        let tensor = Tensor::new(py, snapshot)?;
        Ok(Self::Tensor { tensor, fresh })
    }

    /// The same, by a tensor that a trace knows, if one is on: `x` is converted to `class`.
    #[inline(always)]
    pub(super) fn noted(self, x: &Bound<'py, PyAny>, class: &Bound<'py, PyAny>) -> PyResult<Self> {
        if !trace::is_on() {
            return Ok(self);
        }
        let fresh = !matches!(self, Self::Tensor { fresh: false, .. });
        let tensor = self.into_tensor(x.py())?;
        trace::begun(tensor.as_any(), c"convert", Some(x), Some(class));
        Ok(Self::Tensor { tensor, fresh })
    }

    /// Converts into a `dlx.Tensor`.
    pub(super) fn into_tensor(self, py: Python<'py>) -> PyResult<Bound<'py, Tensor>> {
        match self {
            Self::Managed(managed) => Tensor::new(py, Snapshot::of(managed)?),
            Self::Tensor { tensor, .. } => Ok(tensor),
        }
    }
}
