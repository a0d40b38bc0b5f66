//! Where a torch tensor shows that it is fresh: neither a view nor recording gradients. Found by trial.
//!
//! Asking `requires_grad` and `is_neg` costs more than exporting the tensor. Every view that torch makes outside
//! of inference mode, lazily conjugated and negated ones among them, and every tensor that records gradients has
//! an autograd state; a tensor of inference mode has no version counter. So a tensor without the one and with the
//! other need not be asked. Both are pointers in the `TensorImpl`. Where they are, torch does not promise: they
//! are looked for among tensors of which all this is known, and if they are not found there is no short way.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// Offsets, in bytes, of the pointers that tell.
#[derive(Clone, Copy)]
pub(super) struct Fresh {
    /// In the Python object: the `TensorImpl`.
    tensor_impl: usize,
    /// In the `TensorImpl`: the autograd state, NULL without.
    autograd_meta: usize,
    /// In the `TensorImpl`: the version counter, NULL for tensors of inference mode.
    version_counter: usize,
}

const WORD: usize = size_of::<usize>();

/// Where the `TensorImpl` may be in a Python object: behind its head.
const HEAD: usize = size_of::<ffi::PyObject>();

/// Where the pointers may be: behind the virtual table and the counts, in a part that every `TensorImpl` has (its
/// inline sizes and strides alone are larger).
const PLACES: std::ops::Range<usize> = 2 * WORD..7 * WORD;

impl Fresh {
    /// Looks for it in tensors of `class`, which is `torch.Tensor`; `None` if torch keeps it otherwise.
    pub(super) fn find(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<Option<Self>> {
        let py = torch.py();
        let zeros = |dtype: &str, requires_grad: bool| {
            let keywords = PyDict::new(py);
            keywords.set_item("dtype", torch.getattr(dtype)?)?;
            keywords.set_item("device", "cpu")?;
            keywords.set_item("requires_grad", requires_grad)?;
            torch.call_method("zeros", (2,), Some(&keywords))
        };
        let conjugated = zeros("complex64", false)?.call_method0("conj")?;
        let inference_mode = torch.call_method0("inference_mode")?;
        let fresh = [
            zeros("float32", false)?,
            zeros("complex64", false)?,
            zeros("int64", false)?,
        ];
        let touched = [
            zeros("float32", true)?,
            conjugated.getattr("imag")?,
            zeros("float32", false)?.get_item(0)?,
            conjugated,
        ];
        let inference = inference_mode
            .call1((torch.getattr("zeros")?,))?
            .call1((2,))?;
        let mut samples = Vec::new();
        for tensor in fresh.iter().chain(&touched).chain([&inference]) {
            if !tensor.get_type().is(class) {
                return Ok(None);
            }
            let address: usize = tensor.getattr(intern!(py, "_cdata"))?.extract()?;
            samples.push((tensor.as_ptr().cast_const().cast::<u8>(), address));
        }
        let size: usize = class.getattr(intern!(py, "__basicsize__"))?.extract()?;
        let mut objects = (HEAD..size.saturating_sub(WORD - 1)).step_by(WORD);
        let holds = |&place: &usize| {
            samples.iter().all(|&(object, address)| {
                // SAFETY: a live object of `size` bytes, of which these are the word at `place`.
                unsafe { word(object, place) }.addr() == address
            })
        };
        let Some(tensor_impl) = objects.find(holds) else {
            return Ok(None);
        };
        let is_null = |tensor: &Bound<'_, PyAny>, place: usize| {
            // SAFETY: a live tensor, whose `TensorImpl` was found at this place.
            unsafe { field(tensor, tensor_impl, place) }.is_null()
        };
        let is_autograd_meta = |&place: &usize| {
            fresh.iter().all(|tensor| is_null(tensor, place))
                && !touched.iter().any(|tensor| is_null(tensor, place))
        };
        let is_version_counter = |&place: &usize| {
            is_null(&inference, place) && !fresh.iter().any(|tensor| is_null(tensor, place))
        };
        let autograd_meta = only(PLACES.step_by(WORD).filter(is_autograd_meta));
        let version_counter = only(PLACES.step_by(WORD).filter(is_version_counter));
        Ok(autograd_meta
            .zip(version_counter)
            .map(|(autograd_meta, version_counter)| Self {
                tensor_impl,
                autograd_meta,
                version_counter,
            }))
    }

    /// Whether `tensor` is neither a view nor records gradients; false where that is not certain.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] looked at.
    #[inline(always)]
    pub(super) unsafe fn is_fresh(self, tensor: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the caller's promise.
        let autograd_meta = unsafe { field(tensor, self.tensor_impl, self.autograd_meta) };
        // SAFETY: the caller's promise.
        let version_counter = unsafe { field(tensor, self.tensor_impl, self.version_counter) };
        autograd_meta.is_null() && !version_counter.is_null()
    }
}

/// The one item; more than one would mean that this is not understood.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}

/// The pointer at `place` in the `TensorImpl` of `tensor`.
///
/// # Safety
///
/// The `TensorImpl` is `tensor_impl` bytes into the object, and `place` is one of [`PLACES`].
#[inline(always)]
unsafe fn field(tensor: &Bound<'_, PyAny>, tensor_impl: usize, place: usize) -> *const u8 {
    // SAFETY: a live tensor, as the caller promises.
    let tensor_impl = unsafe { word(tensor.as_ptr().cast_const().cast(), tensor_impl) };
    // SAFETY: the tensor keeps it alive, and every `TensorImpl` has that place.
    unsafe { word(tensor_impl, place) }
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
