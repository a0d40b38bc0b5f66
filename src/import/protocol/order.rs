//! The `stream` argument of `__dlpack__`, and the order of the resulting tensor.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::abi::DLDevice;
use crate::adapters::{cuda_array_interface, jax};
use crate::copy::request::Request;
use crate::driver;
use crate::stream::usage::{Producer, StreamUsage};
use crate::stream::{self, Stream, Wanted};

/// How an export that is about to be made will be ordered.
pub(super) enum Order {
    /// The producer orders it.
    Ready(Option<Arc<StreamUsage>>),
    /// The tensor waits for all work queued on the producer's stream by the end of the export.
    Point(Producer),
}

/// The `stream` argument and the order for an export of `x` from `here` to `there`.
pub(super) fn of_request<'py>(
    x: &Bound<'py, PyAny>,
    request: &Request<'_, '_>,
    here: DLDevice,
    there: DLDevice,
) -> PyResult<(Option<Bound<'py, PyAny>>, Order)> {
    let wanted = request.wanted(there)?;
    let producer = match wanted {
        Wanted::NoOrder => None,
        _ if here == there => cuda_array_interface::producer(x, here)?,
        _ => None,
    };
    let (argument, order) = match (wanted, producer) {
        (Wanted::NoOrder, _) => {
            // JAX takes -1 for a handle (0.11).
            let knows = stream::has_streams(there) && !jax::is_array(x)?;
            let argument = knows.then_some(stream::NO_SYNC);
            // Later uses of it have to wait for each other.
            let usage = stream::has_streams(there).then(Arc::default);
            (argument, Order::Ready(usage))
        }
        (Wanted::Stream(stream), producer) => {
            let is_producers = (producer.as_ref()).is_some_and(|known| known.then.is(&stream));
            let stream = if is_producers {
                stream
            } else {
                stream::check_device(stream, there)?
            };
            let argument = Some(stream.handle());
            let usage = request.ready_on(stream, producer);
            (argument, Order::Ready(Some(usage)))
        }
        // The producer's stream is known, so no stream need wait yet, least of all the legacy default stream, which
        // would wait for every other.
        (Wanted::Unset, Some(producer)) if driver::of(here).is_ok() => {
            (Some(stream::NO_SYNC), Order::Point(producer))
        }
        // The default stream, explicitly (R83, R84).
        (Wanted::Unset, _) => {
            let argument = stream::default(there);
            let usage = argument.map(|_| request.ready_on(Stream::default(there), None));
            (argument, Order::Ready(usage))
        }
    };
    let argument = argument.map(|handle| PyInt::new(x.py(), handle).into_any());
    Ok((argument, order))
}
