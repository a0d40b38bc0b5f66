//! Which device reaches the memory of which other one.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::abi::{Address, Handle};
use crate::code::{Answer, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE};
use crate::memory::{Block, Kind};
use crate::sim::Sim;

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED` and `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
const ALREADY_ENABLED: i32 = 704;
const NOT_ENABLED: i32 = 705;
/// Where the handles of the default pools begin: one for each device.
const POOLS: Handle = 0x5000_0000_0000;

/// Access that was granted beyond the device that memory is on.
#[derive(Default)]
pub(crate) struct Reach {
    /// A context, and the one whose `cuMemAlloc` memory its kernels reach.
    peers: BTreeSet<(Handle, Handle)>,
    /// A device, and another that reaches the memory of its default pool.
    pools: BTreeSet<(i32, i32)>,
}

/// The default pool of a device.
pub(crate) fn pool_of(device: i32) -> Handle {
    POOLS + device as Handle
}

impl Sim {
    /// Lets kernels of the current context reach memory of another one (`cuCtxEnablePeerAccess`), in one direction.
    pub(crate) fn enable_peer(&mut self, peer: Handle) -> Answer {
        let current = self.current_context()?;
        self.context(peer)?;
        if self.device_of(current)? == self.device_of(peer)? {
            return Err(INVALID_DEVICE);
        }
        match self.reach.peers.insert((current, peer)) {
            true => Ok(()),
            false => Err(ALREADY_ENABLED),
        }
    }

    /// Ends that.
    pub(crate) fn disable_peer(&mut self, peer: Handle) -> Answer {
        let current = self.current_context()?;
        match self.reach.peers.remove(&(current, peer)) {
            true => Ok(()),
            false => Err(NOT_ENABLED),
        }
    }

    /// Lets a device reach a pool, or no longer (`cuMemPoolSetAccess`). The device of the pool always does.
    pub(crate) fn set_pool_access(&mut self, pool: Handle, device: i32, reaches: bool) -> Answer {
        let owner = pool.checked_sub(POOLS).ok_or(INVALID_VALUE)?;
        let owner = self.device(i32::try_from(owner).map_err(|_| INVALID_VALUE)?)?;
        let device = self.device(device)?;
        if reaches {
            self.reach.pools.insert((owner, device));
        } else if owner == device {
            // rapidsai/rmm#1753.
            return Err(INVALID_DEVICE);
        } else {
            self.reach.pools.remove(&(owner, device));
        }
        Ok(())
    }

    /// Whether kernels of a context reach a block. Peer access does not open pools, nor the other way round
    /// (programming guide, "Stream-Ordered Memory Allocator", multi-GPU support).
    fn reaches(&self, context: Handle, block: &Block) -> bool {
        let device = self.device_of(context);
        match block.kind {
            Kind::Host | Kind::Managed => true,
            _ if device == Ok(block.device) => true,
            Kind::Device => self.reach.peers.contains(&(context, block.context)),
            Kind::Pool => {
                device.is_ok_and(|device| self.reach.pools.contains(&(block.device, device)))
            }
        }
    }

    /// Reports a kernel on memory that its device does not reach, which would fault (700).
    pub(crate) fn check_kernel_reach(&mut self, start: Address, context: Handle) {
        let Some(block) = self.block(start) else {
            return;
        };
        if !self.reaches(context, block) {
            let (running, device) = (self.running(), block.device);
            self.violation(format!(
                "{running} on memory of device {device}, out of reach, at {start:#x}"
            ));
        }
    }

    /// Refuses a copy of memory from a pool that the device does not reach: that of the stream, and the current one.
    /// Memory of `cuMemAlloc` has no such rule (alpaka-group/alpaka#1909 and the reproducer named there; the comment on
    /// `cudaMallocAsynced` memory in PyTorch's `Copy.cu`). The code is that of the copies in ggml-org/llama.cpp#4638.
    pub(crate) fn check_copy_reach(&mut self, start: Address, stream: Handle) -> Answer {
        let context = self.stream(stream)?.context;
        let current = match self.current_context() {
            Ok(current) => current,
            Err(INVALID_CONTEXT) => context,
            Err(code) => return Err(code),
        };
        match self.block(start) {
            Some(block) if block.kind == Kind::Pool => {
                match self.reaches(context, block) && self.reaches(current, block) {
                    true => Ok(()),
                    false => Err(INVALID_VALUE),
                }
            }
            _ => Ok(()),
        }
    }

    /// Refuses memory that is not on the device of the context that a copy between peers names for it.
    pub(crate) fn check_peer(&self, start: Address, context: Handle) -> Answer {
        self.context(context)?;
        let device = self.device_of(context)?;
        match self.block(start) {
            Some(block)
                if matches!(block.kind, Kind::Device | Kind::Pool) && block.device != device =>
            {
                Err(INVALID_VALUE)
            }
            _ => Ok(()),
        }
    }
}
