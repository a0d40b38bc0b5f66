//! What a tensor is converted to, and how: decided once and remembered.

#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyType};

use crate::adapters::numpy;
use crate::error::type_name;
use crate::exchange::Table;
use crate::slot::{Slot, is_mixin};
use crate::tensor::Tensor;

/// How instances of a class are made.
pub(crate) enum Via {
    /// `dlx.Tensor`.
    Tensor,
    /// As a NumPy array, and if the class is a subclass as a view of that.
    Numpy,
    /// By `__dlx_import__`.
    Mixin,
    /// By the table of the class.
    Table(Table),
    /// By the function that its library imports with.
    Function(Py<PyAny>),
}

/// A class, named itself or by its namespace.
pub(crate) struct Target {
    to: Py<PyAny>,
    pub(crate) class: Py<PyType>,
    pub(crate) via: Via,
    /// Nobody writes to instances.
    pub(crate) immutable: bool,
    /// Instances over read-only memory were seen to be writable.
    forgets_readonly: AtomicBool,
}

const SLOTS: usize = 1024;
const PROBES: usize = 16;

/// What is known, for as long as the process lives; what finds no place is found out anew each time.
static KNOWN: [OnceLock<Target>; SLOTS] = [const { OnceLock::new() }; SLOTS];

/// Where `to` may be.
fn places(to: &Bound<'_, PyAny>) -> impl Iterator<Item = &'static OnceLock<Target>> {
    // As for the types of `cache.rs`.
    let hash = (to.as_ptr().addr() >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
    (0..PROBES).map(move |probe| &KNOWN[(hash + probe) % SLOTS])
}

/// Calls `body` with what is known of `to`.
pub(crate) fn with<'py, R>(
    to: &Bound<'py, PyAny>,
    body: impl FnOnce(&Target) -> PyResult<R>,
) -> PyResult<R> {
    let known = places(to).map_while(OnceLock::get);
    for target in known {
        if target.to.as_ptr() == to.as_ptr() {
            return body(target);
        }
    }
    let mut target = Target::of(to)?;
    // Classes of dlx's own users may die.
    if !matches!(target.via, Via::Mixin) {
        for place in places(to) {
            match place.set(target) {
                Ok(()) => return with(to, body),
                Err(back) => target = back,
            }
        }
    }
    body(&target)
}

impl Target {
    fn of(to: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = to.py();
        let provided = || py.import("dlx._provided");
        let class = match to.cast::<PyType>() {
            Ok(class) => class.clone(),
            Err(_) if to.is_instance_of::<PyModule>() => {
                provided()?.call_method1("array_type", (to,))?.cast_into()?
            }
            Err(_) => {
                return Err(PyTypeError::new_err(format!(
                    "to is {}: an array type (torch.Tensor, numpy.ndarray) or a namespace (torch, jax.numpy) \
                     is accepted",
                    to.repr()?
                )));
            }
        };
        let mut immutable = false;
        let via = if class.is(Tensor::class(py)?) {
            Via::Tensor
        } else if numpy::is_subclass_of_ndarray(&class)? {
            Via::Numpy
        } else if is_mixin(&class) {
            Via::Mixin
        } else if let Some(table) = own_table(&class)? {
            Via::Table(table)
        } else {
            let found = provided()?.call_method1("importing", (&class,))?;
            let (function, never_written) = found.extract()?;
            immutable = never_written;
            Via::Function(function)
        };
        Ok(Self {
            to: to.clone().unbind(),
            class: class.unbind(),
            via,
            immutable,
            forgets_readonly: AtomicBool::new(false),
        })
    }

    /// Whether instances over read-only memory are known to be writable.
    pub(crate) fn forgets_readonly(&self) -> bool {
        self.forgets_readonly.load(Ordering::Relaxed)
    }

    /// Remembers that they are.
    pub(crate) fn set_forgets_readonly(&self) {
        self.forgets_readonly.store(true, Ordering::Relaxed);
    }

    /// How errors call it.
    pub(crate) fn name(&self, py: Python<'_>) -> String {
        type_name(self.class.bind(py))
    }

    /// Whether `made` is an instance.
    pub(crate) fn is_class_of(&self, made: &Bound<'_, PyAny>) -> PyResult<bool> {
        let class = self.class.bind(made.py());
        Ok(made.get_type().is(class) || made.is_instance(class)?)
    }

    /// Refuses what is no instance: a table found on a subclass makes instances of its base.
    pub(crate) fn check(&self, made: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.is_class_of(made)? {
            return Ok(());
        }
        Err(PyTypeError::new_err(format!(
            "{} cannot be made of a tensor: its library makes {}",
            self.name(made.py()),
            type_name(&made.get_type())
        )))
    }
}

/// The table of a class, if it makes instances and is not one that dlx provides.
fn own_table(class: &Bound<'_, PyType>) -> PyResult<Option<Table>> {
    let provided = |table: &Table| Slot::of_table(table.address).is_some();
    let table = Table::of_type(class)?;
    Ok(table.filter(|table| table.imports() && !provided(table)))
}
