//! Streams: what a handle names, and the order of what is queued.

#![forbid(unsafe_code)]

use crate::abi::Handle;
use crate::capture::Captured;
use crate::clock::{Clock, Moment, Timeline};
use crate::code::{
    Answer, CAPTURE_IMPLICIT, CONTEXT_IS_DESTROYED, INVALID_HANDLE, INVALID_VALUE, NOT_READY,
};
use crate::sim::Sim;

/// The legacy default stream of the current context.
pub(crate) const LEGACY: Handle = 1;
/// The thread's own default stream of the current context.
pub(crate) const PER_THREAD: Handle = 2;
const NON_BLOCKING: u32 = 1;

/// A stream.
pub(crate) struct Stream {
    pub(crate) context: Handle,
    /// Its handle, or 1 or 2.
    pub(crate) name: Handle,
    /// Whether the legacy stream waits for it and it for the legacy stream.
    pub(crate) blocking: bool,
    pub(crate) alive: bool,
    pub(crate) timeline: Timeline,
    /// What comes before the next work.
    pub(crate) clock: Clock,
    pub(crate) capture: Option<Captured>,
}

impl Sim {
    fn insert_stream(&mut self, context: Handle, name: Option<Handle>, flags: u32) -> Handle {
        let handle = self.new_handle();
        let stream = Stream {
            context,
            name: name.unwrap_or(handle),
            blocking: flags & NON_BLOCKING == 0 && name != Some(LEGACY),
            alive: true,
            timeline: self.new_timeline(),
            clock: Clock::default(),
            capture: None,
        };
        self.streams.insert(handle, stream);
        handle
    }

    /// Makes a stream in the current context.
    pub(crate) fn create_stream(&mut self, flags: u32) -> Answer<Handle> {
        if flags & !NON_BLOCKING != 0 {
            return Err(INVALID_VALUE);
        }
        let context = self.current_context()?;
        Ok(self.insert_stream(context, None, flags))
    }

    /// The stream that a handle names; default streams have one of their own inside.
    pub(crate) fn resolve(&mut self, handle: Handle) -> Answer<Handle> {
        match handle {
            0 if !self.is_hip() => {
                self.violation(
                    "ambiguous stream 0: 1 is the legacy default stream, 2 the thread's own",
                );
                self.legacy()
            }
            0 => self.legacy(),
            LEGACY | PER_THREAD if self.is_hip() => {
                self.violation(format!("stream {handle} on HIP, which has no such name"));
                Err(INVALID_HANDLE)
            }
            LEGACY => self.legacy(),
            PER_THREAD => self.per_thread(),
            _ => self.living_stream(handle),
        }
    }

    fn living_stream(&mut self, handle: Handle) -> Answer<Handle> {
        let Some(stream) = self.streams.get(&handle) else {
            self.violation(format!("use of {handle:#x}, which is no stream"));
            return Err(INVALID_HANDLE);
        };
        if !stream.alive {
            self.violation(format!("use of dead stream {handle:#x}"));
            return Err(INVALID_HANDLE);
        }
        match self.context(stream.context) {
            Ok(_) => Ok(handle),
            Err(_) => Err(CONTEXT_IS_DESTROYED),
        }
    }

    fn legacy(&mut self) -> Answer<Handle> {
        let context = self.current_context()?;
        if let Some(stream) = self.context(context)?.legacy {
            return Ok(stream);
        }
        let stream = self.insert_stream(context, Some(LEGACY), 0);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.legacy = Some(stream);
        }
        Ok(stream)
    }

    fn per_thread(&mut self) -> Answer<Handle> {
        let context = self.current_context()?;
        if let Some(&stream) = self.this_thread().streams.get(&context) {
            return Ok(stream);
        }
        let stream = self.insert_stream(context, Some(PER_THREAD), 0);
        self.this_thread().streams.insert(context, stream);
        Ok(stream)
    }

    /// The stream behind a resolved handle.
    pub(crate) fn stream(&self, stream: Handle) -> Answer<&Stream> {
        self.streams.get(&stream).ok_or(INVALID_HANDLE)
    }

    /// The stream behind a resolved handle, to be changed.
    pub(crate) fn stream_mut(&mut self, stream: Handle) -> Answer<&mut Stream> {
        self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)
    }

    /// Whether work on a legacy stream would depend on a capture: the blocking streams that capture.
    pub(crate) fn implicit_captures(&self, stream: Handle) -> Answer<Vec<u64>> {
        let stream = self.stream(stream)?;
        if stream.name != LEGACY {
            return Ok(Vec::new());
        }
        let blocking = self.streams.values();
        let blocking = blocking.filter(|other| other.blocking && other.context == stream.context);
        Ok(blocking
            .filter_map(|other| Some(other.capture.as_ref()?.capture))
            .collect())
    }

    /// Refuses what a legacy stream cannot do now, and invalidates the captures that it would be part of.
    pub(crate) fn check_implicit(&mut self, stream: Handle) -> Answer {
        let captures = self.implicit_captures(stream)?;
        if captures.is_empty() {
            return Ok(());
        }
        self.invalidate(&captures);
        Err(CAPTURE_IMPLICIT)
    }

    /// Queues work on a stream: it comes after what was queued before, after what the host knows, and after what the
    /// legacy stream's rule says.
    pub(crate) fn enqueue(&mut self, handle: Handle) -> Answer<Moment> {
        self.check_implicit(handle)?;
        if let Some(moment) = self.enqueue_captured(handle)? {
            return Ok(moment);
        }
        let mut before = self.host.clone();
        let stream = self.stream(handle)?;
        for other in self
            .streams
            .values()
            .filter(|other| other.context == stream.context)
        {
            let legacy_waits = stream.name == LEGACY && other.blocking;
            let waits_for_legacy = stream.blocking && other.name == LEGACY;
            if legacy_waits || waits_for_legacy {
                before.join(&other.clock);
            }
        }
        let stream = self.stream_mut(handle)?;
        stream.clock.join(&before);
        let time = stream.clock.tick(stream.timeline);
        Ok(Moment {
            timeline: stream.timeline,
            time,
            clock: stream.clock.clone(),
            capture: None,
            stream: Some(stream.name),
        })
    }

    /// Lets the work that a clock comes after be done.
    pub(crate) fn complete(&mut self, clock: &Clock) {
        self.completed.join(clock);
    }

    /// Lets all work be done.
    pub(crate) fn complete_all(&mut self) {
        for stream in self.streams.values() {
            self.completed.join(&stream.clock);
        }
    }

    /// Waits on the host for all work of a stream.
    pub(crate) fn synchronize_stream(&mut self, handle: Handle) -> Answer {
        let clock = self.queried(handle)?;
        self.complete(&clock);
        self.host.join(&clock);
        Ok(())
    }

    /// Asks whether the work of a stream is done, which the host then knows.
    pub(crate) fn query_stream(&mut self, handle: Handle) -> Answer {
        let clock = self.queried(handle)?;
        let timeline = self.stream(handle)?.timeline;
        if self.completed.at(timeline) < clock.at(timeline) {
            return Err(NOT_READY);
        }
        self.host.join(&clock);
        Ok(())
    }

    /// The clock of a stream whose status may be asked for.
    fn queried(&mut self, handle: Handle) -> Answer<Clock> {
        self.check_implicit(handle)?;
        self.check_not_capturing(handle)?;
        self.check_unsafe_call()?;
        Ok(self.stream(handle)?.clock.clone())
    }

    /// Waits on the host for all work of the current context.
    pub(crate) fn synchronize_context(&mut self) -> Answer {
        let context = self.current_context()?;
        self.check_context_not_capturing(context)?;
        self.check_unsafe_call()?;
        let mut clock = Clock::default();
        for stream in self
            .streams
            .values()
            .filter(|stream| stream.context == context)
        {
            clock.join(&stream.clock);
        }
        self.complete(&clock);
        self.host.join(&clock);
        Ok(())
    }

    /// Destroys a stream; its work goes on.
    pub(crate) fn destroy_stream(&mut self, handle: Handle) -> Answer {
        if handle <= PER_THREAD {
            return Err(INVALID_HANDLE);
        }
        let handle = self.living_stream(handle)?;
        self.check_not_capturing(handle)?;
        self.stream_mut(handle)?.alive = false;
        Ok(())
    }
}
