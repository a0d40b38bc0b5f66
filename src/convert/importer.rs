//! The importers of libraries without a table: what `dlx._libraries.importers` finds, and what is remembered of that.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyModule, PyType};

use crate::adapters::tensorflow;
use crate::cpython::call::attribute;
use crate::cpython::lookup::{is_immutable, lacks};
use crate::cpython::modules::python;
use crate::cpython::once::intern;
use crate::cpython::type_map::TypeMap;

/// The importer of a library, called with a `dlx.Tensor`: `Found` of `dlx._libraries.importers`.
pub(crate) struct Importer {
    pub(super) function: Py<PyAny>,
    /// Where the library's dtypes have their names; None if unknown.
    pub(super) namespace: Py<PyAny>,
    /// Whether what the library exports is the memory of its arrays, never a copy.
    shows_memory: bool,
    /// Whether it keeps the struct that it is given, so that no result is of another dtype.
    pub(super) keeps: bool,
    /// "always", "while named" (as long as it is the `from_dlpack` of the namespace) or "once".
    lasts: String,
}

/// Cached importers; classes that find no slot are looked up at each call.
static IMPORTERS: TypeMap<Arc<Importer>, 16> = TypeMap::new();

impl Importer {
    /// The cached importer of a class, unless Python code has given it one of its own since.
    #[inline(never)]
    pub(super) fn remembered(class: &Bound<'_, PyType>) -> PyResult<Option<Arc<Self>>> {
        let py = class.py();
        let Some(known) = IMPORTERS.get(class.as_type_ptr()) else {
            return Ok(None);
        };
        let is_its_own =
            || known.namespace.is_none(py) || lacks(class, &[intern!(py, "from_dlpack")]);
        let holds = known.holds(py)? && (is_immutable(class) || is_its_own());
        Ok(holds.then(|| known.clone()))
    }

    /// Not inlined: classes with a table skip it.
    #[cold]
    #[inline(never)]
    pub(super) fn of(class: &Bound<'_, PyType>) -> PyResult<Arc<Self>> {
        if let Some(known) = Self::remembered(class)? {
            return Ok(known);
        }
        let py = class.py();
        let found = python(py, "dlx._libraries.importers", "importing", (class,))?;
        let (function, namespace, shows_memory, keeps, lasts) = found.extract()?;
        let found = Arc::new(Self {
            function,
            namespace,
            shows_memory,
            keeps,
            lasts,
        });
        if found.lasts != "once" {
            IMPORTERS.add(class, found.clone());
        }
        Ok(found)
    }

    /// Whether a cached one may still be used.
    fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        if self.lasts == "always" {
            return Ok(true);
        }
        let (namespace, name) = (self.namespace.bind(py), intern!(py, "from_dlpack"));
        let now = match namespace.cast_exact::<PyModule>() {
            // What a plain module has in its dict is its attribute.
            Ok(module) => module.dict().get_item(name)?,
            Err(_) => attribute(namespace, name)?,
        };
        Ok(now.is_some_and(|now| now.is(&self.function)))
    }

    /// Whether an import of `made` shows its own memory.
    pub(super) fn shows_memory(
        &self,
        made: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<bool> {
        let own = made.get_type();
        Ok(self.shows_memory && (own.is(class) || tensorflow::is_eager_class(&own)?))
    }
}
