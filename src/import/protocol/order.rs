//! What `__dlpack__` gets as `stream`, and what the tensor waits for then.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::adapters::cuda_array_interface;
use crate::copy::request::Request;
use crate::driver;
use crate::stream;
use crate::stream::usage::{Producer, StreamUsage};
use crate::stream::{Stream, Wanted};
use crate::types::error;

/// The order of an export that has yet to be made.
pub(super) enum Order {
    /// The producer makes its own.
    Ready(Option<StreamUsage>),
    /// Whatever the producer's stream has been given when the export is there.
    Point(Producer),
}

impl Order {
    /// What the tensor waits for, now that it has been exported.
    pub(super) fn usage(
        self,
        request: &Request<'_, '_>,
    ) -> Result<Option<StreamUsage>, error::Error> {
        match self {
            Self::Ready(usage) => Ok(usage),
            Self::Point(producer) => request.order(Wanted::Unset, producer).map(Some),
        }
    }
}

/// The argument and the order of an export of `x`, which is on `here`, to `there`.
pub(super) fn of_request(
    x: &Bound<'_, PyAny>,
    request: &Request<'_, '_>,
    here: DLDevice,
    there: DLDevice,
) -> PyResult<(Option<i64>, Order)> {
    let wanted = request.wanted(there)?;
    let producer = match wanted {
        Wanted::NoOrder => None,
        _ if here == there => cuda_array_interface::producer(x, here)?,
        _ => None,
    };
    Ok(match (wanted, producer) {
        (Wanted::NoOrder, _) => {
            let argument = stream::has_streams(there).then_some(stream::NO_SYNC);
            (argument, Order::Ready(None))
        }
        (Wanted::Stream(stream), producer) => {
            let is_producers = (producer.as_ref()).is_some_and(|known| known.then.is(&stream));
            let stream = if is_producers {
                stream
            } else {
                stream::check_device(stream)?
            };
            let argument = Some(stream.handle());
            let usage = request.ready_on(stream, producer);
            (argument, Order::Ready(Some(usage)))
        }
        // No stream has to wait for one that is known, least of all the legacy default one, which would wait for all.
        (Wanted::Unset, Some(producer)) if driver::of(here).is_ok() => {
            (Some(stream::NO_SYNC), Order::Point(producer))
        }
        // The default stream, explicitly (R83, R84).
        (Wanted::Unset, _) => {
            let argument = stream::default(there);
            let usage = argument.map(|_| request.ready_on(Stream::default(there), None));
            (argument, Order::Ready(usage))
        }
    })
}
