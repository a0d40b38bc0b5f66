//! The journal of calls, and reports in JSON.

#![forbid(unsafe_code)]

use std::fmt::Write;

use crate::abi::Code;

/// One call.
pub(crate) struct Entry {
    /// Of all calls, which other threads' calls do not change.
    pub(crate) number: u64,
    pub(crate) name: &'static str,
    /// Names and values, in JSON.
    pub(crate) arguments: Vec<(&'static str, String)>,
    /// What was written to the places of results, in JSON.
    pub(crate) results: Vec<String>,
    pub(crate) code: Code,
    pub(crate) thread: u64,
    /// Whom the thread worked for: empty unless `sim_calls_by` has said so.
    pub(crate) caller: String,
    /// Whether the caller's thread held Python's GIL.
    pub(crate) gil: bool,
    /// Whether the call had to wait for a host function.
    pub(crate) waited: bool,
}

/// A string in JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character < ' ' => {
                // Writing to a String does not fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// A list in JSON.
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    format!("[{}]", items.join(","))
}

/// An object in JSON; the values are JSON already.
pub(crate) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let fields: Vec<String> = fields
        .into_iter()
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

impl Entry {
    /// The call in JSON, at its place in the journal.
    pub(crate) fn json(&self, index: usize) -> String {
        object([
            ("index", index.to_string()),
            ("name", quoted(self.name)),
            ("arguments", object(self.arguments.iter().cloned())),
            ("results", list(self.results.iter().cloned())),
            ("code", self.code.to_string()),
            ("thread", self.thread.to_string()),
            ("caller", quoted(&self.caller)),
            ("gil", self.gil.to_string()),
            ("waited", self.waited.to_string()),
        ])
    }
}
