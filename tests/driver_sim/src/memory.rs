//! Memory: allocations, the pool of each stream, and what a pointer is.

use std::alloc::{Layout, alloc, dealloc};

use crate::abi::{Address, Handle};
use crate::clock::Moment;
use crate::code::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::sim::Sim;

/// What memory holds that nobody has written since it was given out.
const POISON: u8 = 0xDD;
const ALIGNMENT: usize = 512;

/// Where memory would be.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Of `cuMemAlloc`.
    Device,
    /// Of `cuMemAllocAsync`, from the device's default pool.
    Pool,
    /// Pinned. Memory that no block holds is pageable.
    Host,
    Managed,
}

/// An allocation, or one that was freed.
pub(crate) struct Block {
    bytes: *mut u8,
    layout: Layout,
    pub(crate) kind: Kind,
    pub(crate) context: Handle,
    pub(crate) device: i32,
    /// What was asked for; the block may be larger.
    pub(crate) nbytes: usize,
    pub(crate) live: bool,
    /// Whether it was freed in the order of a stream, which then goes on being its pool.
    pool: Option<Handle>,
    /// The capture whose graph allocates it.
    graph: Option<u64>,
}

// SAFETY: a block owns its bytes, which only the thread that holds the simulation's lock reaches through it.
unsafe impl Send for Block {}

impl Block {
    fn new(kind: Kind, context: Handle, device: i32, nbytes: usize) -> Answer<Self> {
        let layout = Layout::from_size_align(nbytes, ALIGNMENT).map_err(|_| OUT_OF_MEMORY)?;
        if nbytes == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the size is not 0.
        let bytes = unsafe { alloc(layout) };
        if bytes.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        let block = Self {
            bytes,
            layout,
            kind,
            context,
            device,
            nbytes,
            live: true,
            pool: None,
            graph: None,
        };
        block.poison();
        Ok(block)
    }

    fn poison(&self) {
        // SAFETY: the block owns as many bytes as its layout says.
        unsafe { self.bytes.write_bytes(POISON, self.layout.size()) };
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> Address {
        self.bytes as Address
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `new` got the bytes for this layout, and nothing else frees them.
        unsafe { dealloc(self.bytes, self.layout) };
    }
}

impl Sim {
    fn insert_block(&mut self, block: Block) -> Address {
        let start = block.start();
        self.blocks.insert(start, block);
        start
    }

    /// The allocation that an address lies in, also if it was freed.
    pub(crate) fn block(&self, address: Address) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=address).next_back()?;
        (address - block.start() < block.layout.size()).then_some(block)
    }

    /// Allocates; the memory is there at once. An unsafe call for captures (`cuThreadExchangeStreamCaptureMode`), also
    /// for pinned memory (pytorch/pytorch#175425).
    pub(crate) fn allocate(&mut self, kind: Kind, nbytes: usize) -> Answer<Address> {
        let context = self.current_context()?;
        self.check_unsafe_call()?;
        let device = self.device_of(context)?;
        let start = self.insert_block(Block::new(kind, context, device, nbytes)?);
        let moment = self.host_moment();
        self.access(true, &[(start, start + nbytes)], &moment);
        Ok(start)
    }

    /// Frees at once what `allocate` or a pool gave. Real drivers may wait here, and do not promise to. An unsafe call
    /// for captures, too, which it breaks (pytorch/pytorch#187795).
    pub(crate) fn free(&mut self, address: Address) -> Answer {
        if address == 0 {
            return Ok(());
        }
        self.check_unsafe_call()?;
        let moment = self.host_moment();
        self.free_block(address, None, &moment)
    }

    fn free_block(&mut self, address: Address, pool: Option<Handle>, moment: &Moment) -> Answer {
        let Some(block) = self.blocks.get_mut(&address) else {
            self.violation(format!("free of {address:#x}, which was not allocated"));
            return Err(INVALID_VALUE);
        };
        if !block.live {
            self.violation(format!("second free of {address:#x}"));
            return Err(INVALID_VALUE);
        }
        let (nbytes, of_graph) = (block.nbytes, block.graph);
        match moment.capture {
            None => (block.live, block.pool) = (false, pool),
            // What a capture frees is freed when the graph runs, and must be an allocation of that graph
            // (`cuMemFreeAsync`). The code is not documented; a GPU has answered it, and the capture went on.
            Some(capture) if of_graph != Some(capture) => return Err(INVALID_VALUE),
            Some(_) => {}
        }
        self.access(true, &[(address, address + nbytes)], moment);
        Ok(())
    }

    /// Allocates in the order of a resolved stream: a block freed in that order is given out again at once. An unsafe
    /// call for captures, unless the stream itself captures: the pool may have to grow.
    pub(crate) fn allocate_on(&mut self, nbytes: usize, stream: Handle) -> Answer<Address> {
        if self.stream(stream)?.capture.is_none() {
            self.check_unsafe_call()?;
        }
        let moment = self.enqueue(stream)?;
        let context = self.stream(stream)?.context;
        let device = self.device_of(context)?;
        let mut free = self.blocks.values_mut();
        let reused = free.find(|block| {
            let fits = nbytes != 0 && block.layout.size() >= nbytes;
            !block.live && block.pool == Some(stream) && fits && moment.capture.is_none()
        });
        let start = match reused {
            Some(block) => {
                block.poison();
                (block.live, block.nbytes) = (true, nbytes);
                block.start()
            }
            None => {
                let mut block = Block::new(Kind::Pool, context, device, nbytes)?;
                block.graph = moment.capture;
                self.insert_block(block)
            }
        };
        self.access(true, &[(start, start + nbytes)], &moment);
        Ok(start)
    }

    /// Frees in the order of a resolved stream, into its pool; for captures, as unsafe as to allocate.
    pub(crate) fn free_on(&mut self, address: Address, stream: Handle) -> Answer {
        if self.stream(stream)?.capture.is_none() {
            self.check_unsafe_call()?;
        }
        let moment = self.enqueue(stream)?;
        self.free_block(address, Some(stream), &moment)
    }

    /// Checks that work may reach these bytes of the device; what it must not is a violation.
    pub(crate) fn check_device_range(&mut self, start: Address, nbytes: usize) -> bool {
        let wrong = match self.block(start) {
            None => "memory that was not allocated",
            Some(block) if !block.live => "freed memory",
            Some(block) if start + nbytes > block.start() + block.nbytes => {
                "memory past an allocation"
            }
            Some(_) => return true,
        };
        let running = self.running();
        self.violation(format!("{running} on {wrong} at {start:#x}"));
        false
    }

    /// Checks memory of any kind. Of what was not allocated here nothing is known.
    pub(crate) fn check_range(&mut self, start: Address, nbytes: usize) -> bool {
        self.block(start).is_none() || self.check_device_range(start, nbytes)
    }

    /// Checks memory that the host is about to use: of a device it has no mapping.
    pub(crate) fn check_host_range(&mut self, start: Address, nbytes: usize) {
        let is_mapped = |block: &Block| matches!(block.kind, Kind::Host | Kind::Managed);
        if self.block(start).is_some_and(|block| !is_mapped(block)) {
            self.violation(format!("the host on memory of a device at {start:#x}"));
        }
        self.check_range(start, nbytes);
    }

    /// How many blocks are allocated.
    pub(crate) fn living_blocks(&self) -> usize {
        self.blocks.values().filter(|block| block.live).count()
    }
}
