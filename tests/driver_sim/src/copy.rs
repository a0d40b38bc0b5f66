//! Copies: accesses on a stream whose bytes move when they are queued.

use crate::abi::{Address, Handle};
use crate::access::Range;
use crate::code::{Answer, INVALID_VALUE};
use crate::sim::Sim;

/// One side of a copy: rows that lie `pitch` bytes apart, in planes that lie `plane` bytes apart.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) start: Address,
    pub(crate) pitch: usize,
    pub(crate) plane: usize,
    /// Whether the caller says that it is memory of the device.
    pub(crate) device: bool,
    /// The context that a copy between peers names for it.
    pub(crate) context: Option<Handle>,
}

/// How much is copied.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes in a row.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

impl Side {
    /// A side without gaps, which may be memory of any kind.
    pub(crate) fn plain(start: Address) -> Self {
        Self {
            start,
            pitch: 0,
            plane: 0,
            device: false,
            context: None,
        }
    }

    /// The same, on a device.
    pub(crate) fn on_device(start: Address) -> Self {
        Self {
            device: true,
            ..Self::plain(start)
        }
    }

    /// Memory of the device of a context.
    pub(crate) fn of_peer(start: Address, context: Handle) -> Self {
        Self {
            context: Some(context),
            ..Self::on_device(start)
        }
    }

    /// The bytes of each row.
    fn rows(self, extent: Extent) -> Vec<Range> {
        let row = move |plane, row| self.start + plane * self.plane + row * self.pitch;
        (0..extent.depth)
            .flat_map(|plane| (0..extent.height).map(move |index| row(plane, index)))
            .map(|start| (start, start + extent.width))
            .collect()
    }

    fn check(self, extent: Extent, sim: &mut Sim) -> bool {
        self.rows(extent).iter().all(|&(start, end)| {
            if self.device {
                sim.check_device_range(start, end - start)
            } else {
                sim.check_range(start, end - start)
            }
        })
    }
}

/// Joins rows that touch.
fn joined(rows: &[Range]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for &(start, end) in rows {
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

impl Sim {
    /// Queues a copy without gaps on a resolved stream.
    pub(crate) fn copy(&mut self, to: Side, from: Side, nbytes: usize, stream: Handle) -> Answer {
        let extent = Extent {
            width: nbytes,
            height: 1,
            depth: 1,
        };
        self.copy_rows(to, from, extent, stream)
    }

    /// Queues a copy on a resolved stream.
    ///
    /// A copy of pageable memory "might be synchronous with respect to host", for which the driver may wait for the
    /// stream ("API synchronization behavior", asynchronous memcpy). So nothing is known to be done after it, and it is
    /// a call that a capture of another stream may forbid; the stream's own capture gets a node (pytorch/pytorch#172156).
    /// That captures elsewhere forbid it is not documented.
    pub(crate) fn copy_rows(
        &mut self,
        to: Side,
        from: Side,
        extent: Extent,
        stream: Handle,
    ) -> Answer {
        if extent.width * extent.height * extent.depth == 0 {
            return Ok(());
        }
        for side in [from, to] {
            match side.context {
                Some(context) => self.check_peer(side.start, context)?,
                None => self.check_copy_reach(side.start, stream)?,
            }
            if self.block(side.start).is_none() && self.stream(stream)?.capture.is_none() {
                self.check_unsafe_call()?;
            }
        }
        let moment = self.enqueue(stream)?;
        if !from.check(extent, self) || !to.check(extent, self) {
            return Err(INVALID_VALUE);
        }
        let (sources, targets) = (from.rows(extent), to.rows(extent));
        self.access(false, &joined(&sources), &moment);
        self.access(true, &joined(&targets), &moment);
        if moment.capture.is_some() {
            return Ok(());
        }
        for (&(source, _), &(target, _)) in sources.iter().zip(&targets) {
            let (source, target) = (source as *const u8, target as *mut u8);
            // SAFETY: `check` has found the row inside a living block, or it is host memory for which the caller
            // answers; a source and a target that overlap are allowed here.
            unsafe { target.copy_from(source, extent.width) };
        }
        Ok(())
    }

    /// Queues the filling of memory on a resolved stream.
    pub(crate) fn fill(
        &mut self,
        start: Address,
        value: u8,
        nbytes: usize,
        stream: Handle,
    ) -> Answer {
        let moment = self.enqueue(stream)?;
        if !self.check_device_range(start, nbytes) {
            return Err(INVALID_VALUE);
        }
        let context = self.stream(stream)?.context;
        self.check_kernel_reach(start, context);
        self.access(true, &[(start, start + nbytes)], &moment);
        if moment.capture.is_none() {
            // SAFETY: the bytes lie in a living block.
            unsafe { (start as *mut u8).write_bytes(value, nbytes) };
        }
        Ok(())
    }

    /// Queues a kernel on a resolved stream: an access, and nothing else.
    pub(crate) fn launch(
        &mut self,
        write: bool,
        start: Address,
        nbytes: usize,
        stream: Handle,
    ) -> Answer {
        let moment = self.enqueue(stream)?;
        let context = self.stream(stream)?.context;
        self.check_device_range(start, nbytes);
        self.check_kernel_reach(start, context);
        self.access(write, &[(start, start + nbytes)], &moment);
        Ok(())
    }
}
