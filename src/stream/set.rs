//! The streams that `dlx.stream` has set for a thread.

#![forbid(unsafe_code)]

use std::cell::RefCell;

use crate::abi::DLDevice;
use crate::stream::handle::Stream;

thread_local! {
    /// Innermost last.
    static SET: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// The stream that is set for a device, with its owner.
pub(crate) fn set(device: DLDevice) -> Option<Stream> {
    let set = SET.try_with(|set| {
        let set = set.borrow();
        let found = set.iter().rev().find(|stream| stream.serves(device));
        found.cloned()
    });
    set.ok().flatten()
}

/// Sets a stream.
pub(super) fn enter(stream: Stream) {
    SET.with_borrow_mut(|set| set.push(stream));
}

/// Sets it no more; `None` if it was not set in this thread. To drop it may run Python code.
pub(super) fn leave(stream: &Stream) -> Option<Stream> {
    SET.with_borrow_mut(|set| {
        let index = set.iter().rposition(|set| set.is(stream))?;
        Some(set.remove(index))
    })
}
