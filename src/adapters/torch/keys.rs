//! Finds and reads the words by which a torch tensor shows what it is, above all its dispatch key set.
//!
//! Calling `requires_grad`, `is_neg` and `is_conj` costs more than exporting the tensor. Whatever makes the elements
//! differ from what the memory holds (lazy conjugation or negation, sparsity, no memory, a transform) is a key in the
//! set, one word of the `TensorImpl`. torch does not document where, but can print the set of any tensor, so
//! [`Layout::find`] searches for the word, and for the others, among samples:
//!
//! ```text
//! samples      = tensors of many kinds, plain ones in CPU memory and others, with what torch says of each
//! tensor_impl  = the only word of the Python objects that is `_cdata` in every sample
//! keys         = the only word of the TensorImpls that is the key set in every sample
//! number       = the only half word of the TensorImpls that is the number of the dtype in every sample
//! autograd     = the only word before `keys` that is NULL exactly in samples without autograd state
//! tangents     = the first of the only two words of the autograd states that are NULL but where a tangent was set
//! storage      = the only word before `keys` that points to the StorageImpl in every plain sample
//! base, nbytes = the only words of the StorageImpls that are start and size of the memory in every plain sample
//! plain        = the key sets of the plain samples, two (the second of inference mode), which no other sample has
//! ```
//!
//! If any of this fails, dlx asks torch about every tensor. Whether a tensor records gradients is no word: for a view it
//! depends on the base. torch's own function tells, without the way through Python, if it agrees with every sample.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

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
    /// The keys of a plain CPU tensor, outside and in inference mode.
    plain: [u64; 2],
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

/// A sample as `dlx._torch` makes it.
type Made<'py> = (
    Bound<'py, PyAny>,
    u64,
    u16,
    Option<bool>,
    bool,
    bool,
    Option<(u64, u64, u64)>,
);

const WORD: usize = size_of::<usize>();
/// Where the search for the `TensorImpl` starts in a Python object: behind its head.
const HEAD: usize = size_of::<ffi::PyObject>();
/// How many words of a struct to search.
const WORDS: usize = 32;

/// A tensor with its expected values.
struct Sample {
    object: *const u8,
    address: u64,
    words: [u64; WORDS],
    keys: u64,
    number: u16,
    has_state: Option<bool>,
    records: bool,
    has_tangent: bool,
    /// For a plain tensor, the address of the `StorageImpl`, and start and size of the memory.
    storage: Option<(u64, u64, u64)>,
    storage_words: [u64; WORDS],
}

impl Layout {
    /// Searches for the words in samples of `class`, which is `torch.Tensor`; `None` if torch lays them out
    /// differently.
    pub(super) fn find(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<Option<Self>> {
        let py = torch.py();
        // Read as a file, unmapped memory is an error and not a fault.
        let memory = File::open("/proc/self/mem")?;
        let made = py.import("dlx._torch")?.call_method1("samples", (torch,))?;
        let mut samples = Vec::new();
        for sample in made.try_iter()? {
            let sample = sample?;
            let (tensor, keys, number, has_state, records, has_tangent, storage): Made<'_> =
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
                number,
                has_state,
                records,
                has_tangent,
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
                // SAFETY: the sample keeps the object, which has `size` bytes; the word at `place` lies within them.
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
        let number = only((0..WORDS * 4).filter(|&at| all(&|of| half(&of.words, at) == of.number)));
        let (Some(autograd), Some(number), Some(storage), Some(base), Some(nbytes)) =
            (autograd, number, storage, base, nbytes)
        else {
            return Ok(None);
        };
        let mut states = Vec::new();
        for sample in samples.iter().filter(|sample| sample.words[autograd] != 0) {
            states.push((
                sample.has_tangent,
                words_at(&memory, sample.words[autograd])?,
            ));
        }
        let shows = |at: usize| states.iter().all(|(has, words)| *has == (words[at] != 0));
        let tangents = only((0..WORDS - 1).filter(|&at| shows(at) && shows(at + 1)));
        let (Some(tangents), true) = (tangents, states.iter().any(|(has, _)| *has)) else {
            return Ok(None);
        };
        let mut sets: Vec<u64> = plain().map(|(sample, _)| sample.keys).collect();
        // Samples of inference mode come last, so equal sets are adjacent.
        sets.dedup();
        let lies = |sample: &Sample| sample.storage.is_none() && sets.contains(&sample.keys);
        let &[first, second] = &sets[..] else {
            return Ok(None);
        };
        let agrees = |&records: &Records| {
            let address = |sample: &Sample| pointer(sample.address);
            // SAFETY: the `TensorImpl` of a live tensor, and the function that torch has for it (S8, torch's functions).
            all(&|sample| unsafe { records(address(sample)) } == sample.records)
        };
        Ok((!samples.iter().any(lies)).then_some(Self {
            tensor_impl,
            keys: keys * WORD,
            number: number * 2,
            autograd: autograd * WORD,
            tangents: tangents * WORD,
            storage: storage * WORD,
            base: base * WORD,
            nbytes: nbytes * WORD,
            plain: [first, second],
            records: records().filter(agrees),
        }))
    }

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
        match (self.plain.contains(&keys), autograd) {
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

/// torch's function, in the library that is loaded.
fn records() -> Option<Records> {
    // SAFETY: the name encodes class, method and arguments of the C++ function, which takes its object as first argument.
    unsafe { symbol("libc10.so", b"_ZNK3c1010TensorImpl13requires_gradEv\0") }
}

/// A function of a library of torch's that is loaded.
///
/// # Safety
///
/// `F` is a function pointer of the symbol's type.
#[cfg(unix)]
pub(super) unsafe fn symbol<F: Copy>(library: &str, name: &[u8]) -> Option<F> {
    use std::mem::forget;

    use libloading::os::unix::Library;

    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: loads nothing, so no initializers run.
    let library = unsafe { Library::open(Some(library), flags) }.ok()?;
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name) };
    let found = found.ok().map(|found| *found);
    forget(library);
    found
}

/// Never found: the searches need `/proc`.
///
/// # Safety
///
/// None is needed.
#[cfg(not(unix))]
pub(super) unsafe fn symbol<F: Copy>(_library: &str, _name: &[u8]) -> Option<F> {
    None
}

/// The half word at a place of words.
fn half(words: &[u64; WORDS], at: usize) -> u16 {
    let bytes = words[at / 4].to_ne_bytes();
    bytes.as_chunks().0[at % 4..]
        .first()
        .map_or(0, |&half| u16::from_ne_bytes(half))
}

/// The first words at `address`.
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

/// A word as a pointer.
#[inline(always)]
fn pointer(word: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(word as usize)
}

/// The only item; several would mean an ambiguous search.
pub(super) fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
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
