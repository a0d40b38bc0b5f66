//! A `dlx.Tensor` as it is requested: by `Tensor.to`, by `from_dlpack` of one, and by the keywords of `__dlpack__`.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::abi::DLDevice;
use crate::adapters::oneapi;
use crate::copy::by_driver;
use crate::copy::request::{self, Asked, Request};
use crate::import::aliases;
use crate::stream::usage::Release;
use crate::tensor::capsule;
use crate::tensor::object::Tensor;
use crate::types::device;

/// `slf` itself, or the requested copy.
pub(crate) fn again<'py>(
    slf: &Bound<'py, Tensor>,
    device: Option<DLDevice>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, Tensor>> {
    let snapshot = slf.get().snapshot()?;
    let here = snapshot.meta().device;
    if copy != Some(true) && device.is_none_or(|there| there == here) {
        return Ok(slf.clone());
    }
    let request = Request::of(device, copy);
    let snapshot = match aliases::again(slf.py(), snapshot, &request)? {
        Some(snapshot) => snapshot,
        None => request::again(slf.py(), snapshot.clone(), &request)?,
    };
    Tensor::new(slf.py(), snapshot)
}

/// The capsule that `__dlpack__` of `slf` returns for these keywords.
pub(super) fn capsule<'py>(
    slf: &Bound<'py, Tensor>,
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<(i64, i64)>,
    dl_device: Option<(i64, i64)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let (py, snapshot) = (slf.py(), slf.get().snapshot()?);
    let versioned = capsule::is_versioned(max_version);
    let here = snapshot.meta().device;
    let there = dl_device.map_or(Ok(here), |pair| device::of_pair(pair, here))?;
    let asked = stream.map(Asked::by_argument);
    let request = Request {
        stream: asked.as_ref(),
        release: Release::None,
        ..Request::of(Some(there), copy)
    };
    if let Some(snapshot) = aliases::again(py, snapshot, &request)? {
        if !oneapi::is_queue(stream, there) {
            capsule::order_for_export(stream, &snapshot)?;
        }
        return capsule::of(py, &snapshot, versioned, snapshot.aliases().is_none());
    }
    if there == here && copy != Some(true) {
        capsule::order_for_export(stream, snapshot)?;
        return capsule::of(py, snapshot, versioned, false);
    }
    if copy == Some(false) {
        return Err(request::elsewhere(py, here, there));
    }
    let on = by_driver::for_export(stream, there)?;
    let copied = by_driver::copied(py, snapshot, there, on)?;
    capsule::of(py, &copied, versioned, true)
}
