//! The importers of libraries without a table: what `dlx._provided` finds, and what is remembered of that.

#![forbid(unsafe_code)]

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyModule, PyString, PyTuple, PyType};

use crate::abi::DLDataType;
use crate::cpython::call::{attribute, call_method_with, call_with};
use crate::cpython::lookup::{is_immutable, lacks};
use crate::cpython::type_map::TypeMap;

/// The importer of a library, called with a `dlx.Tensor`.
pub(crate) struct Importer {
    function: Py<PyAny>,
    namespace: Py<PyAny>,
    look: Look,
    /// Whether it is used for good, or while it is the `from_dlpack` of the namespace; `None` for one call.
    lasts: Option<bool>,
}

/// How the memory and the dtype of a result are seen.
enum Look {
    /// By the dtype that it names, and by an import.
    Whole,
    /// By an import of what this function returns in less time.
    Part(Py<PyAny>),
    /// By an import, once for each dtype: the library keeps what it is given.
    Once(Kept),
}

/// Cached importers; classes that find no slot are looked up at each call.
static IMPORTERS: TypeMap<Importer, 16> = TypeMap::new();

/// An importer for one conversion.
pub(crate) enum Found {
    Cached(&'static Importer),
    New(Box<Importer>),
}

impl Deref for Found {
    type Target = Importer;

    fn deref(&self) -> &Importer {
        match self {
            Self::Cached(importer) => importer,
            Self::New(importer) => importer,
        }
    }
}

impl Found {
    /// The cached importer of a class that Python code cannot change, so that it can have got neither a table nor an
    /// importer of its own.
    #[inline(never)]
    pub(super) fn of_immutable(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        match IMPORTERS.get(class.as_type_ptr()) {
            Some(known) if is_immutable(class) && known.holds(class.py())? => {
                Ok(Some(Self::Cached(known)))
            }
            _ => Ok(None),
        }
    }

    /// Not inlined: classes with a table skip it.
    #[cold]
    #[inline(never)]
    pub(super) fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = class.py();
        // A class without the method is the most common; asking it by `getattr` would make an exception.
        let name = intern!(py, "from_dlpack");
        let question = if lacks(class, &[name]) {
            if let Some(known) = IMPORTERS.get(class.as_type_ptr())
                && known.holds(py)?
            {
                return Ok(Self::Cached(known));
            }
            intern!(py, "importing_by_package")
        } else {
            intern!(py, "importing")
        };
        let found = provided(question, class)?.cast_into::<PyTuple>()?;
        let new = Importer::read(&found)?;
        if new.lasts.is_some() {
            IMPORTERS.add(class, Importer::read(&found)?);
        }
        Ok(Self::New(Box::new(new)))
    }
}

impl Importer {
    /// An answer of `dlx._provided`.
    #[cold]
    fn read(found: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let look = found.get_item(2)?;
        Ok(Self {
            function: found.get_item(0)?.unbind(),
            namespace: found.get_item(1)?.unbind(),
            look: match look.is_none() {
                true => Look::Whole,
                false if look.is(&*PyBool::new(look.py(), true)) => Look::Once(Kept::default()),
                false => Look::Part(look.unbind()),
            },
            lasts: found.get_item(3)?.extract()?,
        })
    }

    /// Whether a cached one may still be used.
    fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        let now = || attribute(self.namespace(py), intern!(py, "from_dlpack"));
        Ok(self.lasts == Some(true) || now()?.is_some_and(|now| now.is(&self.function)))
    }

    pub(crate) fn function<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.function.bind(py)
    }

    /// Where the library's dtypes have their names; None if unknown.
    pub(crate) fn namespace<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.namespace.bind(py)
    }

    /// The dtypes that the library has been seen to keep, if it keeps whatever it is given.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match &self.look {
            Look::Once(kept) => Some(kept),
            _ => None,
        }
    }

    /// The memory of `made`, if there is a shorter look at it than by its own protocols.
    pub(crate) fn look<'py>(&self, made: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        match &self.look {
            Look::Whole => None,
            Look::Once(_) => Some(made.clone()),
            // Whatever fails here, the object's own protocols tell, too.
            Look::Part(look) => call_with(look.bind(made.py()), &[made]).ok(),
        }
    }
}

/// What `function` of `dlx._provided` answers for `x`.
pub(super) fn provided<'py>(
    function: &Bound<'py, PyString>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let py = x.py();
    let module =
        MODULE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("dlx._provided")?.unbind()))?;
    call_method_with(module.bind(py), function, &[x])
}

/// A set of dtypes, which only grows; those that find no place are not in it.
#[derive(Default)]
pub(crate) struct Kept([AtomicU32; 8]);

impl Kept {
    /// Whether the set has `dtype`.
    pub(crate) fn has(&self, dtype: DLDataType) -> bool {
        let number = number(dtype);
        let places = self.0.iter().map(|place| place.load(Ordering::Relaxed));
        places
            .take_while(|&there| there != 0)
            .any(|there| there == number)
    }

    /// Adds `dtype`.
    pub(crate) fn add(&self, dtype: DLDataType) {
        let number = number(dtype);
        let free = |place: &AtomicU32| {
            place.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
        };
        // Another thread may have added it first.
        let _ = (self.0.iter())
            .find(|place| free(place).map_or_else(|there| there == number, |_| true));
    }
}

/// A number for each dtype; not 0, which has no bits.
fn number(DLDataType { code, bits, lanes }: DLDataType) -> u32 {
    let [low, high] = lanes.to_le_bytes();
    u32::from_le_bytes([code.0, bits, low, high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::DLDataTypeCode;

    #[test]
    fn a_set_has_what_was_added_while_there_was_room() {
        let (kept, dtype) = (Kept::default(), |bits| DLDataType {
            code: DLDataTypeCode(0),
            bits,
            lanes: 1,
        });
        for bits in 1..=9 {
            assert!(!kept.has(dtype(bits)));
            kept.add(dtype(bits));
            kept.add(dtype(bits));
            assert_eq!(kept.has(dtype(bits)), bits <= 8);
        }
        assert!((1..=8).all(|bits| kept.has(dtype(bits))));
    }
}
