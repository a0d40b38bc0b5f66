//! The target of a conversion, and how its instances are made.
//!
//! A class or a module may change or die between two calls, so each call looks it up again. Only the tables of classes
//! that live as long as the process and cannot change are cached, and the importers of classes that libraries have by
//! name, which are used while the library has the same.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PySet, PyString, PyTuple, PyType};

use crate::adapters::numpy;
use crate::api::from_dlpack::is_tensor;
use crate::cpython::call::{attribute, call_method_with, call_with};
use crate::cpython::lookup::{is_immutable, is_subtype, lacks};
use crate::cpython::modules::loaded_class;
use crate::cpython::type_map::TypeMap;
use crate::exchange::Table;
use crate::exchange::slot::{Slot, is_mixin};
use crate::tensor::object::Tensor;
use crate::types::error::type_name;

/// How instances of a class are made.
pub(crate) enum Via<'py> {
    /// `dlx.Tensor`.
    Tensor,
    /// As a NumPy array; for a subclass, as a view of that.
    Numpy,
    /// Through `__dlx_like__` of this instance, or `__dlx_import__` of the class.
    Mixin(Option<Bound<'py, PyAny>>),
    /// Through the table of the class.
    Table(Table),
    /// Through the importer of its library.
    Function(Importer<'py>),
}

/// The importer of a library, called with a `dlx.Tensor`.
pub(crate) struct Importer<'py> {
    pub(crate) function: Bound<'py, PyAny>,
    /// Where the library's dtypes have their names; None if the class has an importer of its own.
    pub(crate) namespace: Bound<'py, PyAny>,
    /// Called with an instance, returns what dlx reads in less time: the same memory; or None; or, for a library that
    /// keeps what it is given, the set of dtypes that this has been seen of, and the instance is read.
    look: Bound<'py, PyAny>,
}

/// Cached answers of `dlx._provided`; classes that find no slot are looked up at each call.
static IMPORTERS: TypeMap<Py<PyTuple>, 16> = TypeMap::new();

impl<'py> Importer<'py> {
    /// The cached importer of a class, unless Python code has given it one of its own since.
    #[inline(never)]
    fn remembered(class: &Bound<'py, PyType>) -> PyResult<Option<Self>> {
        let py = class.py();
        let Some(known) = IMPORTERS.get(class.as_type_ptr()) else {
            return Ok(None);
        };
        let this = Self::lasting(known.bind(py))?;
        if is_immutable(class) {
            return Ok(this);
        }
        let name = intern!(py, "from_dlpack");
        Ok(this.filter(|this| this.namespace.is_none() || lacks(class, &[name])))
    }

    /// Not inlined: classes with a table skip it.
    #[inline(never)]
    fn of(class: &Bound<'py, PyType>) -> PyResult<Self> {
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
        let found = provided(question, class)?.cast_into::<PyTuple>()?;
        let (this, lasts) = Self::read(&found)?;
        if !lasts.is_none() {
            IMPORTERS.add(class, found.unbind());
        }
        Ok(this)
    }

    /// A cached answer of `dlx._provided`, if it still holds.
    fn lasting(known: &Bound<'py, PyTuple>) -> PyResult<Option<Self>> {
        let (this, lasts) = Self::read(known)?;
        let now = || attribute(&this.namespace, intern!(known.py(), "from_dlpack"));
        let holds = lasts.is_truthy()? || now()?.is_some_and(|now| now.is(&this.function));
        Ok(holds.then_some(this))
    }

    /// An answer of `dlx._provided`, and how long it holds.
    fn read(found: &Bound<'py, PyTuple>) -> PyResult<(Self, Bound<'py, PyAny>)> {
        let this = Self {
            function: found.get_item(0)?,
            namespace: found.get_item(1)?,
            look: found.get_item(2)?,
        };
        Ok((this, found.get_item(3)?))
    }

    /// The dtypes that the library has been seen to keep, if it keeps whatever it is given: as numbers.
    pub(crate) fn kept(&self) -> Option<&Bound<'py, PySet>> {
        self.look.cast::<PySet>().ok()
    }

    /// The memory of `made`, if there is a shorter look at it than by its own protocols.
    pub(crate) fn look(&self, made: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        if self.look.is_none() {
            return None;
        }
        if self.kept().is_some() {
            return Some(made.clone());
        }
        // Whatever fails here, the object's own protocols tell, too.
        call_with(&self.look, &[made]).ok()
    }
}

/// A target class, passed itself, as its namespace or by one of its instances.
pub(crate) struct Target<'py> {
    pub(crate) class: Bound<'py, PyType>,
    pub(crate) via: Via<'py>,
}

/// Cached tables; classes that find no slot are looked up at each call.
static TABLES: TypeMap<Table, 8> = TypeMap::new();

impl<'py> Target<'py> {
    /// Resolves the argument `to`.
    pub(crate) fn of(to: &Bound<'py, PyAny>) -> PyResult<Self> {
        let Ok(class) = to.cast::<PyType>() else {
            return Self::of_other(to);
        };
        let class = class.clone();
        let via = if let Some(table) = TABLES.get(class.as_type_ptr()) {
            Via::Table(*table)
        } else if let Some(importer) = Importer::remembered(&class)?
            && (is_immutable(&class) || Table::is_absent(&class))
        {
            Via::Function(importer)
        } else if Tensor::is_class(&class)? {
            Via::Tensor
        } else if numpy::is_subclass_of_ndarray(&class)? {
            Via::Numpy
        } else if is_mixin(&class) {
            Via::Mixin(None)
        } else if let Some(table) = own_table(&class)? {
            remember(&class, table)?;
            Via::Table(table)
        } else {
            Via::Function(Importer::of(&class)?)
        };
        Ok(Self { class, via })
    }

    /// Resolves a namespace, its name or an instance.
    #[cold]
    fn of_other(to: &Bound<'py, PyAny>) -> PyResult<Self> {
        if is_namespace(to)? {
            return Self::of(&provided(intern!(to.py(), "array_type"), to)?);
        }
        if let Ok(name) = to.cast::<PyString>() {
            let namespace = to.py().import(name)?;
            return Self::of(&provided(
                intern!(to.py(), "array_type"),
                namespace.as_any(),
            )?);
        }
        if is_tensor(to)? {
            return Self::like(to);
        }
        Err(PyTypeError::new_err(format!(
            "to is an instance of {}; expected an array type (torch.Tensor, numpy.ndarray), a namespace (torch, \
             jax.numpy) or its name, or a tensor",
            type_name(&to.get_type())
        )))
    }

    /// The class of an instance.
    pub(crate) fn like(instance: &Bound<'py, PyAny>) -> PyResult<Self> {
        let mut target = Self::of(&instance.get_type())?;
        if let Via::Mixin(like) = &mut target.via {
            *like = Some(instance.clone());
        }
        Ok(target)
    }

    /// The name of the class for error messages.
    pub(crate) fn name(&self) -> String {
        type_name(&self.class)
    }

    /// Whether `made` is an instance of the class.
    pub(crate) fn is_class_of(&self, made: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(is_subtype(made.get_type_ptr(), &self.class) || made.is_instance(&self.class)?)
    }

    /// Refuses a result that is not an instance: a table inherited by a subclass makes instances of its base.
    pub(crate) fn check(&self, made: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.is_class_of(made)? {
            return Ok(());
        }
        Err(PyTypeError::new_err(format!(
            "{} cannot be made from a tensor: its library makes {}",
            self.name(),
            type_name(&made.get_type())
        )))
    }
}

/// Whether `to` is a module, or another object with the functions of the array API.
fn is_namespace(to: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(to.is_instance_of::<PyModule>()
        || to.hasattr(intern!(to.py(), "__array_namespace_info__"))?)
}

/// What `function` of `dlx._provided` answers for `x`.
fn provided<'py>(
    function: &Bound<'py, PyString>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let py = x.py();
    let module =
        MODULE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("dlx._provided")?.unbind()))?;
    call_method_with(module.bind(py), function, &[x])
}

/// Caches the table of a class that Python code can neither make nor change, and that of `torch.Tensor`.
fn remember(class: &Bound<'_, PyType>, table: Table) -> PyResult<()> {
    let py = class.py();
    if !is_immutable(class) {
        let own = loaded_class(intern!(py, "torch"), intern!(py, "Tensor"))?;
        if !own.is_some_and(|own| own.is(class)) {
            return Ok(());
        }
    }
    TABLES.add(class, table);
    Ok(())
}

/// The table of a class, if it can import and was not provided by dlx.
fn own_table(class: &Bound<'_, PyType>) -> PyResult<Option<Table>> {
    let provided = |table: &Table| Slot::of_table(table.address).is_some();
    let table = Table::of_type(class)?;
    Ok(table.filter(|table| table.imports() && !provided(table)))
}
