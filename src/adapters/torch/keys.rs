//! Where a torch tensor says what it is: the set of its dispatch keys, by which torch itself decides. Found by trial.
//!
//! To ask `requires_grad`, `is_neg` and `is_conj` costs more than the export of the tensor. All that makes a tensor
//! something else than its memory shows (lazily conjugated or negated, sparse, without memory, wrapped by a
//! transform) is a key of this set, which is one word of the `TensorImpl`. torch does not promise where, but names the
//! set of any tensor, so the word is looked for among many tensors, and if it is not found every tensor is asked.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Where the words are, in bytes, and what they are in a tensor whose memory holds its elements.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// In the Python object: the `TensorImpl`.
    tensor_impl: usize,
    /// In the `TensorImpl`: the set of dispatch keys.
    keys: usize,
    /// In the `TensorImpl`: the autograd state, NULL without.
    autograd: usize,
    /// In the `TensorImpl`: the `StorageImpl`; in that one: where the memory begins, and its size in bytes.
    storage: usize,
    base: usize,
    nbytes: usize,
    /// The keys of a tensor in the memory of the CPU, and of one of inference mode.
    plain: [u64; 2],
}

/// What a tensor says of itself.
pub(super) enum Found {
    /// Its memory holds its elements, and it records no gradient.
    Plain,
    /// Its memory holds its elements; whether it records a gradient has to be asked.
    MayRecord,
    /// It has to be asked.
    Unknown,
}

const WORD: usize = size_of::<usize>();
/// Where the `TensorImpl` may be in a Python object: behind its head.
const HEAD: usize = size_of::<ffi::PyObject>();
/// How much of a `TensorImpl` is looked at.
const WORDS: usize = 32;

/// A tensor of which everything is known.
struct Sample {
    object: *const u8,
    address: u64,
    words: [u64; WORDS],
    keys: u64,
    has_state: Option<bool>,
    /// Address, where the memory begins, its size: of a tensor whose memory holds its elements.
    storage: Option<(u64, u64, u64)>,
    storage_words: [u64; WORDS],
}

impl Layout {
    /// Looks for it in tensors of `class`, which is `torch.Tensor`; `None` if torch keeps it otherwise.
    pub(super) fn find(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<Option<Self>> {
        let py = torch.py();
        // Read as a file, memory that is not there is an error.
        let memory = File::open("/proc/self/mem")?;
        let made = py.import("dlx._torch")?.call_method1("samples", (torch,))?;
        let mut samples = Vec::new();
        for sample in made.try_iter()? {
            let sample = sample?;
            let (tensor, keys, has_state, storage): (Bound<'_, PyAny>, _, _, _) =
                sample.extract()?;
            let address = tensor.getattr(intern!(py, "_cdata"))?.extract()?;
            if !tensor.get_type().is(class) {
                return Ok(None);
            }
            samples.push(Sample {
                object: tensor.as_ptr().cast_const().cast(),
                address,
                words: words_at(&memory, address)?,
                keys,
                has_state,
                storage,
                storage_words: match storage {
                    Some((address, ..)) => words_at(&memory, address)?,
                    None => [0; WORDS],
                },
            });
        }
        let size: usize = class.getattr(intern!(py, "__basicsize__"))?.extract()?;
        let all = |is: &dyn Fn(&Sample) -> bool| samples.iter().all(is);
        let holds = |&place: &usize| {
            all(&|sample| {
                // SAFETY: the list holds the object, which has `size` bytes; these are the word at `place`.
                let found = unsafe { word(sample.object, place) };
                found == sample.address
            })
        };
        let places = (HEAD..size.saturating_sub(WORD - 1)).step_by(WORD);
        let tensor_impl = only(places.filter(holds));
        let keys = only((0..WORDS).filter(|&at| all(&|sample| sample.words[at] == sample.keys)));
        let (Some(tensor_impl), Some(keys)) = (tensor_impl, keys) else {
            return Ok(None);
        };
        let autograd = only((0..keys).filter(|&at| {
            all(&|sample| {
                sample
                    .has_state
                    .is_none_or(|has| has == (sample.words[at] != 0))
            })
        }));
        let plain = || {
            samples
                .iter()
                .filter_map(|sample| Some((sample, sample.storage?)))
        };
        let storage =
            only((0..keys).filter(|&at| plain().all(|(of, (is, ..))| of.words[at] == is)));
        let base = only(
            (0..WORDS).filter(|&at| plain().all(|(of, (_, is, _))| of.storage_words[at] == is)),
        );
        let nbytes = only(
            (0..WORDS).filter(|&at| plain().all(|(of, (_, _, is))| of.storage_words[at] == is)),
        );
        let (Some(autograd), Some(storage), Some(base), Some(nbytes)) =
            (autograd, storage, base, nbytes)
        else {
            return Ok(None);
        };
        let mut sets: Vec<u64> = plain().map(|(sample, _)| sample.keys).collect();
        // Those of inference mode are the last.
        sets.dedup();
        let lies = |sample: &Sample| sample.storage.is_none() && sets.contains(&sample.keys);
        let &[first, second] = &sets[..] else {
            return Ok(None);
        };
        Ok((!samples.iter().any(lies)).then_some(Self {
            tensor_impl,
            keys: keys * WORD,
            autograd: autograd * WORD,
            storage: storage * WORD,
            base: base * WORD,
            nbytes: nbytes * WORD,
            plain: [first, second],
        }))
    }

    /// The `TensorImpl` of `tensor`.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] looked at.
    #[inline(always)]
    unsafe fn tensor_impl(self, tensor: &Bound<'_, PyAny>) -> *const u8 {
        // SAFETY: a live tensor of that layout, as the caller promises.
        pointer(unsafe { word(tensor.as_ptr().cast_const().cast(), self.tensor_impl) })
    }

    /// What `tensor` says of itself.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] looked at.
    #[inline(always)]
    pub(super) unsafe fn read(self, tensor: &Bound<'_, PyAny>) -> Found {
        // SAFETY: the caller's promise.
        let tensor_impl = unsafe { self.tensor_impl(tensor) };
        // SAFETY: the tensor keeps its `TensorImpl`, every one of which has this word (S13).
        let keys = unsafe { word(tensor_impl, self.keys) };
        // SAFETY: as above.
        let autograd = unsafe { word(tensor_impl, self.autograd) };
        match (self.plain.contains(&keys), autograd) {
            (true, 0) => Found::Plain,
            (true, _) => Found::MayRecord,
            (false, _) => Found::Unknown,
        }
    }

    /// Where the storage of `tensor` begins, and its size in bytes; 0 without a storage.
    ///
    /// # Safety
    ///
    /// `tensor` has the layout of the type that [`Self::find`] looked at.
    #[inline(always)]
    pub(super) unsafe fn storage(self, tensor: &Bound<'_, PyAny>) -> (u64, u64) {
        // SAFETY: the caller's promise.
        let tensor_impl = unsafe { self.tensor_impl(tensor) };
        // SAFETY: as in `read`.
        let storage = pointer(unsafe { word(tensor_impl, self.storage) });
        if storage.is_null() {
            return (0, 0);
        }
        // SAFETY: the storage that the tensor holds (S13).
        let base = unsafe { word(storage, self.base) };
        // SAFETY: as above.
        let nbytes = unsafe { word(storage, self.nbytes) };
        (base, nbytes)
    }
}

/// The words from `address` on.
fn words_at(mut memory: &File, address: u64) -> PyResult<[u64; WORDS]> {
    let mut bytes = [0; WORDS * 8];
    memory.seek(SeekFrom::Start(address))?;
    memory.read_exact(&mut bytes)?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Ok(words)
}

/// The pointer that a word is.
#[inline(always)]
fn pointer(word: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(word as usize)
}

/// The one item; more than one would mean that this is not understood.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}

/// The word that is `offset` bytes into `object`.
///
/// # Safety
///
/// `object` is aligned, and this word of it can be read.
#[inline(always)]
unsafe fn word(object: *const u8, offset: usize) -> u64 {
    // SAFETY: the caller's promise.
    let place = unsafe { object.add(offset) };
    // SAFETY: the caller's promise.
    unsafe { place.cast::<u64>().read() }
}
