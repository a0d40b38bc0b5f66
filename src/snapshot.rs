//! The immutable description of a tensor, together with what keeps its memory alive.
//!
//! Shape and strides are copied when a tensor comes in, so that a producer that changes its own (torch's
//! point into the live tensor) changes nothing here. A `dlx.Tensor` and all its exports share one snapshot.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::slice;

use triomphe::ThinArc;

use crate::abi::*;
use crate::error::Error;
use crate::interpreter::PythonOwner;
use crate::layout;
use crate::managed::{self, Managed, ManagedTensor};
use crate::memory::Memory;
use crate::{device, dtype};

/// What keeps the memory of a snapshot alive; dropping it lets go.
pub(crate) enum Source {
    /// A tensor that came through the table or a `dltensor_versioned` capsule.
    Versioned(
        #[expect(dead_code, reason = "held for its deleter")] Managed<DLManagedTensorVersioned>,
    ),
    /// A tensor that came through a `dltensor` capsule.
    Legacy(#[expect(dead_code, reason = "held for its deleter")] Managed<DLManagedTensor>),
    /// Memory of a Python object, named by `from_pointer`.
    Python(#[expect(dead_code, reason = "held for its reference")] PythonOwner),
    /// Memory of our own.
    Memory(#[expect(dead_code, reason = "held for its memory")] Memory),
    /// Another view of the same memory.
    Snapshot(#[expect(dead_code, reason = "held for its source")] Snapshot),
    /// Memory that the caller answers for.
    Static,
}

impl From<Managed<DLManagedTensorVersioned>> for Source {
    fn from(managed: Managed<DLManagedTensorVersioned>) -> Self {
        Self::Versioned(managed)
    }
}

impl From<Managed<DLManagedTensor>> for Source {
    fn from(managed: Managed<DLManagedTensor>) -> Self {
        Self::Legacy(managed)
    }
}

/// Where a tensor's elements are and what they are, everything but its shape.
#[derive(Clone, Copy)]
pub(crate) struct Memo {
    /// First element, or the handle of the buffer that holds it; NULL when there are no elements.
    pub(crate) data: *mut c_void,
    /// Bytes from `data` to the first element; 0 wherever `data` is an address.
    pub(crate) byte_offset: u64,
    /// Where `data` lives.
    pub(crate) device: DLDevice,
    /// Type of one element.
    pub(crate) dtype: DLDataType,
    /// The `DLPACK_FLAG_BITMASK_*` that dlx knows.
    pub(crate) flags: u64,
    /// The stream on which the elements are ready, for devices that have streams.
    pub(crate) stream: Option<i64>,
}

// SAFETY: `data` is an address that only `copy.rs` follows, under its own argument; DLPack hands tensors
// to any thread (R13).
unsafe impl Send for Memo {}
// SAFETY: as for `Send`; a `Memo` is never changed.
unsafe impl Sync for Memo {}

struct Fields {
    memo: Memo,
    size: i64,
    _source: Source,
}

/// A tensor: shared, immutable, freed with its last holder.
#[derive(Clone)]
pub(crate) struct Snapshot(ThinArc<Fields, i64>);

const KNOWN_FLAGS: u64 = DLPACK_FLAG_BITMASK_READ_ONLY
    | DLPACK_FLAG_BITMASK_IS_COPIED
    | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;

/// What [`Snapshot`] may be made of: a description that DLPack 1.3 can mean.
pub(crate) struct Checked<'a> {
    memo: Memo,
    size: i64,
    shape: &'a [i64],
    strides: Option<&'a [i64]>,
}

impl<'a> Checked<'a> {
    /// `shape` and `strides` (in elements; `None` for compact row-major) over the memory of `memo`.
    ///
    /// # Errors
    ///
    /// `BufferError` for negative or overflowing extents, unknown dtype or device, elements without memory.
    // Inlined, because the result is large: to hand it on takes longer than to make it.
    #[inline(always)]
    pub(crate) fn new(
        mut memo: Memo,
        shape: &'a [i64],
        strides: Option<&'a [i64]>,
    ) -> Result<Self, Error> {
        if shape.len() > layout::MAX_NDIM {
            return Err(too_many_dimensions(shape.len()));
        }
        device::check(memo.device)?;
        memo.device = device::normal(memo.device);
        dtype::check(memo.dtype)?;
        let size = layout::size(shape)?;
        layout::check_extent(size, shape, strides, memo.dtype)?;
        if size == 0 {
            (memo.data, memo.byte_offset) = (std::ptr::null_mut(), 0);
        } else if memo.data.is_null() {
            return Err(Error::refused(format!(
                "the tensor has {size} elements but its data pointer is NULL"
            )));
        }
        memo.flags &= KNOWN_FLAGS;
        if memo.dtype.bits >= 8 {
            memo.flags &= !DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
        }
        Ok(Self {
            memo,
            size,
            shape,
            strides,
        })
    }

    /// Everything but the shape.
    pub(crate) fn memo(&self) -> &Memo {
        &self.memo
    }

    /// The snapshot, whose memory `source` keeps alive.
    #[inline]
    pub(crate) fn over(self, source: Source) -> Snapshot {
        let Self {
            memo,
            size,
            shape,
            strides,
        } = self;
        let ndim = shape.len();
        let fields = Fields {
            memo,
            size,
            _source: source,
        };
        let dimensions = (0..2 * ndim).map(|index| match (index.checked_sub(ndim), strides) {
            (None, _) => shape[index],
            (Some(index), Some(strides)) => strides[index],
            (Some(index), None) => layout::row_major(shape, index),
        });
        Snapshot(ThinArc::from_header_and_iter(fields, dimensions))
    }
}

impl Snapshot {
    /// Uninitialized memory of our own on the CPU, compact and row-major.
    pub(crate) fn allocate(shape: &[i64], dtype: DLDataType, flags: u64) -> Result<Self, Error> {
        let memo = Memo {
            data: NonNull::dangling().as_ptr(),
            byte_offset: 0,
            device: device::CPU,
            dtype,
            flags,
            stream: None,
        };
        let mut checked = Checked::new(memo, shape, None)?;
        let padded = checked.memo.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0;
        let memory = Memory::new(layout::nbytes(checked.size, dtype, padded))?;
        checked.memo.data = memory.as_ptr();
        Ok(checked.over(Source::Memory(memory)))
    }

    /// Takes over a foreign tensor, or gives it back untouched with the reason.
    ///
    /// `stream` is the one on which the producer was asked to make the elements ready.
    pub(crate) fn import<M>(
        managed: Managed<M>,
        stream: Option<i64>,
    ) -> Result<Self, (Error, Managed<M>)>
    where
        M: ManagedTensor,
        Source: From<Managed<M>>,
    {
        let (tensor, flags) = match managed.read() {
            Ok(read) => read,
            Err(error) => return Err((error, managed)),
        };
        // SAFETY: `managed` owns the tensor, so its dimensions are valid (R100); they stay so while this
        // function runs, because `managed` goes either into the snapshot or back to the caller (S3).
        let dimensions = unsafe { dimensions(&tensor) };
        let checked = dimensions.and_then(|(shape, strides)| {
            Checked::new(Memo::of(&tensor, flags, stream)?, shape, strides)
        });
        match checked {
            Ok(checked) => Ok(checked.over(managed.into())),
            Err(error) => Err((error, managed)),
        }
    }

    /// The same memory seen as another dtype of the same size.
    pub(crate) fn reinterpret(&self, dtype: DLDataType) -> Result<Self, Error> {
        let memo = Memo {
            dtype,
            ..*self.memo()
        };
        self.view(memo)
    }

    /// The same tensor, known to be a copy that a producer made on demand (torch does not say so, R37).
    pub(crate) fn copied(self) -> Result<Self, Error> {
        if self.has(DLPACK_FLAG_BITMASK_IS_COPIED) {
            return Ok(self);
        }
        let memo = Memo {
            flags: self.memo().flags | DLPACK_FLAG_BITMASK_IS_COPIED,
            ..*self.memo()
        };
        self.view(memo)
    }

    /// Another description of the same elements.
    fn view(&self, memo: Memo) -> Result<Self, Error> {
        let checked = Checked::new(memo, self.shape(), Some(self.strides()))?;
        Ok(checked.over(Source::Snapshot(self.clone())))
    }

    /// Everything but the shape.
    pub(crate) fn memo(&self) -> &Memo {
        &self.0.header.header.memo
    }

    /// Number of elements.
    pub(crate) fn size(&self) -> i64 {
        self.0.header.header.size
    }

    /// Number of dimensions.
    pub(crate) fn ndim(&self) -> usize {
        self.0.slice.len() / 2
    }

    /// Extents.
    pub(crate) fn shape(&self) -> &[i64] {
        &self.0.slice[..self.ndim()]
    }

    /// Strides in elements.
    pub(crate) fn strides(&self) -> &[i64] {
        &self.0.slice[self.ndim()..]
    }

    /// Whether any of these flags is set.
    pub(crate) fn has(&self, flags: u64) -> bool {
        self.memo().flags & flags != 0
    }

    /// Bytes of the elements alone.
    pub(crate) fn nbytes(&self) -> i64 {
        let padded = self.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
        layout::nbytes(self.size(), self.memo().dtype, padded)
    }

    /// Whether the elements lie in row-major order with nothing between them.
    pub(crate) fn is_row_major(&self) -> bool {
        layout::is_row_major(self.shape(), self.strides())
    }

    /// A view whose shape and strides point into this snapshot, valid as long as it is (R129).
    pub(crate) fn dl_tensor(&self) -> DLTensor {
        let Memo {
            data,
            byte_offset,
            device,
            dtype,
            ..
        } = *self.memo();
        DLTensor {
            data,
            device,
            // At most MAX_NDIM.
            ndim: self.ndim() as i32,
            dtype,
            shape: self.shape().as_ptr().cast_mut(),
            strides: self.strides().as_ptr().cast_mut(),
            byte_offset,
        }
    }

    /// A managed tensor of its own that shares the memory (R16).
    ///
    /// IS_COPIED says that the consumer is the only owner, so it is set only on memory made for this
    /// export: `fresh` (R37, R38).
    pub(crate) fn export<M: ManagedTensor>(&self, fresh: bool) -> Result<Managed<M>, Error> {
        let flags = match fresh {
            true => self.memo().flags,
            false => self.memo().flags & !DLPACK_FLAG_BITMASK_IS_COPIED,
        };
        let (shape, strides) = (self.shape(), self.strides());
        managed::export(self.dl_tensor(), shape, strides, flags, self.clone())
    }
}

impl Memo {
    /// The memory of a foreign tensor; the byte offset is added wherever that is arithmetic (R95).
    fn of(tensor: &DLTensor, flags: u64, stream: Option<i64>) -> Result<Self, Error> {
        let mut memo = Self {
            data: tensor.data,
            byte_offset: tensor.byte_offset,
            device: tensor.device,
            dtype: tensor.dtype,
            flags,
            stream,
        };
        if memo.byte_offset != 0 && !memo.data.is_null() && device::has_addresses(memo.device) {
            let address = usize::try_from(memo.byte_offset)
                .ok()
                .and_then(|offset| memo.data.addr().checked_add(offset))
                .ok_or_else(|| Error::refused("data + byte_offset is no address"))?;
            memo.data = memo.data.with_addr(address);
            memo.byte_offset = 0;
        }
        Ok(memo)
    }
}

/// Shape, and strides if there are any.
type Dimensions<'a> = (&'a [i64], Option<&'a [i64]>);

/// The dimensions of `tensor` (R88 to R91).
///
/// # Safety
///
/// Where they are not NULL, `shape` and `strides` point to `ndim` values that stay valid and unchanged for
/// as long as the slices are used.
unsafe fn dimensions(tensor: &DLTensor) -> Result<Dimensions<'_>, Error> {
    // SAFETY: the caller's promise.
    let shape = unsafe { extents(tensor.shape, tensor.ndim) }?;
    if tensor.strides.is_null() {
        return Ok((shape, None));
    }
    // SAFETY: as for the shape; `ndim` was checked with it.
    let strides = unsafe { slice::from_raw_parts(tensor.strides, shape.len()) };
    Ok((shape, Some(strides)))
}

/// The shape of a `DLTensor` (R88).
///
/// # Safety
///
/// If it is not NULL, `shape` points to `ndim` values that stay valid and unchanged for `'a`.
pub(crate) unsafe fn extents<'a>(shape: *const i64, ndim: i32) -> Result<&'a [i64], Error> {
    match usize::try_from(ndim) {
        Ok(0) => Ok(&[]),
        Ok(ndim) if ndim > layout::MAX_NDIM => Err(too_many_dimensions(ndim)),
        Ok(ndim) if shape.is_null() => {
            Err(Error::refused(format!("shape is NULL, but ndim is {ndim}")))
        }
        // SAFETY: not NULL, so it points to `ndim` values, as the caller promises.
        Ok(ndim) => Ok(unsafe { slice::from_raw_parts(shape, ndim) }),
        Err(_) => Err(Error::refused(format!("ndim is {ndim}"))),
    }
}

#[cold]
fn too_many_dimensions(ndim: usize) -> Error {
    Error::refused(format!(
        "the tensor has {ndim} dimensions, dlx accepts up to {}",
        layout::MAX_NDIM
    ))
}
