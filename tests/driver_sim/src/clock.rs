//! Vector clocks: what is known of each timeline.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// A stream, a stream within one capture, or the host.
pub(crate) type Timeline = u32;
/// The timeline of the host, all threads together.
pub(crate) const HOST: Timeline = 0;

/// The last time of each timeline that something comes after.
#[derive(Clone, Default)]
pub(crate) struct Clock(BTreeMap<Timeline, u64>);

impl Clock {
    /// The last time known of a timeline, 0 for none.
    pub(crate) fn at(&self, timeline: Timeline) -> u64 {
        self.0.get(&timeline).copied().unwrap_or(0)
    }

    /// Comes after all that the other comes after.
    pub(crate) fn join(&mut self, other: &Self) {
        for (&timeline, &time) in &other.0 {
            let known = self.0.entry(timeline).or_default();
            *known = time.max(*known);
        }
    }

    /// The same without the last step of a timeline.
    pub(crate) fn before_last(&self, timeline: Timeline) -> Self {
        let mut before = self.clone();
        let time = before.0.entry(timeline).or_default();
        *time = time.saturating_sub(1);
        before
    }

    /// Lets one step pass on a timeline.
    pub(crate) fn tick(&mut self, timeline: Timeline) -> u64 {
        let time = self.0.entry(timeline).or_default();
        *time += 1;
        *time
    }
}

/// When something happens, and what it comes after.
#[derive(Clone)]
pub(crate) struct Moment {
    pub(crate) timeline: Timeline,
    pub(crate) time: u64,
    /// Includes the moment itself.
    pub(crate) clock: Clock,
    /// The capture that recorded it, where it did not happen at all.
    pub(crate) capture: Option<u64>,
    /// How the stream is called in reports: its handle, 1 or 2; None for the host.
    pub(crate) stream: Option<usize>,
}

impl Moment {
    /// Whether the clock comes after this moment.
    pub(crate) fn before(&self, clock: &Clock) -> bool {
        clock.at(self.timeline) >= self.time
    }
}
