//! What decides of the export of a torch tensor in place of its class: a `__dlpack__` of the tensor itself.
//!
//! It is rare, and asking costs more than the export. A tensor without attributes of its own has no dict, which one word
//! of the object shows; CPython tells where that lies, and a trial whether it shows that.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::cpython::head;
use crate::cpython::lookup::dict_offset;
use crate::cpython::once::intern;

/// Where to look.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Own {
    /// The bytes from the object to the pointer to its dict.
    dict: isize,
}

impl Own {
    /// Where tensors of `class`, which is `torch.Tensor`, and Parameters show it, if both do so in one place.
    pub(super) fn find(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<Option<Self>> {
        let parameter = torch.getattr("nn")?.getattr("Parameter")?;
        let in_parameters = Self::tried(torch, parameter.cast()?)?;
        let own = Self::tried(torch, class)?;
        Ok(own.filter(|_| own == in_parameters))
    }

    /// Where a tensor of `class` has a word that is NULL as long as it has no attributes.
    fn tried(torch: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = torch.py();
        let keywords = PyDict::new(py);
        keywords.set_item("device", "cpu")?;
        let plain = torch.call_method("empty", (0,), Some(&keywords))?;
        let tensor = class.call_method1("_make_subclass", (class, plain))?;
        let Some(dict) = dict_offset(&tensor).filter(|_| tensor.get_type().is(class)) else {
            return Ok(None);
        };
        let own = Self { dict };
        let is_absent = own.is_absent(&tensor);
        tensor.setattr(intern!(py, "x"), 1)?;
        Ok(Some(own).filter(|own| is_absent && !own.is_absent(&tensor)))
    }

    /// For tensors of which nothing is known: the word is the type, which every object has.
    pub(super) fn unknown() -> Self {
        Self {
            dict: (head::size() - size_of::<usize>()) as isize,
        }
    }

    /// Whether only the class of `tensor` decides, which is one of the two that [`Self::find`] examined.
    #[inline(always)]
    pub(crate) fn is_absent(self, tensor: &Bound<'_, PyAny>) -> bool {
        let object = tensor.as_ptr().cast_const().cast::<u8>();
        // SAFETY: an object of such a class has this word (S13, torch's layout).
        let dict = unsafe { object.offset(self.dict) };
        // SAFETY: as above, and aligned; CPython changes it with the GIL.
        unsafe { dict.cast::<usize>().read() == 0 }
    }
}
