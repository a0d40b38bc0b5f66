//! Where the exports of a class come from, and which hooks it has: decided when the class is defined.

use std::cell::Cell;

use pyo3::exceptions::{PyBufferError, PyRecursionError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use super::Slot;
use crate::types::error::type_name;

static MIXIN: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The mixin, which is `class` unless there is one.
pub(crate) fn root_or<'a, 'py>(class: &'a Bound<'py, PyType>) -> &'a Bound<'py, PyType> {
    let py = class.py();
    let root = MIXIN.get_or_init(py, || class.clone().unbind());
    root.bind(py)
}

/// Whether `class` is `dlx.ExchangeMixin` or one of its subclasses.
pub(crate) fn is_mixin(class: &Bound<'_, PyType>) -> bool {
    let mixin = MIXIN.get(class.py());
    // SAFETY: two live types; their bases are read, nothing is called.
    mixin.is_some_and(|mixin| unsafe {
        ffi::PyType_IsSubtype(class.as_type_ptr(), mixin.bind(class.py()).as_type_ptr()) != 0
    })
}

/// Whether `class` is `dlx.ExchangeMixin` itself.
pub(crate) fn is_root(class: &Bound<'_, PyType>) -> bool {
    MIXIN.get(class.py()).is_some_and(|mixin| mixin.is(class))
}

/// Where the export of an instance comes from.
pub(crate) enum Origin {
    /// An attribute; `stored` if reading it makes nothing.
    Attribute { name: Py<PyString>, stored: bool },
    /// What the method `__dlx_export__` returns.
    Method,
    /// The instance itself, of a type that is not dlx's. `import` makes one of a `dlx.Tensor`, or without it the
    /// class's own `from_dlpack`.
    Itself { import: Option<Py<PyAny>> },
}

impl Origin {
    /// What a subclass of the mixin says: `exchange="name"` marks the `__dlx_export__` that it makes.
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

    /// What to export in place of `object`.
    #[inline(always)]
    pub(crate) fn read<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Attribute { name, stored: true } => object.getattr(name.bind(object.py())),
            _ => self.compute(object),
        }
    }

    /// As [`Self::read`], where that may run code of the class.
    #[inline(never)]
    fn compute<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        match self {
            Self::Attribute { name, .. } => {
                nested(&object.get_type(), || object.getattr(name.bind(py)))
            }
            Self::Method => nested(&object.get_type(), || {
                object.call_method0(intern!(py, "__dlx_export__"))
            }),
            Self::Itself { .. } => Ok(object.clone()),
        }
    }

    /// Whether what is exported belongs to the instance, so that its shapes have an owner when it is lent.
    pub(crate) fn lends(&self) -> bool {
        matches!(self, Self::Attribute { stored: true, .. })
    }

    /// How an error calls what was read.
    pub(crate) fn describe(&self, py: Python<'_>) -> String {
        match self {
            Self::Attribute { name, .. } => format!(".{} is", name.bind(py)),
            Self::Method => ".__dlx_export__ returned".to_owned(),
            Self::Itself { .. } => " is".to_owned(),
        }
    }
}

/// Runs code of a class that may come back here, to a depth that the stack of any thread has room for.
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

/// Whether the attribute `name` of an instance is an object that the instance holds: read from its dictionary
/// or a slot, and not computed.
fn is_stored(class: &Bound<'_, PyType>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    let py = class.py();
    // SAFETY: a live type; the slot is a function pointer, which is only compared.
    let getattro = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_getattro) };
    let generic: ffi::getattrofunc = ffi::PyObject_GenericGetAttr;
    if getattro.addr() != generic as usize {
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

/// The optional hooks that a class has of its own.
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
    /// Those of a subclass of the mixin, which has defaults for them.
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

/// Whether a class of the mixin says itself on which devices its instances are too.
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

/// How many objects may stand for one another before something is exported.
pub(crate) const MAX_HOPS: usize = 100;

/// What is exported in place of `object`, an instance of a mixin class, and the last such instance on the way.
///
/// # Errors
///
/// `RecursionError` where objects export one another; what attributes and methods of the class raise.
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

/// What one instance of a mixin class exports, and whether its shapes have an owner then.
fn hop<'py>(object: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let class = object.get_type();
    let derived;
    let origin = match Slot::of_class(&class)?.and_then(Slot::holder) {
        Some(holder) => &holder.origin,
        None => {
            derived = Origin::of(&class)?;
            &derived
        }
    };
    Ok((origin.read(object)?, origin.lends()))
}

/// The object whose dimensions are lent in place of those of `object`, which exports `inner`.
///
/// # Errors
///
/// `BufferError` where nothing but this call holds it: what a table lends belongs to a live object (R129, S14).
pub(crate) fn lent<'py>(
    object: &Bound<'py, PyAny>,
    mut inner: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    for _ in 0..MAX_HOPS {
        // SAFETY: a live object; one reference to it is ours.
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
        "{} lends no view, because nothing holds its shape and strides in elements; \
         managed_tensor_from_py_object_no_sync exports it",
        type_name(&x.get_type())
    ))
}

/// The error for objects that stand for one another.
#[cold]
pub(crate) fn endless(class: &Bound<'_, PyType>) -> PyErr {
    PyRecursionError::new_err(format!(
        "{} exports itself: {MAX_HOPS} objects or calls were followed, each of which leads to the next",
        type_name(class)
    ))
}
