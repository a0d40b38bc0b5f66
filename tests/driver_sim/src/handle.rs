//! Handles, which the driver uses again.
//!
//! They are addresses of what malloc gives the driver; that malloc gives the block freed last is usual. Use of a
//! destroyed handle is undefined: "Passing an invalid handle will result in undefined behavior." (cuda.h,
//! cuStreamGetCtx.) Here it is a violation as long as the handle names nothing, and whatever it names otherwise.

#![forbid(unsafe_code)]

use crate::abi::Handle;
use crate::sim::Sim;

/// Handles that name nothing any more, those freed last at the end.
#[derive(Default)]
pub(crate) struct Freed {
    pub(crate) contexts: Vec<Handle>,
    pub(crate) streams: Vec<Handle>,
    pub(crate) events: Vec<Handle>,
}

impl Sim {
    /// A handle for something new: the one of its kind that was freed last.
    pub(crate) fn handle_of(&mut self, kind: impl Fn(&mut Freed) -> &mut Vec<Handle>) -> Handle {
        let freed = kind(&mut self.freed).pop();
        freed.unwrap_or_else(|| self.new_handle())
    }
}
