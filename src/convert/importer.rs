//! The importers of libraries without a table: what `dlx._libraries.importers` finds, and what is remembered of that.

#![forbid(unsafe_code)]

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyString, PyType};

use crate::abi::DLDataType;
use crate::adapters::tensorflow;
use crate::cpython::call::{attribute, call_method_with, call_with};
use crate::cpython::fork::Lock;
use crate::cpython::lookup::{is_immutable, lacks};
use crate::cpython::type_map::TypeMap;

/// The importer of a library, called with a `dlx.Tensor`: `Found` of `dlx._libraries.importers`.
#[derive(FromPyObject)]
pub(crate) struct Importer {
    function: Py<PyAny>,
    namespace: Py<PyAny>,
    /// Returns what shows the memory of a result in less time than the result.
    look: Option<Py<PyAny>>,
    /// The dtypes that one result for each has shown: nothing but the dtype of a tensor decides which one is made. What
    /// the library exports is the memory of its arrays, never a copy.
    kept: Option<Py<Kept>>,
    /// "always", "while named" (as long as it is the `from_dlpack` of the namespace) or "once".
    lasts: String,
}

/// The dtypes that a library was seen to keep, while its importer is the same.
#[pyclass(frozen)]
pub(crate) struct Kept {
    /// Dtypes as numbers, from the first place on; 0, which is none, ends them.
    dtypes: [AtomicU32; 32],
    /// How often the importer has changed.
    changes: AtomicUsize,
    by: Lock<Option<Py<PyAny>>>,
}

/// What is known before a conversion begins, and holds to its end unless another thread, or the importer itself, brings
/// another importer meanwhile: the result then shows nothing of that one, nor the other way round.
pub(super) struct KeptSince<'a> {
    kept: &'a Kept,
    changes: usize,
}

impl Kept {
    fn since_now(&self) -> KeptSince<'_> {
        KeptSince {
            kept: self,
            changes: self.changes.load(Ordering::Acquire),
        }
    }
}

impl KeptSince<'_> {
    #[inline(always)]
    pub(super) fn has(&self, dtype: DLDataType) -> bool {
        let number = number(dtype);
        // Acquires: whoever reads what a later importer kept sees that it has changed.
        let mut known = self
            .kept
            .dtypes
            .iter()
            .map(|each| each.load(Ordering::Acquire))
            .take_while(|&each| each != 0);
        known.any(|each| each == number) && self.is_same()
    }

    /// Notes one; a dtype that finds no place is looked at each time.
    pub(super) fn add(&self, dtype: DLDataType) {
        let number = number(dtype);
        // The importer changes under this lock.
        let _by = self.kept.by.lock();
        if !self.is_same() {
            return;
        }
        for place in &self.kept.dtypes {
            let there = place.load(Ordering::Relaxed);
            if there == 0 {
                place.store(number, Ordering::Release);
            }
            if there == 0 || there == number {
                return;
            }
        }
    }

    fn is_same(&self) -> bool {
        self.kept.changes.load(Ordering::Acquire) == self.changes
    }
}

#[pymethods]
impl Kept {
    #[new]
    fn new() -> Self {
        Self {
            dtypes: [const { AtomicU32::new(0) }; 32],
            changes: AtomicUsize::new(0),
            by: Lock::new(None),
        }
    }

    /// Start over, unless ``importer`` is that of the last call.
    #[pyo3(signature = (importer, /))]
    fn seen_by(&self, importer: Bound<'_, PyAny>) {
        let mut by = self.by.lock();
        if by.as_ref().is_some_and(|by| by.is(&importer)) {
            return;
        }
        let before = by.replace(importer.unbind());
        if before.is_some() {
            for place in &self.dtypes {
                place.store(0, Ordering::Relaxed);
            }
            self.changes.fetch_add(1, Ordering::Release);
        }
        // Dropping may run Python, so release the lock first.
        drop(by);
        drop(before);
    }
}

/// A dtype as a number.
#[inline(always)]
fn number(DLDataType { code, bits, lanes }: DLDataType) -> u32 {
    let [low, high] = lanes.to_le_bytes();
    u32::from_le_bytes([code.0, bits, low, high])
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
    /// The cached importer of a class, unless Python code has given it one of its own since.
    #[inline(never)]
    pub(super) fn remembered(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = class.py();
        let Some(known) = IMPORTERS.get(class.as_type_ptr()) else {
            return Ok(None);
        };
        let is_its_own =
            || known.namespace.is_none(py) || lacks(class, &[intern!(py, "from_dlpack")]);
        let holds = known.holds(py)? && (is_immutable(class) || is_its_own());
        Ok(holds.then_some(Self::Cached(known)))
    }

    /// Not inlined: classes with a table skip it.
    #[cold]
    #[inline(never)]
    pub(super) fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        if let Some(known) = Self::remembered(class)? {
            return Ok(known);
        }
        let py = class.py();
        // A class without the method is the most common; asking it by `getattr` would make an exception.
        let question = if lacks(class, &[intern!(py, "from_dlpack")]) {
            intern!(py, "importing_by_package")
        } else {
            intern!(py, "importing")
        };
        let found = provided(question, class)?;
        let new: Importer = found.extract()?;
        if new.lasts != "once" {
            IMPORTERS.add(class, found.extract()?);
        }
        Ok(Self::New(Box::new(new)))
    }
}

impl Importer {
    /// Whether a cached one may still be used.
    fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        if self.lasts == "always" {
            return Ok(true);
        }
        let (namespace, name) = (self.namespace(py), intern!(py, "from_dlpack"));
        let now = match namespace.cast_exact::<PyModule>() {
            // What a plain module has in its dict is its attribute.
            Ok(module) => module.dict().get_item(name)?,
            Err(_) => attribute(namespace, name)?,
        };
        Ok(now.is_some_and(|now| now.is(&self.function)))
    }

    pub(crate) fn function<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.function.bind(py)
    }

    /// Where the library's dtypes have their names; None if unknown.
    pub(crate) fn namespace<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.namespace.bind(py)
    }

    /// The dtypes that the library has been seen to keep, if one result for each shows it.
    pub(super) fn kept(&self) -> Option<KeptSince<'_>> {
        Some(self.kept.as_ref()?.get().since_now())
    }

    /// Whether an import of `made` shows its own memory. Of a class that a program derives, nothing is known.
    pub(super) fn shows_memory(
        &self,
        made: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<bool> {
        let is_listed = self.kept.is_some() && self.lasts != "once";
        let own = made.get_type();
        Ok(is_listed && (own.is(class) || tensorflow::is_eager_class(&own)?))
    }

    /// The memory of `made`, if there is a shorter look at it than by its own protocols.
    pub(crate) fn look<'py>(&self, made: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        match (&self.kept, &self.look) {
            (Some(_), _) => Some(made.clone()),
            // Whatever fails here, the object's own protocols tell, too.
            (None, Some(look)) => call_with(look.bind(made.py()), &[made]).ok(),
            (None, None) => None,
        }
    }
}

/// What `function` of `dlx._libraries.importers` answers for `x`.
fn provided<'py>(
    function: &Bound<'py, PyString>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let py = x.py();
    let module = MODULE.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("dlx._libraries.importers")?.unbind())
    })?;
    call_method_with(module.bind(py), function, &[x])
}
