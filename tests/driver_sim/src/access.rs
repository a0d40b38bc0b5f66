//! Accesses to memory, and the races between them.

#![forbid(unsafe_code)]

use crate::abi::Address;
use crate::clock::Moment;
use crate::journal::{object, quoted};
use crate::sim::Sim;

/// Bytes next to each other: the first, and the first behind.
pub(crate) type Range = (Address, Address);

/// Memory that something reads or writes.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) write: bool,
    /// In ascending order, without overlap.
    pub(crate) ranges: Vec<Range>,
    pub(crate) moment: Moment,
    /// Place of the call in the journal, and its name.
    pub(crate) index: usize,
    pub(crate) what: &'static str,
}

/// Two accesses that nothing orders.
pub(crate) struct Race {
    pub(crate) first: Access,
    pub(crate) second: Access,
}

fn hull(ranges: &[Range]) -> Option<Range> {
    Some((ranges.first()?.0, ranges.last()?.1))
}

fn overlap(one: &[Range], other: &[Range]) -> bool {
    let meet = |a: Range, b: Range| a.0 < b.1 && b.0 < a.1;
    let (Some(hull_one), Some(hull_other)) = (hull(one), hull(other)) else {
        return false;
    };
    meet(hull_one, hull_other) && one.iter().any(|&a| other.iter().any(|&b| meet(a, b)))
}

impl Access {
    fn conflicts(&self, other: &Self) -> bool {
        (self.write || other.write)
            && self.moment.capture == other.moment.capture
            && overlap(&self.ranges, &other.ranges)
    }

    fn json(&self) -> String {
        let (start, end) = hull(&self.ranges).unwrap_or_default();
        object([
            ("what", quoted(self.what)),
            ("write", self.write.to_string()),
            (
                "stream",
                self.moment.stream.map_or("null".into(), |s| s.to_string()),
            ),
            ("index", self.index.to_string()),
            ("start", start.to_string()),
            ("nbytes", (end - start).to_string()),
        ])
    }
}

impl Race {
    /// Both accesses in JSON, the earlier queued one first.
    pub(crate) fn json(&self) -> String {
        object([("first", self.first.json()), ("second", self.second.json())])
    }
}

impl Sim {
    /// Remembers an access and reports the races that it makes.
    ///
    /// Work of a capture does not happen: it only races with work of the same capture, as it will at each replay.
    pub(crate) fn access(&mut self, write: bool, ranges: &[Range], moment: &Moment) {
        let access = Access {
            write,
            ranges: ranges.to_vec(),
            moment: moment.clone(),
            index: self.index(),
            what: self.running(),
        };
        for earlier in &self.accesses {
            if earlier.conflicts(&access) && !earlier.moment.before(&moment.clock) {
                self.races.push(Race {
                    first: earlier.clone(),
                    second: access.clone(),
                });
            }
        }
        self.accesses.push(access);
    }
}
