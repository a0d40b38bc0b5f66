//! Peers: who reaches whose memory, and copies between them.

use crate::abi::{Address, Handle, Out, exports};
use crate::code::{INVALID_VALUE, NOT_SUPPORTED};
use crate::copy::Side;
use crate::cuda::memory::Copy3d;
use crate::reach::pool_of;

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Access {
    location_type: i32,
    location: i32,
    flags: i32,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: i32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: i32 = 3;

exports! {
    /// Whether a device can be made to reach memory of another: all can here.
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) in sim {
        let (device, peer) = (sim.device(device)?, sim.device(peer)?);
        sim.give(can, (device != peer).into())
    }

    /// Lets the current context reach memory of another.
    fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) in sim {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        sim.enable_peer(peer)
    }

    /// Ends that.
    fn cuCtxDisablePeerAccess(peer: Handle) in sim {
        sim.disable_peer(peer)
    }

    /// The pool of `cuMemAllocAsync`.
    fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: i32) in sim {
        let device = sim.device(device)?;
        sim.give(pool, pool_of(device))
    }

    /// Says which devices reach the memory of a pool, of now and later.
    fn cuMemPoolSetAccess(pool: Handle, map: Out<Access>, count: usize) in sim {
        for index in 0..count {
            let access = map.at(index).get()?;
            match (access.location_type, access.flags) {
                (DEVICE, READ_WRITE) => sim.set_pool_access(pool, access.location, true)?,
                (DEVICE, 0) => sim.set_pool_access(pool, access.location, false)?,
                _ => return Err(NOT_SUPPORTED),
            }
        }
        Ok(())
    }

    /// Copies between devices, whoever reaches whom.
    fn cuMemcpyPeerAsync(
        target: Address, target_context: Handle, source: Address, source_context: Handle,
        nbytes: usize, stream: Handle,
    ) in sim {
        let stream = sim.resolve(stream)?;
        let (target, source) = (Side::of_peer(target, target_context), Side::of_peer(source, source_context));
        sim.copy(target, source, nbytes, stream)
    }

    /// Copies planes of rows between devices, whoever reaches whom.
    fn cuMemcpy3DPeerAsync(copy: Out<Copy3d>, stream: Handle) in sim {
        let copy = copy.get()?;
        let (stream, extent) = (sim.resolve(stream)?, copy.extent());
        let side = |context, side: Side| Side { context: Some(context), ..side };
        let target = side(copy.target.context, copy.target.side(extent)?);
        let source = side(copy.source.context, copy.source.side(extent)?);
        sim.copy_rows(target, source, extent, stream)
    }
}
