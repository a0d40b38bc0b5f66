//! Events, pooled because creating one under load can take milliseconds.
//!
//! On CUDA an event may be recorded again as soon as the wait for it is queued. On HIP that is undefined until it has
//! passed, so each event is a new one there.
//!
//! Only events of primary contexts return to the pool: other contexts may be destroyed, with their events. Events that
//! were captured do not return either.

use std::sync::atomic::{AtomicBool, Ordering};

use super::current::{Current, Relaxed, of};
use super::error::Error;
use super::interface::{Capture, Context, RawEvent, RawStream};
use super::library::check_fork;
use super::runtime::Driver;
use crate::abi::DLDevice;
use crate::cpython::fork::Lock;

/// A point in the work of a stream: an event recorded there.
pub(crate) struct Event {
    driver: &'static Driver,
    context: Context,
    /// The number of that context, if the driver has numbers.
    number: Option<u64>,
    raw: RawEvent,
    owner: Owner,
    /// The capture in which the event was recorded; it is then a node of that graph, not a point in time.
    capture: Option<u64>,
    /// Whether it may have been captured all the same, so that it does not return to the pool.
    may_be_captured: AtomicBool,
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

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as for `Send`.
unsafe impl Sync for Event {}

/// The idle events of a context of CUDA. One that was reset has its handle, and another number: its events may have
/// handles of others'.
struct Pool {
    context: Context,
    number: Option<u64>,
    events: Vec<RawEvent>,
}

// SAFETY: as for `Event`.
unsafe impl Send for Pool {}

/// Maximum number of idle events of a context.
const IDLE: usize = 1024;

/// The pools of the contexts that dlx has recorded in.
static POOLS: Lock<Vec<Pool>> = Lock::new(Vec::new());

/// The idle events of this context.
fn idle(pools: &mut Vec<Pool>, context: Context, number: Option<u64>) -> &mut Vec<RawEvent> {
    let is_its = |pool: &Pool| pool.context == context && pool.number == number;
    let place = pools.iter().position(is_its).unwrap_or_else(|| {
        pools.push(Pool {
            context,
            number,
            events: Vec::new(),
        });
        pools.len() - 1
    });
    &mut pools[place].events
}

/// An event of this driver and context from the pool, or a new one. Those of a context that was reset are forgotten, and
/// none is destroyed.
fn take(driver: &Driver, context: Context, number: Option<u64>) -> Result<RawEvent, Error> {
    let mut pools = POOLS.lock();
    pools.retain(|pool| pool.context != context || pool.number == number);
    let first = idle(&mut pools, context, number).pop();
    drop(pools);
    first.map_or_else(|| driver.create_event(), Ok)
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
                POOLS.lock().retain(|pool| pool.context != current.context);
                Self::record_in(current, stream, capture)
            }
            recorded => recorded,
        }
    }

    fn record_in(current: &Current, stream: RawStream, capture: Capture) -> Result<Self, Error> {
        let Current {
            driver, context, ..
        } = *current;
        let is_pooled = !driver.is_hip && current.is_permanent && capture == Capture::None;
        let (number, raw, owner) = if is_pooled {
            let number = driver.number_of_context(context)?;
            (number, take(driver, context, number)?, Owner::Pool)
        } else {
            (None, driver.create_event()?, Owner::Event)
        };
        let event = Self {
            driver,
            context,
            number,
            raw,
            owner,
            capture: match capture {
                Capture::Active(id) => Some(id),
                _ => None,
            },
            may_be_captured: AtomicBool::new(false),
        };
        event.driver.record(event.raw, stream)?;
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
            may_be_captured: AtomicBool::new(false),
        })
    }

    /// Notes that another thread may have begun a capture before the event was recorded.
    pub(crate) fn set_may_be_captured(&self) {
        self.may_be_captured.store(true, Ordering::Relaxed);
    }

    /// Makes `stream`, of any context, wait for this point.
    pub(crate) fn wait(&self, stream: RawStream) -> Result<(), Error> {
        check_fork()?;
        self.driver.wait(stream, self.raw)
    }

    /// The capture that the point belongs to; it means nothing outside that.
    pub(crate) fn capture(&self) -> Option<u64> {
        self.capture
    }

    /// Whether the point has been passed; the query invalidates no capture. Its context need not be current, and is not
    /// made so: a green one can be current in a single thread.
    pub(crate) fn is_done(&self) -> Result<bool, Error> {
        check_fork()?;
        let _relaxed = Relaxed::enter(self.driver)?;
        self.driver.is_done(self.raw)
    }

    /// Blocks until the point has been passed; invalidates no capture.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        check_fork()?;
        // A green context that is current in another thread cannot be entered; the driver may answer without.
        let previous = self.driver.enter_context(self.context).unwrap_or(None);
        let answer = Relaxed::enter(self.driver)
            .and_then(|_relaxed| self.driver.synchronize_event(self.raw));
        if let Some(previous) = previous {
            self.driver.leave(previous);
        }
        answer
    }

    /// Sets the relaxed capture mode of the event's driver.
    pub(crate) fn relaxed(&self) -> Result<Relaxed, Error> {
        check_fork()?;
        Relaxed::enter(self.driver)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        match self.owner {
            Owner::Pool => {}
            Owner::Event if check_fork().is_ok() => return self.driver.destroy_event(self.raw),
            Owner::Event | Owner::Other => return,
        }
        // Waits that are already queued keep the earlier record, so on CUDA the event can be reused at once.
        let mut pools = POOLS.lock();
        let idle = idle(&mut pools, self.context, self.number);
        if idle.len() >= IDLE || self.may_be_captured.load(Ordering::Relaxed) {
            drop(pools);
            // Of a context that was reset, the handle may be another event's.
            let number = check_fork().and_then(|()| self.driver.number_of_context(self.context));
            if number == Ok(self.number) {
                self.driver.destroy_event(self.raw)
            }
        } else {
            idle.push(self.raw)
        }
    }
}
