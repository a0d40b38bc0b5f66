//! Exchange of the owner inside a snapshot that nobody else has seen, for tracing.

use std::mem::replace;

use super::{Snapshot, Source};

impl Snapshot {
    /// The number that a trace gave to the import of this memory.
    pub(crate) fn traced(&self) -> Option<u64> {
        match &self.0.value().source {
            Source::Traced(traced) => Some(traced.number),
            source => source.whole()?.traced(),
        }
    }

    /// Puts `wrap` of the source in its place, and returns whether it did: not in a snapshot that others share, whose
    /// memory came in before. Of a view, the source is that of the memory.
    ///
    /// # Safety
    ///
    /// Nothing else accesses this snapshot during the call.
    pub(crate) unsafe fn wrap_source(&self, wrap: impl FnOnce(Source) -> Source) -> bool {
        let Some(fields) = self.0.sole() else {
            return false;
        };
        // SAFETY: the sole reference, and the caller promises that it is not used elsewhere.
        let source = unsafe { &mut (*fields.as_ptr()).source };
        match source {
            // SAFETY: the view is reached through this snapshot alone, if its own count says so.
            Source::View(whole, _) | Source::Part(whole) => unsafe { whole.wrap_source(wrap) },
            source => {
                *source = wrap(replace(source, Source::Static));
                true
            }
        }
    }
}
