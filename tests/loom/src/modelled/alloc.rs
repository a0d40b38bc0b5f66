//! The system's allocator, whose blocks stay until the execution ends.

pub(crate) use real::alloc::{GlobalAlloc, Layout, handle_alloc_error};
use real::cell::RefCell;
use real::collections::BTreeMap;
use real::rc::Rc;

use super::Tracked;

struct Block {
    layout: Layout,
    is_freed: bool,
    tracked: Rc<Tracked<()>>,
}

real::thread_local! {
    /// All blocks of the execution, which stay until it ends.
    static BLOCKS: RefCell<BTreeMap<usize, Block>> = const { RefCell::new(BTreeMap::new()) };
}

/// The system's allocator. Freeing must come after every access to an atomic in the block.
pub(crate) struct System;

// SAFETY: blocks of the real one, each of its own.
unsafe impl GlobalAlloc for System {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is not empty.
        let start = unsafe { real::alloc::System.alloc(layout) };
        let block = Block {
            layout,
            is_freed: false,
            tracked: Rc::new(Tracked::new(())),
        };
        BLOCKS.with_borrow_mut(|blocks| blocks.insert(start.expose_provenance(), block));
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        let tracked = BLOCKS.with_borrow_mut(|blocks| {
            let block = blocks.get_mut(&start.addr()).expect("a block");
            assert!(!block.is_freed, "freed twice");
            assert_eq!(block.layout, layout);
            block.is_freed = true;
            block.tracked.clone()
        });
        tracked.with_mut(|_| ());
    }
}

/// Notes an access to an address, in a block or not.
pub(super) fn accessed(address: usize) {
    let tracked = BLOCKS.with_borrow(|blocks| {
        let (start, block) = blocks.range(..=address).next_back()?;
        let is_inside = address - start < block.layout.size();
        assert!(
            !(is_inside && block.is_freed),
            "accessed after it was freed"
        );
        is_inside.then(|| block.tracked.clone())
    });
    if let Some(tracked) = tracked {
        tracked.with(|_| ());
    }
}

/// Frees the blocks of the execution before.
pub(super) fn begin() {
    for (start, block) in BLOCKS.take() {
        // SAFETY: allocated with this layout; the execution that had it has ended.
        unsafe {
            real::alloc::System
                .dealloc(real::ptr::with_exposed_provenance_mut(start), block.layout);
        }
    }
}

/// Fails if the execution leaves a block.
pub(crate) fn end() {
    assert!(
        BLOCKS.with_borrow(|blocks| blocks.values().all(|block| block.is_freed)),
        "a leak"
    );
}
