//! Where a torch tensor keeps its autograd state, found by trial.
//!
//! Asking `requires_grad` costs as much as exporting the tensor. A tensor that autograd has never touched has no
//! autograd state at all: a pointer in it is NULL. Where that pointer is, torch does not promise, so it is looked
//! for among tensors that are known to record gradients or not, and if it is not found there is no short way.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// Offsets, in bytes, of the pointers that lead to the autograd state.
#[derive(Clone, Copy)]
pub(super) struct AutogradMeta {
    /// In the Python object: the `TensorImpl`.
    tensor_impl: usize,
    /// In the `TensorImpl`: its autograd state, NULL without.
    meta: usize,
}

const WORD: usize = size_of::<usize>();

/// Where the `TensorImpl` may be in a Python object: behind its head.
const HEAD: usize = size_of::<ffi::PyObject>();

/// Where the autograd state may be: behind the virtual table and the counts, in a part that every `TensorImpl`
/// has (its inline sizes and strides alone are larger).
const FIRST: usize = 2 * WORD;
const LAST: usize = 7 * WORD;

impl AutogradMeta {
    /// Looks for it in tensors of `class`, which is `torch.Tensor`; `None` if torch keeps it otherwise.
    pub(super) fn find(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<Option<Self>> {
        let py = torch.py();
        let size: usize = class.getattr(intern!(py, "__basicsize__"))?.extract()?;
        let make = |dtype: &str, requires_grad: bool| {
            let keywords = PyDict::new(py);
            keywords.set_item("dtype", torch.getattr(dtype)?)?;
            keywords.set_item("device", "cpu")?;
            keywords.set_item("requires_grad", requires_grad)?;
            torch.call_method("zeros", (2,), Some(&keywords))
        };
        let untouched = [
            make("float32", false)?,
            make("complex64", false)?,
            make("int64", false)?,
        ];
        let recording = [make("float32", true)?, make("complex64", true)?];
        let mut samples = Vec::new();
        for tensor in untouched.iter().chain(&recording) {
            let address: usize = tensor.getattr(intern!(py, "_cdata"))?.extract()?;
            if !tensor.get_type().is(class) {
                return Ok(None);
            }
            samples.push((tensor.as_ptr().cast_const().cast::<u8>(), address));
        }
        let mut places = (HEAD..size.saturating_sub(WORD - 1)).step_by(WORD);
        let holds = |&place: &usize| {
            samples.iter().all(|&(object, address)| {
                // SAFETY: a live object of `size` bytes, of which these are the word at `place`.
                unsafe { word(object, place) }.addr() == address
            })
        };
        let Some(tensor_impl) = places.find(holds) else {
            return Ok(None);
        };
        let is_meta = |&meta: &usize| {
            let candidate = Self { tensor_impl, meta };
            // SAFETY: live tensors, whose `TensorImpl` was found at this place in each of them.
            let is_null = |tensor: &Bound<'_, PyAny>| unsafe { candidate.is_null(tensor) };
            untouched.iter().all(is_null) && !recording.iter().any(is_null)
        };
        let mut found = (FIRST..LAST).step_by(WORD).filter(is_meta);
        // Two candidates would mean that this is not understood.
        let first = found.next().filter(|_| found.next().is_none());
        Ok(first.map(|meta| Self { tensor_impl, meta }))
    }

    /// Whether autograd has never touched `tensor`, so that it records no gradients.
    ///
    /// # Safety
    ///
    /// `tensor` is of the type that [`Self::find`] looked at, or of a subclass with its layout.
    #[inline(always)]
    pub(super) unsafe fn is_null(self, tensor: &Bound<'_, PyAny>) -> bool {
        // SAFETY: a live tensor, as the caller promises; its `TensorImpl` is at this place.
        let tensor_impl = unsafe { word(tensor.as_ptr().cast_const().cast(), self.tensor_impl) };
        // SAFETY: the tensor keeps it alive, and it is larger than `LAST`.
        unsafe { word(tensor_impl, self.meta) }.is_null()
    }
}

/// The pointer that is `offset` bytes into `object`.
///
/// # Safety
///
/// `object` is aligned, and this word of it can be read.
#[inline(always)]
unsafe fn word(object: *const u8, offset: usize) -> *const u8 {
    // SAFETY: the caller's promise.
    let place = unsafe { object.add(offset) };
    // SAFETY: the caller's promise.
    unsafe { place.cast::<*const u8>().read() }
}
