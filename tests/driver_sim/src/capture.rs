//! Captures of graphs, and what breaks them.

#![forbid(unsafe_code)]

use crate::abi::Handle;
use crate::clock::{Clock, Moment, Timeline};
use crate::code::{
    Answer, CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CAPTURE_UNJOINED, CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD, CAPTURED_EVENT, ILLEGAL_STATE, INVALID_VALUE,
};
use crate::sim::Sim;
use crate::stream::LEGACY;

/// `CUstreamCaptureMode`.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Mode {
    /// No unsafe call on any thread.
    #[default]
    Global = 0,
    /// No unsafe call on the thread that captures.
    ThreadLocal = 1,
    /// Unsafe calls are the caller's matter.
    Relaxed = 2,
}

/// A capture that has not ended.
pub(crate) struct Capture {
    mode: Mode,
    thread: u64,
    origin: Handle,
    invalidated: bool,
    graph: Handle,
}

/// The part that a stream has in a capture.
pub(crate) struct Captured {
    pub(crate) capture: u64,
    /// A timeline of its own: what is captured does not happen with what the stream does otherwise.
    timeline: Timeline,
    pub(crate) clock: Clock,
}

/// `CUstreamCaptureStatus`.
pub(crate) enum Status {
    None,
    Active { id: u64, graph: Handle },
    Invalidated,
}

impl Mode {
    /// The mode of a number.
    pub(crate) fn from_number(number: i32) -> Answer<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(INVALID_VALUE),
        }
    }
}

impl Sim {
    /// Begins a capture on a resolved stream.
    pub(crate) fn begin_capture(&mut self, stream: Handle, mode: i32) -> Answer {
        let mode = Mode::from_number(mode)?;
        if self.stream(stream)?.name == LEGACY {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if self.stream(stream)?.capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let (id, graph) = (self.new_handle() as u64, self.new_handle());
        let thread = self.thread;
        let capture = Capture {
            mode,
            thread,
            origin: stream,
            invalidated: false,
            graph,
        };
        self.captures.insert(id, capture);
        self.join_capture(stream, id, &Clock::default())
    }

    fn join_capture(&mut self, stream: Handle, capture: u64, clock: &Clock) -> Answer {
        let timeline = self.new_timeline();
        let clock = clock.clone();
        self.stream_mut(stream)?.capture = Some(Captured {
            capture,
            timeline,
            clock,
        });
        Ok(())
    }

    /// Makes a stream part of the capture that an event was recorded in.
    pub(crate) fn pull_into_capture(&mut self, stream: Handle, id: u64, clock: &Clock) -> Answer {
        if !self.captures.contains_key(&id) {
            return Err(CAPTURED_EVENT);
        }
        self.check_valid(id)?;
        if self.stream(stream)?.name == LEGACY {
            self.invalidate(&[id]);
            return Err(CAPTURE_IMPLICIT);
        }
        self.join_capture(stream, id, clock)
    }

    /// Adds work to the capture of a stream; None where it captures nothing.
    pub(crate) fn enqueue_captured(&mut self, stream: Handle) -> Answer<Option<Moment>> {
        let Some(id) = self
            .stream(stream)?
            .capture
            .as_ref()
            .map(|part| part.capture)
        else {
            return Ok(None);
        };
        self.check_valid(id)?;
        let stream = self.stream_mut(stream)?;
        let name = stream.name;
        Ok(stream.capture.as_mut().map(|part| Moment {
            timeline: part.timeline,
            time: part.clock.tick(part.timeline),
            clock: part.clock.clone(),
            capture: Some(id),
            stream: Some(name),
        }))
    }

    /// Ends the capture that began on a resolved stream, and gives the graph.
    pub(crate) fn end_capture(&mut self, stream: Handle) -> Answer<Handle> {
        let part = self.stream(stream)?.capture.as_ref().ok_or(ILLEGAL_STATE)?;
        let (id, joined) = (part.capture, part.clock.clone());
        let capture = self.captures.get(&id).ok_or(ILLEGAL_STATE)?;
        if capture.origin != stream {
            self.invalidate(&[id]);
            return Err(CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != self.thread {
            return Err(CAPTURE_WRONG_THREAD);
        }
        let (invalidated, graph) = (capture.invalidated, capture.graph);
        self.captures.remove(&id);
        let mut unjoined = false;
        for stream in self.streams.values_mut() {
            if let Some(part) = stream.capture.take_if(|part| part.capture == id) {
                unjoined |= part.clock.at(part.timeline) > joined.at(part.timeline);
            }
        }
        if invalidated {
            return Err(CAPTURE_INVALIDATED);
        }
        if unjoined {
            return Err(CAPTURE_UNJOINED);
        }
        self.graphs.insert(graph);
        Ok(graph)
    }

    /// Whether a resolved stream captures. Asking breaks nothing.
    pub(crate) fn capture_status(&self, stream: Handle) -> Answer<Status> {
        if !self.implicit_captures(stream)?.is_empty() {
            return Err(CAPTURE_IMPLICIT);
        }
        let Some(part) = &self.stream(stream)?.capture else {
            return Ok(Status::None);
        };
        let capture = self.captures.get(&part.capture).ok_or(ILLEGAL_STATE)?;
        if capture.invalidated {
            return Ok(Status::Invalidated);
        }
        Ok(Status::Active {
            id: part.capture,
            graph: capture.graph,
        })
    }

    /// Breaks captures: nothing can be added, and each ends with an error.
    pub(crate) fn invalidate(&mut self, captures: &[u64]) {
        for id in captures {
            if let Some(capture) = self.captures.get_mut(id) {
                capture.invalidated = true;
            }
        }
    }

    /// Refuses to add to a broken capture.
    pub(crate) fn check_valid(&self, id: u64) -> Answer {
        match self.captures.get(&id) {
            Some(capture) if !capture.invalidated => Ok(()),
            _ => Err(CAPTURE_INVALIDATED),
        }
    }

    /// Refuses, at the cost of the capture, what no capturing stream can answer.
    pub(crate) fn check_not_capturing(&mut self, stream: Handle) -> Answer {
        let Some(part) = &self.stream(stream)?.capture else {
            return Ok(());
        };
        let id = part.capture;
        self.invalidate(&[id]);
        Err(CAPTURE_UNSUPPORTED)
    }

    /// The same for a device, of which a stream may capture: a wait for a context breaks each capture on its device,
    /// whatever the modes of captures and threads (NVIDIA/TensorRT#2888; measured in ROCm/rocm-systems#4508, with the
    /// code 900).
    pub(crate) fn check_device_not_capturing(&mut self, device: i32) -> Answer {
        let streams = self
            .streams
            .values()
            .filter(|stream| self.device_of(stream.context) == Ok(device));
        let parts = streams.filter_map(|stream| stream.capture.as_ref());
        let captures: Vec<u64> = parts.map(|part| part.capture).collect();
        if captures.is_empty() {
            return Ok(());
        }
        self.invalidate(&captures);
        Err(CAPTURE_UNSUPPORTED)
    }

    /// Refuses a call that is unsafe while something captures, as far as the modes of capture and thread forbid it
    /// (`cuThreadExchangeStreamCaptureMode`); the capture is broken then.
    pub(crate) fn check_unsafe_call(&mut self) -> Answer {
        let (thread, mode) = (self.thread, self.this_thread().mode);
        let forbids = |capture: &Capture| match mode {
            Mode::Relaxed => false,
            _ if capture.thread == thread => capture.mode != Mode::Relaxed,
            Mode::Global => capture.mode == Mode::Global,
            Mode::ThreadLocal => false,
        };
        let captures = self.captures.iter();
        let broken: Vec<u64> = captures
            .filter(|(_, capture)| forbids(capture))
            .map(|(&id, _)| id)
            .collect();
        if broken.is_empty() {
            return Ok(());
        }
        self.invalidate(&broken);
        Err(CAPTURE_UNSUPPORTED)
    }
}
