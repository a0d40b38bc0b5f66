//! The tensor to convert, and the options of the call.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::copy::request::{Asked, Request};
use crate::exchange::slot::is_mixin;
use crate::exchange::tensor_table::ready;
use crate::import::ladder::from_dlpack;
use crate::import::protocol;
use crate::stream::usage::Release;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::tensor::trace;

/// The options of a conversion.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) device: Option<DLDevice>,
    pub(crate) copy: Option<bool>,
    /// Whether a library that would let read-only memory be written gets it all the same.
    pub(crate) share_readonly: bool,
}

impl Options {
    pub(super) fn is_nothing(&self) -> bool {
        self.device.is_none() && self.copy.is_none()
    }

    /// Whether `x`, which has the right type, can be returned as it is.
    pub(super) fn is_met_by(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.copy != Some(true)
            && (self.device.is_none() || protocol::device(x)? == self.device))
    }

    /// Imports `x`, ordered for the stream that `stream_of` gives for its device; `at_once` as of a [`Request`].
    pub(super) fn import(
        &self,
        x: &Bound<'_, PyAny>,
        at_once: bool,
        stream_of: impl Fn(DLDevice) -> PyResult<i64>,
    ) -> PyResult<Snapshot> {
        let asked = Asked::by_consumer(&stream_of);
        let request = Request {
            stream: Some(&asked),
            release: Release::None,
            at_once: at_once && self.device.is_none() && self.copy != Some(true),
            ..Request::of(self.device, self.copy)
        };
        from_dlpack(x, &request)
    }
}

/// The tensor of `x`, ordered for the stream that `stream_of` gives for its device.
pub(super) fn tensor_of<'py>(
    x: &Bound<'py, PyAny>,
    asked: &Options,
    at_once: bool,
    stream_of: impl Fn(DLDevice) -> PyResult<i64>,
) -> PyResult<Bound<'py, Tensor>> {
    if let Some(tensor) = Tensor::of(x)
        && asked.device.is_none()
        && asked.copy != Some(true)
    {
        ready(x, &stream_of)?;
        return Ok(tensor.clone());
    }
    Tensor::new(x.py(), asked.import(x, at_once, stream_of)?)
}

/// Whether what [`tensor_of`] returns was made for this conversion and is not shared: a producer's tensor is, and a
/// `dlx.Tensor` shares its own (R38).
pub(super) fn is_fresh(x: &Bound<'_, PyAny>, asked: &Options) -> bool {
    asked.copy == Some(true) || (Tensor::of(x).is_none() && !is_mixin(&x.get_type()))
}

/// `tensor`, of which a trace hears if one is on: by it, `x` is converted to `class`.
#[inline(always)]
pub(super) fn noted<'py>(
    tensor: Bound<'py, Tensor>,
    x: &Bound<'py, PyAny>,
    class: &Bound<'py, PyAny>,
) -> Bound<'py, Tensor> {
    if trace::is_on() {
        trace::begun(tensor.as_any(), c"convert", Some(x), Some(class));
    }
    tensor
}
