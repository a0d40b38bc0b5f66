//! The target of a conversion, and how its instances are made; for a namespace, such as `torch` or `jax.numpy`, the class
//! that its arrays have.
//!
//! A class or a module may change or die between two calls, so each call looks it up again. Only the tables of classes
//! that live as long as the process are cached, while these do not change, and the importers of classes that libraries
//! have by name, which are used while the library has the same.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PyString, PyType};

use crate::adapters::numpy;
use crate::api::from_dlpack::is_tensor;
use crate::convert::importer::Importer;
use crate::cpython::call::{attribute, call_with};
use crate::cpython::lookup::{is_asked_by_type, is_immutable, is_subtype};
use crate::cpython::modules::python;
use crate::cpython::once::intern;
use crate::exchange::Table;
use crate::exchange::slot::is_mixin;
use crate::import::cache;
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
    Function(Arc<Importer>),
}

/// A target class, passed itself, as its namespace or by one of its instances.
pub(crate) struct Target<'py> {
    pub(crate) class: Bound<'py, PyType>,
    pub(crate) via: Via<'py>,
}

impl<'py> Target<'py> {
    /// Resolves the argument `to`.
    pub(crate) fn of(to: &Bound<'py, PyAny>) -> PyResult<Self> {
        let Ok(class) = to.cast::<PyType>() else {
            return Self::of_other(to);
        };
        let class = class.clone();
        let via = if let Some(table) = cache::remembered_table(&class)?
            && table.to_py.is_some()
        {
            Via::Table(*table)
        } else if let Some(found) = Importer::remembered(&class)?
            && (is_immutable(&class) || Table::is_absent(&class))
        {
            Via::Function(found)
        } else if Tensor::is_class(&class)? {
            Via::Tensor
        } else if numpy::is_subclass_of_ndarray(&class)? {
            Via::Numpy
        } else if is_mixin(&class) {
            Via::Mixin(None)
        } else if let Some(table) = cache::table_of(&class)?
            && table.to_py.is_some()
        {
            Via::Table(table)
        } else {
            Via::Function(Importer::of(&class)?)
        };
        Ok(Self { class, via })
    }

    /// Resolves a namespace, its name or an instance.
    #[cold]
    fn of_other(to: &Bound<'py, PyAny>) -> PyResult<Self> {
        // A module, or another object with the functions of the array API.
        let lists_functions = || to.hasattr(intern!(to.py(), "__array_namespace_info__"));
        if to.is_instance_of::<PyModule>() || lists_functions()? {
            return Self::of(array_type(to)?.as_any());
        }
        if to.is_instance_of::<PyString>() {
            return Self::of(&python(to.py(), "dlx._libraries.named", "named", (to,))?);
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
    #[inline(always)]
    pub(crate) fn is_class_of(&self, made: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(is_subtype(made.get_type_ptr(), &self.class) || self.is_said_to_be_of(made)?)
    }

    /// What `isinstance` says of an object whose type is no subclass.
    #[inline(never)]
    fn is_said_to_be_of(&self, made: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(!is_asked_by_type(made, &self.class) && made.is_instance(&self.class)?)
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

/// Find the array type of a namespace, such as ``torch`` or ``jax.numpy``.
///
/// Raises ``TypeError`` if it has none.
#[pyfunction]
#[pyo3(signature = (namespace, /))]
pub(crate) fn array_type<'py>(namespace: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyType>> {
    let py = namespace.py();
    let names = [
        intern!(py, "Tensor"),
        intern!(py, "ndarray"),
        intern!(py, "Array"),
        intern!(py, "array"),
    ];
    // What is loaded comes first: a lazy namespace is slow to say that it lacks a name.
    let known = attribute(namespace, intern!(py, "__dict__"))?;
    if let Some(Ok(known)) = known.map(Bound::cast_into::<PyDict>) {
        for name in names {
            if let Some(found) = known.get_item(name)?.and_then(class) {
                return Ok(found);
            }
        }
    }
    for name in names {
        if let Some(found) = attribute(namespace, name)?.and_then(class) {
            return Ok(found);
        }
    }
    if let Some(empty) = attribute(namespace, intern!(py, "empty"))?
        && empty.is_callable()
    {
        let zero = 0_u8.into_pyobject(py)?;
        return Ok(call_with(&empty, &[zero.as_any()])?.get_type());
    }
    let name = match attribute(namespace, intern!(py, "__name__"))? {
        Some(name) => name.str()?,
        None => namespace.repr()?,
    };
    // MLX's package has none, unlike those of other libraries.
    let hint = match name.to_str() {
        Ok("mlx") => "pass mlx.core",
        _ => "its constructors may take the NumPy array dlx.convert(x, np.ndarray)",
    };
    Err(PyTypeError::new_err(format!(
        "{name} has no array type; expected one called Tensor, ndarray, Array, array, or a function empty; {hint}"
    )))
}

fn class(found: Bound<'_, PyAny>) -> Option<Bound<'_, PyType>> {
    found.cast_into().ok()
}
