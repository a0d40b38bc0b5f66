//! Uses that drivers need not survive.

#![forbid(unsafe_code)]

use crate::journal::{object, quoted};
use crate::sim::Sim;

/// Something that no driver promises to survive, and that need not show as an error.
pub(crate) struct Violation {
    what: String,
    index: usize,
}

impl Violation {
    /// The violation in JSON.
    pub(crate) fn json(&self) -> String {
        object([
            ("what", quoted(&self.what)),
            ("index", self.index.to_string()),
        ])
    }
}

impl Sim {
    /// Reports a violation.
    pub(crate) fn violation(&mut self, what: impl Into<String>) {
        let (what, index) = (what.into(), self.index());
        self.violations.push(Violation { what, index });
    }
}
