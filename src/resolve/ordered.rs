//! The order of a tensor that comes from a table, which orders nothing itself.

#![forbid(unsafe_code)]

use std::sync::Mutex;

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::exchange::Table;
use crate::order::{self, Joined};
use crate::release;
use crate::request::Request;
use crate::stream::{self, Stream, Wanted};
use crate::work::{Producer, Ready, Work};

/// Whether dlx can put a tensor of a table into the order that was asked for.
pub(super) enum Order {
    By(Option<Work>),
    /// There is no driver; its producer may know another way.
    Unable,
}

/// What is known of a tensor from a table that is waited for when it is copied.
pub(super) fn unordered(
    table: Table,
    here: DLDevice,
    request: &Request<'_, '_>,
    py: Python<'_>,
) -> PyResult<Option<Work>> {
    let Some(work_stream) = table.work_stream else {
        return Ok(None);
    };
    stream::note_producer(work_stream, here);
    release::sweep();
    Ok(Some(Work {
        ready: Ready::Now,
        used: None,
        release: request.release,
        producer: Some(Producer {
            work_stream,
            then: Stream::of_table(work_stream.get(py, here)?, here),
        }),
        uses: Mutex::default(),
    }))
}

/// The order of a tensor that comes from a table, by one event from the stream that its library works on to
/// the one that was asked for; none where they are the same.
pub(super) fn order(
    table: Table,
    here: DLDevice,
    request: &Request<'_, '_>,
    py: Python<'_>,
) -> PyResult<Order> {
    let wanted = request.wanted(here)?;
    let Some(work_stream) = table.work_stream else {
        return Ok(Order::Unable);
    };
    stream::note_producer(work_stream, here);
    let ahead = Stream::of_table(work_stream.get(py, here)?, here);
    let producer = Producer {
        work_stream,
        then: ahead.clone(),
    };
    let ready = |ahead: &Stream| {
        release::sweep();
        order::point(ahead)
    };
    let ordered = match wanted {
        Wanted::NoOrder => Ok(Work {
            ready: Ready::Now,
            used: None,
            release: request.release,
            producer: Some(producer),
            uses: Mutex::default(),
        }),
        Wanted::Stream(stream) => {
            if !stream.is(&ahead) {
                release::sweep();
            }
            order::after(&stream, &ahead, Joined::Never)
                .map(|()| request.ready_on(stream, Some(producer)))
        }
        Wanted::Unset => ready(&ahead).map(|event| Work {
            ready: Ready::Point(event),
            used: None,
            release: request.release,
            producer: Some(producer),
            uses: Mutex::default(),
        }),
    };
    match ordered {
        Ok(work) => Ok(Order::By(Some(work))),
        Err(error) if error.is_absent() => Ok(Order::Unable),
        Err(error) => Err(error.into()),
    }
}
