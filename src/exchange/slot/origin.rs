//! What instances of a class export, and which hooks the class overrides: decided when it is defined.
//!
//! An attribute that the instance holds is lent as a view, because its object owns the shape. What code of the class
//! makes is exported only.

use std::cell::Cell;

use pyo3::exceptions::{PyBufferError, PyRecursionError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::Slot;
use crate::cpython::lookup::{is_subtype, looks_up_as_usual};
use crate::cpython::modules::python;
use crate::cpython::once::{Once, intern};
use crate::types::error::{type_name, unless_urgent};

static MIXIN: Once<Py<PyType>> = Once::new();

/// The mixin; the first call makes `class` the mixin.
pub(crate) fn root_or<'a, 'py>(class: &'a Bound<'py, PyType>) -> &'a Bound<'py, PyType> {
    let py = class.py();
    let root = MIXIN.get_or_init(py, || class.clone().unbind());
    root.bind(py)
}

/// Whether `class` is `dlx.ExchangeMixin` or a subclass.
pub(crate) fn is_mixin(class: &Bound<'_, PyType>) -> bool {
    let mixin = MIXIN.get(class.py());
    mixin.is_some_and(|mixin| is_subtype(class.as_type_ptr(), mixin.bind(class.py())))
}

/// Whether `class` is `dlx.ExchangeMixin` itself.
pub(crate) fn is_root(class: &Bound<'_, PyType>) -> bool {
    MIXIN.get(class.py()).is_some_and(|mixin| mixin.is(class))
}

/// What an instance exports.
pub(crate) enum Origin {
    /// An attribute; `stored` if the instance holds it, so that reading it creates nothing.
    Attribute { name: Py<PyString>, stored: bool },
    /// The result of its method `__dlx_export__`.
    Method,
    /// The instance itself, of a foreign type. `import` makes an instance from a `dlx.Tensor`; the default is the
    /// class's own `from_dlpack`.
    Itself { import: Option<Py<PyAny>> },
}

impl Origin {
    /// The choice of a subclass of the mixin: `exchange="name"` marks the `__dlx_export__` that it generates.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = class.py();
        let method = class.getattr(intern!(py, "__dlx_export__"))?;
        let Some(name) = method.getattr_opt(intern!(py, "__dlx_attribute__"))? else {
            return Ok(Self::Method);
        };
        let name = name.cast_into::<PyString>()?;
        let stored = is_stored(class, &name)?;
        let name = name.unbind();
        Ok(Self::Attribute { name, stored })
    }

    /// As [`Self::of`], for a class without a slot. If its definition did not reach the mixin, its first export says so
    /// (`dlx._mixin`).
    #[cold]
    pub(crate) fn without_slot(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = class.py();
        // The mixin gives each class a table, though it may be that of a base.
        let own = class.getattr(intern!(py, "__dict__"))?;
        if is_mixin(class) && !own.contains(intern!(py, "__dlpack_c_exchange_api__"))? {
            python(py, "dlx._mixin", "notice", (class,))?;
        }
        Self::of(class)
    }

    /// Reads the object to export for `object`.
    #[inline(always)]
    pub(crate) fn read<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Attribute { name, stored: true } => {
                let name = name.bind(object.py());
                object
                    .getattr(name)
                    .map_err(|error| missing(object, name, error))
            }
            _ => self.compute(object),
        }
    }

    /// As [`Self::read`], if that may run Python code of the class.
    #[inline(never)]
    fn compute<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Attribute { name, .. } => {
                let name = name.bind(object.py());
                nested(&object.get_type(), || object.getattr(name))
                    .map_err(|error| missing(object, name, error))
            }
            Self::Method => {
                let hook = intern!(object.py(), "__dlx_export__");
                nested(&object.get_type(), || object.call_method0(hook))
            }
            Self::Itself { .. } => Ok(object.clone()),
        }
    }

    /// Whether the instance holds what it exports, so that a lent shape has an owner.
    pub(crate) fn lends(&self) -> bool {
        matches!(self, Self::Attribute { stored: true, .. })
    }

    /// How error messages refer to the object that was read.
    pub(crate) fn describe(&self, py: Python<'_>) -> String {
        match self {
            Self::Attribute { name, .. } => format!(".{} is", name.bind(py)),
            Self::Method => ".__dlx_export__ returned".to_owned(),
            Self::Itself { .. } => " is".to_owned(),
        }
    }
}

/// The error that says what is there instead of an attribute; `error` itself if the class has said more.
#[cold]
#[inline(never)]
fn missing(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>, error: PyErr) -> PyErr {
    let said = (object, name, error.value(object.py()));
    match python(object.py(), "dlx._mixin.definition", "missing", said) {
        Ok(found) if !found.is_none() => PyErr::from_value(found),
        Ok(_) => error,
        Err(other) => unless_urgent(object.py(), other, error),
    }
}

/// Runs code of a class that may recurse into dlx, up to a depth that fits on any thread's stack.
pub(crate) fn nested<'py>(
    class: &Bound<'py, PyType>,
    run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    if DEPTH.get() >= MAX_HOPS {
        return Err(endless(class));
    }
    DEPTH.set(DEPTH.get() + 1);
    let _leave = Leave;
    run()
}

/// Whether instances hold the attribute `name`, in their dictionary or a slot, rather than compute it.
fn is_stored(class: &Bound<'_, PyType>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    let py = class.py();
    if !looks_up_as_usual(class.as_type_ptr()) {
        return Ok(false);
    }
    for base in class.mro() {
        let Ok(value) = base.getattr(intern!(py, "__dict__"))?.get_item(name) else {
            continue;
        };
        let kind = value.get_type();
        let member = &raw mut ffi::PyMemberDescr_Type;
        return Ok(kind.as_type_ptr() == member || !kind.hasattr(intern!(py, "__get__"))?);
    }
    Ok(true)
}

/// The optional hooks that a class overrides.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hooks {
    /// `__dlx_empty__`
    pub(crate) empty: bool,
    /// `__dlx_stream__`
    pub(crate) stream: bool,
    /// `__dlpack_device_aliases__`
    pub(crate) aliases: bool,
}

impl Hooks {
    /// The hooks that a subclass of the mixin overrides.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = class.py();
        let Some(mixin) = MIXIN.get(py) else {
            return Ok(Self::default());
        };
        let overrides = |name: &Bound<'_, PyString>| {
            Ok::<_, PyErr>(!function(class, name)?.is(&function(mixin.bind(py), name)?))
        };
        Ok(Self {
            empty: overrides(intern!(py, "__dlx_empty__"))?,
            stream: overrides(intern!(py, "__dlx_stream__"))?,
            aliases: overrides(intern!(py, "__dlpack_device_aliases__"))?,
        })
    }
}

/// Whether a mixin class names the aliases of its instances' devices itself.
pub(crate) fn names_devices(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let hooks = match Slot::of_class(class)? {
        Some(slot) => slot.hooks(),
        None => Hooks::of(class)?,
    };
    Ok(hooks.aliases)
}

/// The function behind a class method.
fn function<'py>(
    class: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let method = class.getattr(name)?;
    let function = method.getattr_opt(intern!(class.py(), "__func__"))?;
    Ok(function.unwrap_or(method))
}

/// Maximum number of objects that may export one another before one that is not of a mixin class.
pub(crate) const MAX_HOPS: usize = 100;

/// Follows exports from `object`, an instance of a mixin class, to the first object of another class; also returns the
/// last mixin instance on the way.
///
/// # Errors
///
/// `RecursionError` if objects export one another; whatever attributes and methods of the class raise.
pub(crate) fn innermost<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let mut last = object.clone();
    for _ in 0..MAX_HOPS {
        let (inner, _) = hop(&last)?;
        if !is_mixin(&inner.get_type()) {
            return Ok((inner, last));
        }
        last = inner;
    }
    Err(endless(&object.get_type()))
}

/// What a mixin instance exports in the end, or `x` itself.
pub(crate) fn inner_of<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if is_mixin(&x.get_type()) {
        Ok(innermost(x)?.0)
    } else {
        Ok(x.clone())
    }
}

/// One step of [`innermost`], and whether the shape of the export has an owner.
fn hop<'py>(object: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let class = object.get_type();
    let derived;
    let origin = match Slot::of_class(&class)? {
        Some(slot) => &slot.origin,
        None => {
            derived = Origin::without_slot(&class)?;
            &derived
        }
    };
    Ok((origin.read(object)?, origin.lends()))
}

/// The object that lends its dimensions for those of `object`, which exports `inner`.
///
/// # Errors
///
/// `BufferError` if only this call holds it: what a table lends must belong to a live object (R129, S14).
pub(crate) fn lent<'py>(
    object: &Bound<'py, PyAny>,
    mut inner: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    for _ in 0..MAX_HOPS {
        // SAFETY: a live object, to which we hold a reference.
        if unsafe { ffi::Py_REFCNT(inner.as_ptr()) } < 2 {
            return Err(lends_nothing(object));
        }
        if !is_mixin(&inner.get_type()) {
            return Ok(inner);
        }
        inner = Python::attach(|_| match hop(&inner)? {
            (next, true) => Ok(next),
            (_, false) => Err(lends_nothing(object)),
        })?;
    }
    Err(endless(&object.get_type()))
}

/// The error for an object whose dimensions have no owner.
#[cold]
pub(crate) fn lends_nothing(x: &Bound<'_, PyAny>) -> PyErr {
    PyBufferError::new_err(format!(
        "{} lends no view, because no object owns its shape and its strides in elements; \
         use managed_tensor_from_py_object_no_sync",
        type_name(&x.get_type())
    ))
}

/// The error of the table of `own` that was given an object of another type (R127).
#[cold]
#[inline(never)]
pub(crate) fn stranger(own: &str, class: &Bound<'_, PyType>) -> PyErr {
    let name = type_name(class);
    PyBufferError::new_err(format!("the exchange table of {own} was given {name}"))
}

/// The error for objects that export one another.
#[cold]
pub(crate) fn endless(class: &Bound<'_, PyType>) -> PyErr {
    PyRecursionError::new_err(format!(
        "{} exports itself, or too many others: dlx followed {MAX_HOPS} objects or calls and reached no tensor",
        type_name(class)
    ))
}
