//! The counts by which torch and Paddle see that memory was written to, found through what they export.
//!
//! A managed tensor of either holds the tensor, and that a pointer to the count, which all its views share. Neither
//! documents where, but both tell the count of any tensor, so [`Way::find`] searches for it in exports of tensors
//! that were written to 11, 37 and 101 times. What has the same deleter is a struct of the same type (S13).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};

use crate::cpython::modules::python;
use crate::cpython::once::Once;
use crate::tensor::capsule;
use crate::tensor::managed::Maker;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::caused;

/// The count of the tensor that a snapshot, which is kept, came from.
pub(crate) struct Counter {
    count: NonNull<u32>,
    #[expect(dead_code, reason = "held for the count")]
    of: Snapshot,
}

// SAFETY: the count is accessed atomically, and lives as long as the snapshot.
unsafe impl Send for Counter {}
// SAFETY: as for `Send`.
unsafe impl Sync for Counter {}

impl Counter {
    /// Counts once more.
    pub(crate) fn increment(&self) {
        // SAFETY: aligned, and alive with the snapshot; torch changes it atomically, Paddle with the GIL.
        let count = unsafe { AtomicU32::from_ptr(self.count.as_ptr()) };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where the managed tensors of a library have the count, once it is found.
pub(super) struct Places {
    library: &'static str,
    /// The class of its tensors, if it is loaded.
    class: fn(Python<'_>) -> PyResult<Option<Bound<'_, PyType>>>,
    found: Once<Vec<Place>>,
}

impl Places {
    pub(super) const fn new(
        library: &'static str,
        class: fn(Python<'_>) -> PyResult<Option<Bound<'_, PyType>>>,
    ) -> Self {
        Self {
            library,
            class,
            found: Once::new(),
        }
    }

    /// The counter of a snapshot's memory, if its maker is the library; `None` also if that counts nothing for it, as torch in
    /// inference mode.
    ///
    /// # Errors
    ///
    /// `BufferError` if the library would not learn that it was written to.
    pub(super) fn counter(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        maker: Maker,
    ) -> PyResult<Option<Counter>> {
        let Some(class) = (self.class)(py)? else {
            return Ok(None);
        };
        let library = self.library;
        let made;
        let places = match self.found.get(py) {
            Some(places) => places,
            None => {
                made = places_of(&class, library).map_err(|error| untold(py, library, error))?;
                // What was not found may be found later: a mode may have changed the samples.
                match made.iter().all(|place| place.way.is_some()) {
                    true => self.found.get_or_init(py, || made),
                    false => &made,
                }
            }
        };
        let Some(place) = places.iter().find(|place| place.deleter == maker.deleter) else {
            return Ok(None);
        };
        let Some(way) = &place.way else {
            return Err(refusal(library));
        };
        // SAFETY: the snapshot keeps the managed tensor, a struct of the type in which this way was found.
        let count = unsafe { way.follow(maker.context) };
        let of = snapshot.clone();
        Ok(count.map(|count| Counter { count, of }))
    }
}

/// The error for memory of a library that would not learn of what is written there.
#[cold]
fn refusal(library: &str) -> PyErr {
    PyBufferError::new_err(format!(
        "the tensor lies in memory of {library}, which dlx cannot tell that it was written to; pass the tensor of \
         {library} itself"
    ))
}

/// The same, for a library that does not make samples.
#[cold]
fn untold(py: Python<'_>, library: &str, error: PyErr) -> PyErr {
    match error.is_instance_of::<PyException>(py) {
        true => caused(py, refusal(library), error),
        false => error,
    }
}

/// Where the managed tensors with one deleter have the count.
struct Place {
    deleter: usize,
    way: Option<Way>,
}

/// The offsets of one or two pointers, each in what the one before it points to, and that of the count.
struct Way {
    pointers: Vec<usize>,
    count: usize,
}

/// A managed tensor, and its count.
struct Sample {
    #[expect(dead_code, reason = "held for its maker")]
    of: Snapshot,
    maker: Maker,
    count: u32,
}

/// Searches in what `dlx._libraries.written` makes of a tensor class: for each kind of capsule, capsules and their counts.
fn places_of(class: &Bound<'_, PyType>, library: &str) -> PyResult<Vec<Place>> {
    let question = format!("of_{library}");
    let kinds = python(class.py(), "dlx._libraries.written", &question, (class,))?;
    let kinds: Vec<Vec<(Bound<'_, PyCapsule>, u32)>> = kinds.extract()?;
    let mut places = Vec::new();
    for kind in kinds {
        let mut samples = Vec::new();
        for (capsule, count) in kind {
            let of = capsule::import(&capsule, None)?;
            let Some(maker) = of.maker() else { continue };
            samples.push(Sample { of, maker, count });
        }
        let Some(first) = samples.first() else {
            continue;
        };
        let is_one = |sample: &Sample| sample.maker.deleter == first.maker.deleter;
        places.push(Place {
            deleter: first.maker.deleter,
            way: Way::find(&samples).filter(|_| samples.iter().all(is_one)),
        });
    }
    Ok(places)
}

const WORD: usize = size_of::<usize>();
/// How many words to search of the struct that holds the count, of one that points to it, and of a managed tensor.
const COUNTED: usize = 3;
const POINTING: usize = 16;
const MANAGED: usize = 128;

impl Way {
    /// The first way that leads to the count in every sample.
    fn find(samples: &[Sample]) -> Option<Self> {
        // Read as a file, unmapped memory is an error and not a fault.
        let memory = File::open("/proc/self/mem").ok()?;
        let managed = samples.iter().map(|sample| sample.maker);
        let words = (samples.first()?.maker.size / WORD).min(MANAGED);
        let managed =
            managed.map(|maker| words_at(&memory, maker.context.addr() as u64, words).ok());
        let managed: Vec<_> = managed.collect::<Option<_>>()?;
        Self::from(&memory, samples, &managed, &[])
    }

    /// As [`Self::find`], from these structs on, to which the `pointers` lead.
    fn from(
        memory: &File,
        samples: &[Sample],
        structs: &[Vec<u64>],
        pointers: &[usize],
    ) -> Option<Self> {
        let behind = |place: usize, words: usize| -> Option<Vec<Vec<u64>>> {
            let pointed = structs.iter().map(|of| words_at(memory, of[place], words));
            pointed.map(Result::ok).collect()
        };
        let to = |place: usize| [pointers, &[place * WORD]].concat();
        let places = 0..structs.first()?.len();
        let counted = places.clone().find_map(|place| {
            let counts = behind(place, COUNTED)?;
            let mut halves = (0..COUNTED * 2).map(|half| half * 4);
            let count = halves.find(|&at| {
                (samples.iter().zip(&counts)).all(|(sample, of)| {
                    let bytes = of[at / WORD].to_ne_bytes();
                    bytes[at % WORD..].starts_with(&sample.count.to_ne_bytes())
                })
            })?;
            let pointers = to(place);
            Some(Self { pointers, count })
        });
        let mut deeper = places.filter(|_| pointers.is_empty());
        counted.or_else(|| {
            deeper.find_map(|place| {
                Self::from(memory, samples, &behind(place, POINTING)?, &to(place))
            })
        })
    }

    /// The count, unless a pointer on the way is NULL.
    ///
    /// # Safety
    ///
    /// `context` points to a live struct of the type in which this way was found.
    unsafe fn follow(&self, context: *const u8) -> Option<NonNull<u32>> {
        let mut at = context.cast_mut();
        for offset in &self.pointers {
            // SAFETY: inside of the struct, as the caller promises.
            let place = unsafe { at.add(*offset) };
            // SAFETY: a pointer of the struct, aligned as it was in every sample.
            at = unsafe { place.cast::<*mut u8>().read() };
            if at.is_null() {
                return None;
            }
        }
        // SAFETY: inside of the struct that holds the count.
        let count = unsafe { at.add(self.count) };
        NonNull::new(count.cast::<u32>())
    }
}

/// The first words at `address`, which the file of this process's memory has.
pub(super) fn words_at(mut memory: &File, address: u64, words: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; words * 8];
    memory.seek(SeekFrom::Start(address))?;
    memory.read_exact(&mut bytes)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}
