//! Events, pooled because creating one under load can take milliseconds.
//!
//! On CUDA an event may be recorded again as soon as the wait for it is queued. On HIP that is undefined until it has
//! passed, so each event is a new one there.
//!
//! Only events of primary contexts return to the pool: other contexts may be destroyed, with their events. Events that
//! were captured, or may have been, do not return either.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};

use super::contexts::Current;
use super::error::Error;
use super::functions::call;
use super::interface::{Capture, Context, RawEvent, RawStream};
use super::library::check_fork;
use super::runtime::{Driver, Relaxed, of};
use crate::abi::DLDevice;
use crate::cpython::fork::Lock;

/// The numbers of either header.
const EVENT_DISABLE_TIMING: c_uint = 2;
const NOT_READY: c_int = 600;

/// A point in the work of a stream: an event recorded there.
pub(crate) struct Event {
    driver: &'static Driver,
    context: Context,
    /// The number of that context, if it is permanent and the driver has numbers.
    number: Option<u64>,
    raw: RawEvent,
    owner: Owner,
    /// The capture in which the event was recorded; it is then a node of that graph, not a point in time.
    capture: Option<u64>,
}

/// What becomes of an event in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It returns to the pool.
    Pool,
    /// It is destroyed.
    Event,
    /// Nothing: another library destroys it.
    Other,
}

/// The idle events of a context of CUDA, and its number: one that was reset has its handle, and another number.
#[derive(Default)]
struct Pool {
    number: Option<u64>,
    events: Vec<RawEvent>,
}

/// Maximum number of idle events of a context.
const IDLE: usize = 1024;

/// The pools of the contexts that dlx has recorded in.
static POOLS: Lock<BTreeMap<Context, Pool>> = Lock::new(BTreeMap::new());

/// An idle event of this context, if there is one. Those of a context that was reset are forgotten, and none is destroyed:
/// their handles may be other events'.
fn take(context: Context, number: Option<u64>) -> Option<RawEvent> {
    let mut pools = POOLS.lock();
    let pool = pools.entry(context).or_default();
    if pool.number != number {
        (pool.number, pool.events) = (number, Vec::new());
    }
    pool.events.pop()
}

impl Event {
    /// The point that `stream` has reached now.
    ///
    /// `capture` is the result of [`Driver::capture`] for the stream.
    pub(crate) fn record(
        current: &Current,
        stream: RawStream,
        capture: Capture,
    ) -> Result<Self, Error> {
        // An event can only be recorded on a stream of its own context, and not every stream is in the primary one.
        let there = || Self::record_in(&current.enter_context_of(stream)?, stream, capture);
        // A capture is not tried with the wrong one: the error may end it.
        if capture != Capture::None && !current.owns(stream)? {
            return there();
        }
        let recorded = match Self::record_in(current, stream, capture) {
            Err(error) if error.is_invalid_handle() && capture == Capture::None => there(),
            recorded => recorded,
        };
        match recorded {
            Err(error) if capture == Capture::None && error.is_handle_gone() => {
                // The context was reset, and the driver has no numbers.
                POOLS.lock().remove(&current.context);
                Self::record_in(current, stream, capture)
            }
            recorded => recorded,
        }
    }

    fn record_in(current: &Current, stream: RawStream, capture: Capture) -> Result<Self, Error> {
        let (driver, context) = (current.driver, current.context);
        let number = if current.is_permanent {
            driver.number_of_context(context)?
        } else {
            None
        };
        let is_pooled = !driver.is_hip && current.is_permanent && capture == Capture::None;
        let idle = is_pooled.then(|| take(context, number)).flatten();
        let mut raw = idle.unwrap_or(0);
        if idle.is_none() {
            call!(driver, create_event(&mut raw, EVENT_DISABLE_TIMING))?;
        }
        let event = Self {
            driver,
            context,
            number,
            raw,
            owner: if is_pooled { Owner::Pool } else { Owner::Event },
            capture: match capture {
                Capture::Active(id) => Some(id),
                _ => None,
            },
        };
        call!(driver, record_event(raw, stream.0))?;
        Ok(event)
    }

    /// The point of an event that another library has recorded, on `device` and outside of captures.
    ///
    /// # Safety
    ///
    /// The library keeps the event alive, and does not record it again, until this is dropped.
    pub(crate) unsafe fn of_other(device: DLDevice, raw: RawEvent) -> Result<Self, Error> {
        let driver = of(device)?;
        Ok(Self {
            driver,
            context: driver.primary(device.device_id)?,
            number: None,
            raw,
            owner: Owner::Other,
            capture: None,
        })
    }

    /// The point, with its event kept out of the pool: another thread may have begun a capture before it was recorded.
    pub(crate) fn perhaps_captured(mut self) -> Self {
        self.owner = Owner::Event;
        self
    }

    /// Makes `stream`, of any context, wait for this point.
    pub(crate) fn wait(&self, stream: RawStream) -> Result<(), Error> {
        check_fork()?;
        call!(self.driver, wait_event(stream.0, self.raw, 0))
    }

    /// The capture that the point belongs to; it means nothing outside that.
    pub(crate) fn capture(&self) -> Option<u64> {
        self.capture
    }

    /// Whether the point has been passed; the query invalidates no capture. Its context need not be current, and is not
    /// made so: a green one can be current in a single thread.
    pub(crate) fn is_done(&self) -> Result<bool, Error> {
        check_fork()?;
        let _relaxed = self.driver.relaxed()?;
        match call!(self.driver, query_event(self.raw)) {
            Err(error) if error.code() == Some(NOT_READY) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    /// Blocks until the point has been passed; invalidates no capture.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        check_fork()?;
        // A green context that is current in another thread cannot be entered; the driver may answer without.
        let _current = Current::of(self.driver, self.context).ok();
        let _relaxed = self.driver.relaxed()?;
        call!(self.driver, synchronize_event(self.raw))
    }

    /// Sets the relaxed capture mode of the event's driver.
    pub(crate) fn relaxed(&self) -> Result<Relaxed<'static>, Error> {
        check_fork()?;
        self.driver.relaxed()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.owner == Owner::Other || check_fork().is_err() {
            return;
        }
        if self.owner == Owner::Pool {
            let mut pools = POOLS.lock();
            let pool = pools.entry(self.context).or_default();
            if pool.number == self.number && pool.events.len() < IDLE {
                // Waits that are already queued keep the earlier record, so on CUDA the event can be reused at once.
                return pool.events.push(self.raw);
            }
        }
        // Of a context that was reset, the handle may be another event's.
        if self.number.is_none() || self.driver.number_of_context(self.context) == Ok(self.number) {
            // The event may have ended with its context or its runtime. Waits for it that are queued keep their order.
            call!(self.driver, destroy_event(self.raw)).ok();
        }
    }
}
