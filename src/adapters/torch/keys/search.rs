//! The search for the words that `keys.rs` reads, once per process.
//!
//! torch can print the dispatch key set of any tensor, so [`Layout::find`] searches for the word, and for the others,
//! among samples:
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
//! plain        = the key sets of the plain samples, two (the second of inference mode), which no other sample has;
//!                for CUDA those that torch's keys make, if the keys of the CPU make these two
//! ```
//!
//! If any of this fails, dlx asks torch about every tensor. Whether a tensor records gradients is no word: for a view it
//! depends on the base. torch's own function tells, without the way through Python, if it agrees with every sample.

use std::fs::File;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::{Layout, Records, pointer, word};
use crate::adapters::torch::TORCH;
use crate::adapters::versions::words_at;
use crate::cpython::modules::python;
use crate::cpython::once::intern;

const WORD: usize = size_of::<usize>();
/// Where the search for the `TensorImpl` starts in a Python object: behind its head.
const HEAD: usize = size_of::<ffi::PyObject>();
/// How many words of a struct to search.
const WORDS: usize = 32;

/// A tensor with its expected values, as `dlx._libraries.torch` makes it.
struct Sample<'py> {
    tensor: Bound<'py, PyAny>,
    address: u64,
    keys: u64,
    number: u16,
    has_state: Option<bool>,
    records: bool,
    has_tangent: bool,
    /// For a plain tensor, the address of the `StorageImpl`, and start and size of the memory.
    storage: Option<(u64, u64, u64)>,
    /// What is read at the address, and at that of the `StorageImpl`.
    words: Vec<u64>,
    storage_words: Vec<u64>,
}

impl<'py> FromPyObject<'_, 'py> for Sample<'py> {
    type Error = PyErr;

    fn extract(made: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            tensor: made.getattr("tensor")?,
            address: made.getattr("address")?.extract()?,
            keys: made.getattr("keys")?.extract()?,
            number: made.getattr("number")?.extract()?,
            has_state: made.getattr("has_state")?.extract()?,
            records: made.getattr("records")?.extract()?,
            has_tangent: made.getattr("has_tangent")?.extract()?,
            storage: made.getattr("storage")?.extract()?,
            words: Vec::new(),
            storage_words: Vec::new(),
        })
    }
}

impl Layout {
    /// Searches for the words in samples of `class`, which is `torch.Tensor`; `None` if torch lays them out
    /// differently.
    pub(crate) fn find(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<Option<Self>> {
        let py = torch.py();
        // Read as a file, unmapped memory is an error and not a fault.
        let memory = File::open("/proc/self/mem")?;
        let made = python(py, TORCH, "samples", (torch,))?;
        let mut samples: Vec<Sample<'_>> = made.extract()?;
        for of in &mut samples {
            if !of.tensor.get_type().is(class) {
                return Ok(None);
            }
            of.words = words_at(&memory, of.address, WORDS)?;
            if let Some((address, ..)) = of.storage {
                of.storage_words = words_at(&memory, address, WORDS)?;
            }
        }
        let size = class.getattr(intern!(py, "__basicsize__"))?.extract()?;
        // SAFETY: the size of the class of all samples.
        let found = unsafe { Self::fitting(&samples, size, &memory) };
        let Some(found) = found else { return Ok(None) };
        let made = |backend| {
            python(py, TORCH, "key_sets", (torch, backend))?.extract::<Option<[u64; 2]>>()
        };
        let [cpu, _] = found.plain;
        let plain = match (made("CPU")?, made("CUDA")?) {
            (Some(proof), Some(cuda)) if proof == cpu => [cpu, cuda],
            _ => found.plain,
        };
        Ok(Some(Self { plain, ..found }))
    }

    /// The only layout that fits the samples.
    ///
    /// # Safety
    ///
    /// The object of each sample has `size` bytes.
    unsafe fn fitting(samples: &[Sample<'_>], size: usize, memory: &File) -> Option<Self> {
        let all = |is: &dyn Fn(&Sample<'_>) -> bool| samples.iter().all(is);
        let holds = |&place: &usize| {
            all(&|sample| {
                let object = sample.tensor.as_ptr().cast_const().cast();
                // SAFETY: the sample holds the object, which has `size` bytes; the word at `place` lies within them.
                let found = unsafe { word(object, place) };
                found == sample.address
            })
        };
        let places = (HEAD..size.saturating_sub(WORD - 1)).step_by(WORD);
        let tensor_impl = only(places.filter(holds))?;
        let place = |end, fits: &dyn Fn(usize) -> bool| only((0..end).filter(|&at| fits(at)));
        let keys = place(WORDS, &|at| all(&|of| of.words[at] == of.keys))?;
        let has_state =
            |at| move |of: &Sample<'_>| of.has_state.is_none_or(|has| has == (of.words[at] != 0));
        let autograd = place(keys, &|at| all(&has_state(at)))?;
        let plain = || samples.iter().filter_map(|of| Some((of, of.storage?)));
        let storage = place(keys, &|at| plain().all(|(of, (is, ..))| of.words[at] == is))?;
        let base = place(WORDS, &|at| {
            plain().all(|(of, (_, is, _))| of.storage_words[at] == is)
        })?;
        let nbytes = place(WORDS, &|at| {
            plain().all(|(of, (_, _, is))| of.storage_words[at] == is)
        })?;
        let number = place(WORDS * 4, &|at| all(&|of| half(&of.words, at) == of.number))?;
        let mut states = Vec::new();
        for of in samples.iter().filter(|of| of.words[autograd] != 0) {
            let words = words_at(memory, of.words[autograd], WORDS).ok()?;
            states.push((of.has_tangent, words));
        }
        let shows = |at: usize| states.iter().all(|(has, words)| *has == (words[at] != 0));
        let tangents = place(WORDS - 1, &|at| shows(at) && shows(at + 1))?;
        let has_tangents = states.iter().any(|(has, _)| *has);
        let mut sets: Vec<u64> = plain().map(|(of, _)| of.keys).collect();
        // Samples of inference mode come last, so equal sets are adjacent.
        sets.dedup();
        let lies = |of: &Sample<'_>| of.storage.is_none() && sets.contains(&of.keys);
        let cpu = sets[..].try_into().ok()?;
        let agrees = |&records: &Records| {
            let address = |of: &Sample<'_>| pointer(of.address);
            // SAFETY: the `TensorImpl` of a live tensor, and the function that torch has for it (S8, torch's functions).
            all(&|of| unsafe { records(address(of)) } == of.records)
        };
        (has_tangents && !samples.iter().any(lies)).then(|| Self {
            tensor_impl,
            keys: keys * WORD,
            number: number * 2,
            autograd: autograd * WORD,
            tangents: tangents * WORD,
            storage: storage * WORD,
            base: base * WORD,
            nbytes: nbytes * WORD,
            plain: [cpu; 2],
            records: records().filter(agrees),
        })
    }
}

/// torch's function, in the library that is loaded.
#[cfg(unix)]
fn records() -> Option<Records> {
    use libloading::os::unix::Library;

    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: loads nothing, so no initializers run.
    let library = unsafe { Library::open(Some("libc10.so"), flags) }.ok()?;
    let name = b"_ZNK3c1010TensorImpl13requires_gradEv\0";
    // SAFETY: the name encodes class, method and arguments of the C++ function, which takes its object as first argument,
    // and outlives this handle, as torch's extension module is never unloaded (S8).
    let found = unsafe { library.get::<Records>(name) }.ok()?;
    Some(*found)
}

/// Never found: the search needs `/proc`.
#[cfg(not(unix))]
fn records() -> Option<Records> {
    None
}

/// The half word at a place of words.
fn half(words: &[u64], at: usize) -> u16 {
    let (bytes, from) = (words[at / 4].to_ne_bytes(), at % 4 * 2);
    u16::from_ne_bytes([bytes[from], bytes[from + 1]])
}

/// The only item; several would mean an ambiguous search.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}
