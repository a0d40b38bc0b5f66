//! Exchange tables for types that are not dlx's: `exchange_api`, `publish` and `unpublish`.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString, PyType};

use crate::cpython::lookup::is_immutable;
use crate::cpython::modules::python;
use crate::cpython::once::intern;
use crate::exchange::slot::{Hooks, Origin, SLOTS, Slot, is_mixin};
use crate::exchange::{self, Table};
use crate::types::error::type_name;

/// Return the capsule with the exchange table of a type: the type's own, or one that dlx provides.
///
/// A type that has only ``__dlpack__`` and ``__dlpack_device__`` gets a table that exports its instances as
/// `from_dlpack` reads them, natively if possible, and makes instances through its ``from_dlpack`` or that of its
/// library. The table lends no views (``dltensor_from_py_object_no_sync`` is NULL), because no object owns strides in
/// elements. The one for NumPy arrays does not export read-only arrays: the caller of a table does not declare that it
/// respects the flag, as NumPy's own ``__dlpack__`` requires. A type always has the same table, which lives as
/// long as the process.
///
/// Raises ``TypeError`` for a type whose instances cannot be exported.
///
///     >>> import numpy as np
///     >>> dlx.exchange_api(np.ndarray)  # doctest: +ELLIPSIS
///     <capsule object "dlpack_exchange_api" at 0x...>
#[pyfunction]
#[pyo3(signature = (cls, /))]
pub(crate) fn exchange_api<'py>(cls: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyCapsule>> {
    match own_capsule(cls)? {
        Some(capsule) => Ok(capsule),
        None => capsule(provided(cls)?, cls.py()),
    }
}

/// Set the table that dlx provides for ``cls`` on the class, so that every C consumer finds it.
///
/// Subclasses inherit it; those that override the export keep their own. A consumer that has seen the type before may
/// have cached that it has no table. Publishing again has no effect.
///
/// Raises ``TypeError`` for a type that has its own table, whose instances cannot be exported, or that cannot be
/// changed safely.
///
///     >>> import numpy as np
///     >>> class Image:  # has no table
///     ...     __dlpack__ = lambda self, **options: np.ones(3).__dlpack__(**options)
///     ...     __dlpack_device__ = lambda self: (1, 0)
///     ...     from_dlpack = classmethod(lambda cls, tensor: cls())
///     >>> dlx.publish(Image)
///     >>> hasattr(Image, "__dlpack_c_exchange_api__")
///     True
#[pyfunction]
#[pyo3(signature = (cls, /))]
pub(crate) fn publish(cls: &Bound<'_, PyType>) -> PyResult<()> {
    let name = attribute(cls);
    // Other threads may publish and unpublish meanwhile, so all the checks use this one lookup.
    let found = cls.getattr_opt(name)?;
    if is_mixin(cls) || own_capsule(cls)?.is_some() || found.is_some() {
        if found.is_some_and(|found| is_published(cls, &found)) {
            return Ok(());
        }
        let owner = cls.mro().iter().find(|base| own(base, name).is_some());
        let owner = owner.map_or_else(|| Ok(cls.clone()), Bound::cast_into)?;
        let (class, owner) = (type_name(cls), type_name(&owner));
        let message = format!("{class} has an exchange table already, that of {owner}");
        return Err(PyTypeError::new_err(message));
    }
    let capsule = capsule(provided(cls)?, cls.py())?;
    if !is_immutable(cls) {
        return cls.setattr(name, capsule);
    }
    let namespace = namespace(cls)?;
    namespace.set_item(name, &capsule)?;
    modified(cls);
    let is_it = |found: Option<Bound<'_, PyAny>>| found.is_some_and(|found| found.is(&capsule));
    // If it is gone, another thread has unpublished or replaced it.
    if is_it(cls.getattr_opt(name)?) || !is_it(namespace.get_item(name)?) {
        return Ok(());
    }
    namespace.del_item(name)?;
    modified(cls);
    Err(PyTypeError::new_err(format!(
        "the attributes of {} cannot be set safely",
        type_name(cls)
    )))
}

/// Remove the table that `publish` set on ``cls``; no effect if there is none.
///
/// Consumers that cached the table may go on using it.
///
/// Raises ``TypeError`` for a type that has its own table.
///
///     >>> class Plain:
///     ...     __dlpack__ = __dlpack_device__ = from_dlpack = lambda self, **options: None
///     >>> dlx.publish(Plain)
///     >>> dlx.unpublish(Plain)
///     >>> hasattr(Plain, "__dlpack_c_exchange_api__")
///     False
#[pyfunction]
#[pyo3(signature = (cls, /))]
pub(crate) fn unpublish(cls: &Bound<'_, PyType>) -> PyResult<()> {
    let name = attribute(cls);
    // The interpreter's type cache borrows attributes, so hold the capsule until the cache has been invalidated.
    let Some(found) = own(cls, name) else {
        return Ok(());
    };
    if !is_published(cls, &found) {
        return Err(PyTypeError::new_err(format!(
            "the exchange table of {} is its own; dlx did not publish it",
            type_name(cls)
        )));
    }
    let taken_back = if is_immutable(cls) {
        let deleted = namespace(cls)?.del_item(name);
        modified(cls);
        deleted
    } else {
        cls.delattr(name)
    };
    // Another thread may have unpublished it meanwhile.
    taken_back.or_else(|error| match own(cls, name) {
        Some(still) if still.is(&found) => Err(error),
        _ => Ok(()),
    })
}

fn attribute<'py>(cls: &Bound<'py, PyType>) -> &'py Bound<'py, PyString> {
    intern!(cls.py(), "__dlpack_c_exchange_api__")
}

/// The attribute `name` of `class` itself, not of a base.
fn own<'py>(class: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    let namespace = class.getattr(intern!(class.py(), "__dict__")).ok()?;
    namespace.get_item(name).ok()
}

/// The capsule of the type's own table, if dlx can read it.
fn own_capsule<'py>(cls: &Bound<'py, PyType>) -> PyResult<Option<Bound<'py, PyCapsule>>> {
    let py = cls.py();
    if Table::of_type(cls)?.is_none() {
        return Ok(None);
    }
    for name in [attribute(cls), intern!(py, "__c_dlpack_exchange_api__")] {
        if let Some(header) = exchange::header(cls, name)?
            && Slot::of_table(header.addr().get()).is_none_or(|slot| !slot.is_provided())
        {
            return Ok(Some(cls.getattr(name)?.cast_into()?));
        }
    }
    Ok(None)
}

/// Whether `attribute` is the table that dlx provides for `cls`.
fn is_published(cls: &Bound<'_, PyType>, attribute: &Bound<'_, PyAny>) -> bool {
    let header = exchange::header_in(attribute).ok().flatten();
    let slot = header.and_then(|header| Slot::of_table(header.addr().get()));
    slot.is_some_and(|slot| slot.is_for(cls.as_ptr()) && slot.is_provided())
}

/// The slot for the table that dlx provides for `cls`; claims one if needed.
fn provided(cls: &Bound<'_, PyType>) -> PyResult<&'static Slot> {
    let py = cls.py();
    if let Some(slot) = Slot::provided(cls) {
        return Ok(slot);
    }
    let import = python(py, "dlx._libraries.importers", "importer", (cls,))?;
    let import = (!import.is_none()).then(|| import.unbind());
    let slot = Slot::claim(cls, Origin::Itself { import }, Hooks::default())?;
    slot.ok_or_else(|| {
        PyRuntimeError::new_err(format!("the {SLOTS} exchange tables of dlx are used up"))
    })
}

fn capsule<'py>(slot: &'static Slot, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
    let table = slot
        .table()
        .ok_or_else(|| PyRuntimeError::new_err("the slot has no table"))?;
    exchange::publish(py, table)
}

/// The dictionary behind the mapping proxy of an immutable type.
///
/// Such a type comes from an extension module, whose own code fills the same dictionary when it creates the type.
fn namespace<'py>(cls: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyDict>> {
    let py = cls.py();
    let proxy = cls.getattr(intern!(py, "__dict__"))?;
    let referents = py.import("gc")?.call_method1("get_referents", (proxy,))?;
    let found = referents.try_iter()?.next().transpose()?;
    match found.map(Bound::cast_into::<PyDict>) {
        Some(Ok(namespace)) => Ok(namespace),
        _ => Err(PyTypeError::new_err(format!(
            "the attributes of {} cannot be set safely",
            type_name(cls)
        ))),
    }
}

/// Invalidates the interpreter's caches after the dictionary of a type has changed.
fn modified(cls: &Bound<'_, PyType>) {
    // SAFETY: attached, with a live type; CPython documents the call for use after a change of the type's dictionary.
    unsafe { ffi::PyType_Modified(cls.as_type_ptr()) };
}
