//! Reads the words by which a torch tensor shows what it is, above all its dispatch key set.
//!
//! Calling `requires_grad`, `is_neg` and `is_conj` costs more than exporting the tensor. Whatever makes the elements
//! differ from what the memory holds (lazy conjugation or negation, sparsity, no memory, a transform) is a key in the
//! set, one word of the `TensorImpl`. torch does not document where; `search.rs` finds it.

mod search;

use pyo3::prelude::*;

/// The offsets of these words in bytes, and the key sets of plain tensors.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// In the Python object: the pointer to the `TensorImpl`.
    tensor_impl: usize,
    /// In the `TensorImpl`: the dispatch key set.
    keys: usize,
    /// In the `TensorImpl`: the `ScalarType`.
    number: usize,
    /// In the `TensorImpl`: the pointer to the autograd state, or NULL. In that: the tangents of forward mode.
    autograd: usize,
    tangents: usize,
    /// In the `TensorImpl`: the pointer to the `StorageImpl`. In that: start and size of the memory.
    storage: usize,
    base: usize,
    nbytes: usize,
    /// The keys of a plain tensor, outside and in inference mode: on the CPU, and on a CUDA device. Where those are unknown,
    /// the CPU's stand in for them.
    plain: [[u64; 2]; 2],
    /// Whether the tensor of a `TensorImpl` records gradients.
    records: Option<Records>,
}

/// `bool c10::TensorImpl::requires_grad() const`.
type Records = unsafe extern "C" fn(*const u8) -> bool;

/// What the words of a tensor show.
pub(super) enum Found {
    /// Its memory holds its elements, and it records no gradients.
    Plain,
    /// Its memory holds its elements; torch must be asked whether it records gradients.
    MayRecord,
    /// torch must be asked.
    Unknown,
}

impl Layout {
    /// The `TensorImpl` of `tensor`.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] examined.
    #[inline(always)]
    unsafe fn tensor_impl(self, tensor: &Bound<'_, PyAny>) -> *const u8 {
        // SAFETY: a live tensor with that layout, as the caller promises.
        pointer(unsafe { word(tensor.as_ptr().cast_const().cast(), self.tensor_impl) })
    }

    /// What the words of `tensor` show.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] examined.
    #[inline(always)]
    pub(super) unsafe fn read(self, tensor: &Bound<'_, PyAny>) -> Found {
        // SAFETY: the caller's promise.
        let tensor_impl = unsafe { self.tensor_impl(tensor) };
        // SAFETY: the tensor keeps its `TensorImpl` alive, and every `TensorImpl` has this word (S13, torch's layout).
        let keys = unsafe { word(tensor_impl, self.keys) };
        // SAFETY: as above.
        let autograd = unsafe { word(tensor_impl, self.autograd) };
        match (self.plain.as_flattened().contains(&keys), autograd) {
            (true, 0) => Found::Plain,
            (true, _) => Found::MayRecord,
            (false, _) => Found::Unknown,
        }
    }

    /// Whether `tensor` may have a tangent of forward mode.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] examined.
    #[inline(always)]
    pub(super) unsafe fn may_have_tangent(self, tensor: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the caller's promise.
        let tensor_impl = unsafe { self.tensor_impl(tensor) };
        // SAFETY: as in `read`.
        let autograd = pointer(unsafe { word(tensor_impl, self.autograd) });
        // SAFETY: not NULL, so it points to the tensor's autograd state, which has this word (S13).
        !autograd.is_null() && unsafe { word(autograd, self.tangents) } != 0
    }

    /// The number that torch gives the dtype of `tensor`.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] examined.
    #[inline(always)]
    pub(super) unsafe fn number(self, tensor: &Bound<'_, PyAny>) -> u16 {
        // SAFETY: the caller's promise.
        let tensor_impl = unsafe { self.tensor_impl(tensor) };
        // SAFETY: the tensor keeps its `TensorImpl` alive, and every `TensorImpl` has this half word (S13).
        let place = unsafe { tensor_impl.add(self.number) };
        // SAFETY: as above; its place is a multiple of its size.
        unsafe { place.cast::<u16>().read() }
    }

    /// Whether `tensor` records gradients; `None` if Python has to be asked.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] examined.
    #[inline(always)]
    pub(super) unsafe fn records(self, tensor: &Bound<'_, PyAny>) -> Option<bool> {
        let records = self.records?;
        // SAFETY: the caller's promise.
        let tensor_impl = unsafe { self.tensor_impl(tensor) };
        // SAFETY: the tensor keeps its `TensorImpl` alive; torch's attribute calls the same function (S8).
        Some(unsafe { records(tensor_impl) })
    }

    /// Start and size in bytes of the storage of `tensor`; 0 without a storage.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] examined.
    #[inline(always)]
    pub(super) unsafe fn storage(self, tensor: &Bound<'_, PyAny>) -> (u64, u64) {
        // SAFETY: the caller's promise.
        let tensor_impl = unsafe { self.tensor_impl(tensor) };
        // SAFETY: as in `read`.
        let storage = pointer(unsafe { word(tensor_impl, self.storage) });
        if storage.is_null() {
            return (0, 0);
        }
        // SAFETY: the tensor keeps its `StorageImpl` alive (S13).
        let base = unsafe { word(storage, self.base) };
        // SAFETY: as above.
        let nbytes = unsafe { word(storage, self.nbytes) };
        (base, nbytes)
    }
}

/// A word as a pointer.
#[inline(always)]
fn pointer(word: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(word as usize)
}

/// The word at byte `offset` of `object`.
///
/// # Safety
///
/// The word is aligned and readable.
#[inline(always)]
unsafe fn word(object: *const u8, offset: usize) -> u64 {
    // SAFETY: the caller's promise.
    let place = unsafe { object.add(offset) };
    // SAFETY: the caller's promise.
    unsafe { place.cast::<u64>().read() }
}
