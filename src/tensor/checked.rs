//! Checks of a tensor's fields: descriptions that are valid in DLPack 1.3.

mod shape;

use std::ffi::c_void;
use std::fmt;
use std::ptr::{NonNull, null_mut};

use crate::abi::*;
use crate::tensor::managed::{self, ManagedVersioned, Offer};
use crate::types::error::Error;
use crate::types::{device, dtype, layout};

use shape::too_many_dimensions;
pub(crate) use shape::{Dimensions, dimensions, dimensions_at, extents};

/// What a new tensor is to be: all that an allocator of `dlpack.h` reads of its prototype (R134).
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Prototype<'a> {
    pub(crate) shape: &'a [i64],
    pub(crate) dtype: DLDataType,
    pub(crate) device: DLDevice,
}

impl fmt::Display for Prototype<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} on {}", self.dtype, self.shape, self.device)
    }
}

/// A tensor's memory and element type: everything but its shape.
#[derive(Clone, Copy)]
pub(crate) struct Meta {
    /// First element, or the handle of the buffer that holds it; NULL if there are no elements.
    pub(crate) data: *mut c_void,
    /// Bytes from `data` to the first element; 0 if `data` is an address.
    pub(crate) byte_offset: u64,
    /// Where `data` lives.
    pub(crate) device: DLDevice,
    /// Type of one element.
    pub(crate) dtype: DLDataType,
    /// The `DLPACK_FLAG_BITMASK_*` that dlx knows, and its own: `managed::MAYBE_READ_ONLY` and `managed::beyond`.
    pub(crate) flags: u64,
}

// SAFETY: `data` is only an address here, and code that follows it argues for itself; DLPack allows tensors on any
// thread (R13).
unsafe impl Send for Meta {}
// SAFETY: as for `Send`; a `Meta` is never changed.
unsafe impl Sync for Meta {}

impl Meta {
    /// Memory at `data` that the CPU can read.
    pub(crate) fn on_cpu(data: *mut c_void, dtype: DLDataType, flags: u64) -> Self {
        Self {
            data,
            byte_offset: 0,
            device: device::CPU,
            dtype,
            flags,
        }
    }

    /// The memory of a tensor, as its fields are written.
    #[inline(always)]
    pub(crate) fn written(tensor: &DLTensor, flags: u64) -> Self {
        Self {
            data: tensor.data,
            byte_offset: tensor.byte_offset,
            device: tensor.device,
            dtype: tensor.dtype,
            flags,
        }
    }

    /// The memory of a foreign tensor; the byte offset is added to `data` where that is an address (R95).
    #[inline(always)]
    pub(crate) fn of(tensor: &DLTensor, flags: u64) -> Result<Self, Error> {
        let mut meta = Self::written(tensor, flags);
        if meta.byte_offset != 0 && !meta.data.is_null() && device::has_addresses(meta.device) {
            let address = (meta.data.addr() as u64).checked_add(meta.byte_offset);
            let address =
                address.ok_or_else(|| Error::refused("data + byte_offset is not an address"))?;
            meta.data = meta.data.with_addr(address as usize);
            meta.byte_offset = 0;
        }
        Ok(meta)
    }

    /// Bits of one element in memory.
    pub(crate) fn bits(&self) -> u32 {
        let bits = dtype::bits(self.dtype);
        match self.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED {
            0 => bits,
            _ => bits.next_multiple_of(8),
        }
    }

    /// A tensor whose dimensions are yet to be set.
    #[inline(always)]
    pub(crate) fn tensor(&self, ndim: usize) -> DLTensor {
        DLTensor {
            data: self.data,
            device: self.device,
            // At most `MAX_NDIM`.
            ndim: ndim as i32,
            dtype: self.dtype,
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: self.byte_offset,
        }
    }

    /// The memory of a tensor of the usual form, from a library that is trusted for its fields: some elements on the CPU or a
    /// CUDA device, with shape, strides, and neither a byte offset nor flags; `None` for all others.
    #[inline(always)]
    pub(crate) fn usual(tensor: &DLTensor, flags: u64) -> Option<Self> {
        let device = match tensor.device.device_type {
            kDLCPU => device::CPU,
            kDLCUDA => tensor.device,
            _ => return None,
        };
        let is_usual = !tensor.data.is_null()
            && !tensor.shape.is_null()
            && !tensor.strides.is_null()
            && tensor.ndim as usize <= layout::MAX_NDIM
            && tensor.byte_offset == 0
            && flags == 0;
        is_usual.then_some(Self {
            device,
            ..Self::written(tensor, flags)
        })
    }
}

/// A description that has been checked, from which a snapshot can be made.
pub(crate) struct Checked<'a> {
    pub(crate) meta: Meta,
    pub(crate) size: i64,
    pub(crate) shape: &'a [i64],
    pub(crate) strides: Option<&'a [i64]>,
}

impl<'a> Checked<'a> {
    /// `shape` and `strides` (in elements; `None` for contiguous row-major) over the memory of `meta`.
    ///
    /// # Errors
    ///
    /// `BufferError` for negative or overflowing extents, an unknown dtype or device, and elements without memory.
    #[inline(always)]
    pub(crate) fn new(
        mut meta: Meta,
        shape: &'a [i64],
        strides: Option<&'a [i64]>,
    ) -> Result<Self, Error> {
        if shape.len() > layout::MAX_NDIM {
            return Err(too_many_dimensions(shape.len()));
        }
        if meta.device != device::CPU {
            device::check(meta.device)?;
            meta.device = device::normal(meta.device);
        }
        dtype::check(meta.dtype)?;
        if dtype::is_later(meta.dtype) || device::is_later(meta.device) {
            meta.flags = managed::beyond(meta.flags, 0);
        }
        let size = layout::size(shape)?;
        layout::check_extent(size, shape, strides, meta.dtype)?;
        if size == 0 {
            (meta.data, meta.byte_offset) = (null_mut(), 0);
        } else if meta.data.is_null() {
            return Err(Error::refused_apart(move || {
                format!("the tensor has {size} elements but its data pointer is NULL")
            }));
        }
        if meta.dtype.bits >= 8 {
            meta.flags &= !DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
        }
        Ok(Self {
            meta,
            size,
            shape,
            strides,
        })
    }

    /// The description of contiguous memory that is still to be allocated.
    pub(crate) fn planned(wanted: Prototype<'a>) -> Result<Self, Error> {
        let mut meta = Meta::on_cpu(NonNull::dangling().as_ptr(), wanted.dtype, 0);
        meta.device = wanted.device;
        Self::new(meta, wanted.shape, None)
    }

    /// Refuses elements that would lie outside the address space; for memory known only by its address.
    #[cold]
    pub(crate) fn addressable(self) -> Result<Self, Error> {
        if self.size == 0 || !device::has_addresses(self.meta.device) {
            return Ok(self);
        }
        let bits = dtype::bits(self.meta.dtype);
        let (start, end) = layout::byte_span(self.size, self.shape, self.strides, bits)?;
        let address = self.meta.data.addr() as i128;
        if address + start < 0 || address + end - 1 > usize::MAX as i128 {
            return Err(Error::refused(format!(
                "the elements from address {:#x} on, with shape {:?}{}, reach beyond the address space",
                self.meta.data.addr(),
                self.shape,
                (self.strides).map_or(String::new(), |strides| format!(" and strides {strides:?}")),
            )));
        }
        Ok(self)
    }

    /// Whether an export of the snapshot would have the same fields as `tensor`.
    #[inline(always)]
    fn says(&self, tensor: &DLTensor, flags: u64) -> bool {
        let meta = &self.meta;
        // The low half: the version may be the producer's.
        u64::from(meta.flags as u32) == flags
            && meta.data == tensor.data
            && meta.byte_offset == tensor.byte_offset
            && meta.device == tensor.device
            && (self.strides.is_some() || self.shape.is_empty())
    }
}

/// Refuses a view of padded elements: without the flag it would be read as packed. That memory is read-only does not
/// matter, since a view is lent to a call, whose signature says what it writes.
#[inline(always)]
pub(crate) fn whole(flags: u64) -> Result<(), Error> {
    if flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED == 0 {
        Ok(())
    } else {
        Err(Error::refused(
            "the elements are padded to whole bytes, which a DLTensor has no flag for; export the tensor by \
             managed_tensor_from_py_object_no_sync or __dlpack__",
        ))
    }
}

/// The fields, shape and strides of `managed`.
pub(crate) fn parts(managed: &ManagedVersioned) -> Result<(&DLTensor, u64, Dimensions<'_>), Error> {
    let (tensor, flags) = managed.read()?;
    // SAFETY: `managed` owns the tensor, so its dimensions are valid while it is borrowed (S3).
    let dimensions = unsafe { dimensions(tensor) }?;
    Ok((tensor, flags, dimensions))
}

/// An offer of `managed`, which has strides; its dimensions are copied.
pub(crate) fn offer(managed: ManagedVersioned) -> Result<Offer<ManagedVersioned>, Error> {
    let (tensor, flags) = managed.read()?;
    // SAFETY: `managed` owns the tensor and moves into the offer, which outlives these slices (S3).
    let (shape, strides) = unsafe { dimensions(tensor) }?;
    let (tensor, strides) = (*tensor, strides.unwrap_or(&[]));
    if strides.len() != shape.len() {
        return Err(Error::refused("the tensor has no strides"));
    }
    Offer::new(tensor, shape, strides, flags, managed)
}

/// Checks a tensor; returns whether an export of its snapshot would have the same fields.
///
/// # Safety
///
/// As for [`dimensions`].
#[inline(always)]
pub(crate) unsafe fn is_exact(tensor: &DLTensor, flags: u64) -> Result<bool, Error> {
    // SAFETY: the caller guarantees the pointers.
    let (shape, strides) = unsafe { dimensions(tensor) }?;
    let checked = Checked::new(Meta::of(tensor, flags)?, shape, strides)?;
    Ok(checked.says(tensor, flags))
}
