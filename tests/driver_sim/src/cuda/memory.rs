//! Allocations and copies.

use crate::abi::{Address, Handle, Out, exports};
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::copy::{Extent, Side};
use crate::memory::Kind;

/// `CUDA_MEMCPY2D`, of which `CUDA_MEMCPY3D` repeats the sides with more fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy2d {
    source: Plane,
    target: Plane,
    width_in_bytes: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Plane {
    x_in_bytes: usize,
    y: usize,
    memory_type: u32,
    host: Address,
    device: Address,
    array: usize,
    pitch: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy3d {
    pub(crate) source: Volume,
    pub(crate) target: Volume,
    width_in_bytes: usize,
    height: usize,
    depth: usize,
}

impl Copy3d {
    /// How much it copies.
    pub(crate) fn extent(&self) -> Extent {
        Extent {
            width: self.width_in_bytes,
            height: self.height,
            depth: self.depth,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Volume {
    x_in_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    memory_type: u32,
    host: Address,
    device: Address,
    array: usize,
    /// Of `CUDA_MEMCPY3D_PEER` the context; reserved elsewhere.
    pub(crate) context: Handle,
    pitch: usize,
    height: usize,
}

/// The base address of a side, and whether it is one of a device.
fn base(memory_type: u32, host: Address, device: Address) -> Answer<(Address, bool)> {
    match memory_type {
        1 => Ok((host, false)),
        2 => Ok((device, true)),
        4 => Ok((device, false)),
        // Arrays, which textures use.
        _ => Err(NOT_SUPPORTED),
    }
}

impl Plane {
    fn side(self, width: usize) -> Answer<Side> {
        let (base, device) = base(self.memory_type, self.host, self.device)?;
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let start = base + self.y * pitch + self.x_in_bytes;
        if self.x_in_bytes + width > pitch {
            return Err(INVALID_VALUE);
        }
        Ok(Side {
            start,
            pitch,
            plane: 0,
            device,
            context: None,
        })
    }
}

impl Volume {
    pub(crate) fn side(self, extent: Extent) -> Answer<Side> {
        let (base, device) = base(self.memory_type, self.host, self.device)?;
        let pitch = if self.pitch == 0 {
            extent.width
        } else {
            self.pitch
        };
        let plane = pitch
            * if self.height == 0 {
                extent.height
            } else {
                self.height
            };
        let start = base + self.z * plane + self.y * pitch + self.x_in_bytes;
        if self.lod != 0 || self.x_in_bytes + extent.width > pitch {
            return Err(INVALID_VALUE);
        }
        Ok(Side {
            start,
            pitch,
            plane,
            device,
            context: None,
        })
    }
}

exports! {
    /// Allocates on the device.
    fn cuMemAlloc_v2(place: Out<Address>, nbytes: usize) in sim {
        let address = sim.allocate(Kind::Device, nbytes)?;
        sim.give(place, address)
    }

    /// Allocates memory that host and device reach.
    fn cuMemAllocManaged(place: Out<Address>, nbytes: usize, flags: u32) in sim {
        let address = sim.allocate(Kind::Managed, nbytes)?;
        sim.give(place, address)
    }

    /// Frees.
    fn cuMemFree_v2(address: Address) in sim {
        sim.free(address)
    }

    /// Allocates pinned memory of the host.
    fn cuMemHostAlloc(place: Out<Address>, nbytes: usize, flags: u32) in sim {
        let address = sim.allocate(Kind::Host, nbytes)?;
        sim.give(place, address)
    }

    /// Frees pinned memory.
    fn cuMemFreeHost(address: Address) in sim {
        sim.free(address)
    }

    /// Allocates in the order of a stream.
    fn cuMemAllocAsync(place: Out<Address>, nbytes: usize, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        let address = sim.allocate_on(nbytes, stream)?;
        sim.give(place, address)
    }

    /// Frees in the order of a stream.
    fn cuMemFreeAsync(address: Address, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.free_on(address, stream)
    }

    /// Fills with a byte.
    fn cuMemsetD8Async(target: Address, value: u8, nbytes: usize, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.fill(target, value, nbytes, stream)
    }

    /// Copies between any two kinds of memory.
    fn cuMemcpyAsync(target: Address, source: Address, nbytes: usize, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.copy(Side::plain(target), Side::plain(source), nbytes, stream)
    }

    /// Copies to the host.
    fn cuMemcpyDtoHAsync_v2(target: Address, source: Address, nbytes: usize, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.copy(Side::plain(target), Side::on_device(source), nbytes, stream)
    }

    /// Copies from the host.
    fn cuMemcpyHtoDAsync_v2(target: Address, source: Address, nbytes: usize, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.copy(Side::on_device(target), Side::plain(source), nbytes, stream)
    }

    /// Copies within a device.
    fn cuMemcpyDtoDAsync_v2(target: Address, source: Address, nbytes: usize, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.copy(Side::on_device(target), Side::on_device(source), nbytes, stream)
    }

    /// Copies rows.
    fn cuMemcpy2DAsync_v2(copy: Out<Copy2d>, stream: Handle) in sim {
        let copy = copy.get()?;
        let stream = sim.resolve(stream)?;
        // Whether `CU_MEMORYTYPE_UNIFIED` takes pageable memory, which is in no unified address space, is not documented.
        let is_strange = |plane: Plane| plane.memory_type == 4 && sim.block(plane.device).is_none();
        if is_strange(copy.source) || is_strange(copy.target) {
            return Err(INVALID_VALUE);
        }
        let extent = Extent { width: copy.width_in_bytes, height: copy.height, depth: 1 };
        let (target, source) = (copy.target.side(extent.width)?, copy.source.side(extent.width)?);
        sim.copy_rows(target, source, extent, stream)
    }

    /// Copies planes of rows.
    fn cuMemcpy3DAsync_v2(copy: Out<Copy3d>, stream: Handle) in sim {
        let copy = copy.get()?;
        let stream = sim.resolve(stream)?;
        let extent = copy.extent();
        sim.copy_rows(copy.target.side(extent)?, copy.source.side(extent)?, extent, stream)
    }
}
