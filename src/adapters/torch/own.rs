//! What decides of the export of a torch tensor in place of its class: a `__dlpack__` of the tensor itself.
//!
//! It is rare, and asking costs more than the export. A tensor without attributes of its own has no dict, which one word
//! of the object shows; where that lies is found by trial (S13, torch's layout).

use std::fs::File;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::keys::only;
use crate::adapters::versions::words_at;
use crate::cpython::head;
use crate::cpython::lookup::is_method_of_class;
use crate::cpython::once::intern;

/// Where to look.
#[derive(Clone, Copy)]
pub(crate) struct Own {
    /// The bytes from the object to the pointer to its dict.
    dict: isize,
}

const WORD: usize = size_of::<usize>();
/// CPython keeps the dict of an object before the object, or behind its fields.
const BEFORE: usize = 4 * WORD;

impl Own {
    /// Searches in tensors of `class`, which is `torch.Tensor`, and in Parameters.
    pub(super) fn find(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<Option<Self>> {
        let parameter = torch.getattr("nn")?.getattr("Parameter")?;
        let in_parameters = places_in(torch, parameter.cast()?)?;
        let places = places_in(torch, class)?.into_iter();
        let dict = only(places.filter(|at| in_parameters.contains(at)));
        Ok(dict.map(|dict| Self { dict }))
    }

    /// For tensors of which nothing is known: the word is the type, which every object has.
    pub(super) fn unknown() -> Self {
        Self {
            dict: (head::size() - WORD) as isize,
        }
    }

    /// Whether only the class of `tensor` decides, which is one of the two that [`Self::find`] examined.
    #[inline(always)]
    pub(crate) fn is_absent(self, tensor: &Bound<'_, PyAny>) -> bool {
        let object = tensor.as_ptr().cast_const().cast::<u8>();
        // SAFETY: an object of such a class has this word (S13).
        let dict = unsafe { object.offset(self.dict) };
        // SAFETY: as above, and aligned; CPython changes it with the GIL.
        unsafe { dict.cast::<usize>().read() == 0 }
    }
}

/// Where a tensor of `class` has a word that is NULL as long as it has no attributes, and then points to its dict.
fn places_in(torch: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<Vec<isize>> {
    let py = torch.py();
    // Read as a file, unmapped memory is an error and not a fault.
    let memory = File::open("/proc/self/mem")?;
    let size: usize = class.getattr(intern!(py, "__basicsize__"))?.extract()?;
    let keywords = PyDict::new(py);
    keywords.set_item("device", "cpu")?;
    let plain = torch.call_method("empty", (0,), Some(&keywords))?;
    let tensor = class.call_method1("_make_subclass", (class, plain))?;
    if !tensor.get_type().is(class) {
        return Ok(Vec::new());
    }
    let start = (tensor.as_ptr().addr() - BEFORE) as u64;
    let words = || words_at(&memory, start, (BEFORE + size) / WORD);
    let fresh = words()?;
    tensor.setattr(intern!(py, "x"), 1)?;
    let set = words()?;
    let dict = tensor.getattr(intern!(py, "__dict__"))?;
    let shown = words()?;
    let other = PyDict::new(py);
    tensor.setattr(intern!(py, "__dict__"), &other)?;
    let replaced = words()?;
    let is_it = |&at: &usize| {
        fresh[at] == 0
            && set[at] != 0
            && shown[at] == dict.as_ptr().addr() as u64
            && replaced[at] == other.as_ptr().addr() as u64
    };
    let offset = |at: usize| (at * WORD) as isize - BEFORE as isize;
    Ok((0..fresh.len()).filter(is_it).map(offset).collect())
}

/// Whether `tensor`, of a class of torch's own, has a `__dlpack__` other than its class's.
#[cold]
#[inline(never)]
pub(super) fn is_overridden(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(is_method_of_class(tensor, intern!(tensor.py(), "__dlpack__"))? != Some(true))
}
