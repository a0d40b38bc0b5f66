//! Events: snapshots of a stream.

#![forbid(unsafe_code)]

use crate::abi::Handle;
use crate::clock::{Clock, Moment};
use crate::code::{
    Answer, CAPTURE_ISOLATION, CAPTURE_MERGE, CAPTURED_EVENT, CONTEXT_IS_DESTROYED, INVALID_HANDLE,
    INVALID_VALUE, NOT_READY,
};
use crate::sim::Sim;

/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;
/// `BLOCKING_SYNC`, `DISABLE_TIMING` and `INTERPROCESS`.
const CREATE_FLAGS: u32 = 7;

/// An event.
pub(crate) struct Event {
    context: Handle,
    /// Whether its context has ended.
    lost: bool,
    pub(crate) recorded: Option<Moment>,
}

impl Event {
    /// Lets what was recorded be done, unless a capture has recorded it.
    pub(crate) fn settle(&mut self) {
        if let Some(moment) = self
            .recorded
            .as_mut()
            .filter(|moment| moment.capture.is_none())
        {
            (moment.time, moment.clock) = (0, Clock::default());
        }
    }
}

impl Sim {
    /// Makes an event in the current context.
    pub(crate) fn create_event(&mut self, flags: u32) -> Answer<Handle> {
        // Those of HIP go further.
        if !self.is_hip() && flags & !CREATE_FLAGS != 0 {
            return Err(INVALID_VALUE);
        }
        let context = self.current_context()?;
        let handle = self.handle_of(|freed| &mut freed.events);
        let event = Event {
            context,
            lost: false,
            recorded: None,
        };
        self.events.insert(handle, event);
        Ok(handle)
    }

    /// The event of a handle, if it and its context live.
    fn event(&mut self, handle: Handle) -> Answer<&mut Event> {
        let Some(event) = self.events.get(&handle) else {
            self.violation(if self.freed.events.contains(&handle) {
                format!("use of dead event {handle:#x}")
            } else {
                format!("use of {handle:#x}, which is no event")
            });
            return Err(INVALID_HANDLE);
        };
        if event.lost {
            return Err(CONTEXT_IS_DESTROYED);
        }
        self.context(event.context)?;
        self.events.get_mut(&handle).ok_or(INVALID_HANDLE)
    }

    fn done(&self, moment: &Moment) -> bool {
        moment.before(&self.completed)
    }

    /// Records what a resolved stream has queued until now.
    pub(crate) fn record_event(&mut self, handle: Handle, stream: Handle, flags: u32) -> Answer {
        let context = self.event(handle)?.context;
        if self.stream(stream)?.context != context {
            return Err(INVALID_HANDLE);
        }
        let captures = self.stream(stream)?.capture.is_some();
        if flags & !EXTERNAL != 0 || (flags == EXTERNAL && !captures) {
            return Err(INVALID_VALUE);
        }
        let recorded = self.event(handle)?.recorded.clone();
        let pending = recorded.is_some_and(|moment| !self.done(&moment));
        let moment = self.enqueue(stream)?;
        if self.is_hip() && pending {
            self.violation(format!(
                "event {handle:#x} is recorded again while it is pending"
            ));
        }
        if flags == EXTERNAL {
            // A node of the graph, which records the event only when it runs.
            return Ok(());
        }
        self.event(handle)?.recorded = Some(moment);
        Ok(())
    }

    /// Makes a resolved stream wait for an event.
    pub(crate) fn wait_event(&mut self, stream: Handle, handle: Handle, flags: u32) -> Answer {
        let recorded = self.event(handle)?.recorded.clone();
        let capture = self
            .stream(stream)?
            .capture
            .as_ref()
            .map(|captured| captured.capture);
        if flags & !EXTERNAL != 0 || (flags == EXTERNAL && capture.is_none()) {
            return Err(INVALID_VALUE);
        }
        self.check_implicit(stream)?;
        if flags == EXTERNAL {
            return self.enqueue(stream).map(|_| ());
        }
        let from = recorded.as_ref().and_then(|moment| moment.capture);
        match (capture, from) {
            (None, None) => {
                let Some(moment) = recorded else {
                    return Ok(());
                };
                self.stream_mut(stream)?.clock.join(&moment.clock);
                self.enqueue(stream)?;
            }
            (None, Some(from)) => {
                let moment = recorded.ok_or(INVALID_VALUE)?;
                self.pull_into_capture(stream, from, &moment.clock)?;
                self.enqueue(stream)?;
            }
            (Some(capture), None) => {
                self.check_valid(capture)?;
                self.invalidate(&[capture]);
                return Err(CAPTURE_ISOLATION);
            }
            (Some(capture), Some(from)) if capture != from => {
                self.check_valid(capture)?;
                self.invalidate(&[capture, from]);
                return Err(CAPTURE_MERGE);
            }
            (Some(_), Some(_)) => {
                let moment = recorded.ok_or(INVALID_VALUE)?;
                if let Some(captured) = &mut self.stream_mut(stream)?.capture {
                    captured.clock.join(&moment.clock);
                }
                self.enqueue(stream)?;
            }
        }
        Ok(())
    }

    /// What an event waits for, if its status may be asked for; None if it was never recorded.
    fn queried_event(&mut self, handle: Handle) -> Answer<Option<Moment>> {
        let recorded = self.event(handle)?.recorded.clone();
        if let Some(capture) = recorded.as_ref().and_then(|moment| moment.capture) {
            if !self.captures.contains_key(&capture) {
                return Err(INVALID_VALUE);
            }
            self.invalidate(&[capture]);
            return Err(CAPTURED_EVENT);
        }
        self.check_unsafe_call()?;
        Ok(recorded)
    }

    /// Asks whether an event is done, which the host then knows.
    pub(crate) fn query_event(&mut self, handle: Handle) -> Answer {
        let Some(moment) = self.queried_event(handle)? else {
            return Ok(());
        };
        if !self.done(&moment) {
            return Err(NOT_READY);
        }
        self.host.join(&moment.clock);
        Ok(())
    }

    /// Waits on the host for an event.
    pub(crate) fn synchronize_event(&mut self, handle: Handle) -> Answer {
        let Some(moment) = self.queried_event(handle)? else {
            return Ok(());
        };
        self.complete(&moment.clock)?;
        self.host.join(&moment.clock);
        Ok(())
    }

    /// Destroys an event, pending or not.
    pub(crate) fn destroy_event(&mut self, handle: Handle) -> Answer {
        self.event(handle)?;
        self.events.remove(&handle);
        self.freed.events.push(handle);
        Ok(())
    }

    /// Loses the events of a context that ends.
    pub(crate) fn lose_events(&mut self, context: Handle) {
        let events = self.events.values_mut();
        for event in events.filter(|event| event.context == context) {
            event.lost = true;
        }
    }

    /// How many events there are.
    pub(crate) fn living_events(&self) -> usize {
        self.events.values().filter(|event| !event.lost).count()
    }
}
