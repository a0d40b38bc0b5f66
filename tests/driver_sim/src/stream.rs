//! Streams: what a handle names, and the order of what is queued.

#![forbid(unsafe_code)]

use crate::abi::{Code, Handle};
use crate::capture::Captured;
use crate::clock::{Clock, Moment, Timeline};
use crate::code::{
    Answer, CAPTURE_IMPLICIT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, STREAM_DETACHED,
};
use crate::queue::Queue;
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
    /// What it answers since its context has ended, 0 before.
    pub(crate) lost: Code,
    pub(crate) timeline: Timeline,
    /// What comes before the next work.
    pub(crate) clock: Clock,
    pub(crate) capture: Option<Captured>,
    /// What is queued, where that is limited.
    pub(crate) queue: Option<Queue>,
}

impl Sim {
    fn insert_stream(&mut self, context: Handle, name: Option<Handle>, flags: u32) -> Handle {
        let inside = self.new_handle();
        let name = name.unwrap_or_else(|| {
            let handle = self.handle_of(|freed| &mut freed.streams);
            self.named.insert(handle, inside);
            handle
        });
        let stream = Stream {
            context,
            name,
            blocking: flags & NON_BLOCKING == 0 && name != LEGACY,
            alive: true,
            lost: 0,
            timeline: self.new_timeline(),
            clock: Clock::default(),
            capture: None,
            queue: None,
        };
        self.streams.insert(inside, stream);
        inside
    }

    /// Makes a stream in the current context.
    pub(crate) fn create_stream(&mut self, flags: u32) -> Answer<Handle> {
        if flags & !NON_BLOCKING != 0 {
            return Err(INVALID_VALUE);
        }
        let context = self.current_context()?;
        Ok(self.create_stream_in(context, flags))
    }

    /// Makes a stream in a context.
    pub(crate) fn create_stream_in(&mut self, context: Handle, flags: u32) -> Handle {
        let stream = self.insert_stream(context, None, flags);
        self.streams.get(&stream).map_or(0, |stream| stream.name)
    }

    /// The stream that a handle names. Inside, every stream has a number of its own, which none had before.
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
        if let Some(&inside) = self.named.get(&handle) {
            let stream = self.stream(inside)?;
            if stream.lost != 0 {
                return Err(stream.lost);
            }
            return self.context(stream.context).map(|_| inside);
        }
        self.violation(if self.freed.streams.contains(&handle) {
            format!("use of dead stream {handle:#x}")
        } else {
            format!("use of {handle:#x}, which is no stream")
        });
        Err(INVALID_HANDLE)
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

    /// "Specifying CU_STREAM_PER_THREAD will return CUDA_ERROR_INVALID_HANDLE if a green context is current" (cuda.h,
    /// cuStreamGetCtx_v2); whether work may be queued on it is not documented.
    fn per_thread(&mut self) -> Answer<Handle> {
        let context = self.current_context()?;
        if self.context(context)?.green.is_some() {
            return Err(INVALID_HANDLE);
        }
        if let Some(&stream) = self.this_thread().streams.get(&context) {
            return Ok(stream);
        }
        let stream = self.insert_stream(context, Some(PER_THREAD), 0);
        self.this_thread().streams.insert(context, stream);
        Ok(stream)
    }

    /// The context of the stream that a handle names. For a default stream it is the current one, which need not have
    /// that stream (cuda.h, cuStreamGetCtx).
    pub(crate) fn context_of_stream(&mut self, handle: Handle) -> Answer<Handle> {
        if !self.is_hip() && matches!(handle, LEGACY | PER_THREAD) {
            return self.current_context();
        }
        let stream = self.resolve(handle)?;
        Ok(self.stream(stream)?.context)
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
        self.make_room(handle)?;
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
        let moment = Moment {
            timeline: stream.timeline,
            time,
            clock: stream.clock.clone(),
            capture: None,
            stream: Some(stream.name),
        };
        self.note_queued(handle, &moment)?;
        Ok(moment)
    }

    /// Lets all work be done.
    pub(crate) fn complete_all(&mut self) -> Answer {
        let mut clock = Clock::default();
        for stream in self.streams.values() {
            clock.join(&stream.clock);
        }
        self.complete(&clock)
    }

    /// Waits on the host for all work of a stream.
    pub(crate) fn synchronize_stream(&mut self, handle: Handle) -> Answer {
        let clock = self.queried(handle)?;
        self.complete(&clock)?;
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
        self.check_device_not_capturing(self.device_of(context)?)?;
        self.check_unsafe_call()?;
        let contexts = self.with_green(context);
        let mut clock = Clock::default();
        for stream in self
            .streams
            .values()
            .filter(|stream| contexts.contains(&stream.context))
        {
            clock.join(&stream.clock);
        }
        self.complete(&clock)?;
        self.host.join(&clock);
        Ok(())
    }

    /// Destroys a stream; its work goes on.
    pub(crate) fn destroy_stream(&mut self, handle: Handle) -> Answer {
        if handle <= PER_THREAD {
            return Err(INVALID_HANDLE);
        }
        let detached = |stream: &Stream| stream.lost == STREAM_DETACHED;
        let stream = match self.named.get(&handle) {
            Some(&inside) if self.stream(inside).is_ok_and(detached) => inside,
            _ => self.living_stream(handle)?,
        };
        self.check_not_capturing(stream)?;
        self.stream_mut(stream)?.alive = false;
        self.named.remove(&handle);
        self.freed.streams.push(handle);
        Ok(())
    }
}
