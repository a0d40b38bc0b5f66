//! Lookups of attributes on types through a function outside the stable ABI (S23 of `docs/safety.md`): it raises no
//! exception, and CPython's type cache answers it, misses included.

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::cpython::once::{Once, intern};
use crate::cpython::symbol::symbol;

/// `_PyType_Lookup`: the attribute of a type or its bases, borrowed, or NULL without an exception.
type TypeLookup =
    unsafe extern "C" fn(*mut ffi::PyTypeObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Whether `class` or one of its bases defines `name`, as seen from instances; `None` if CPython's function is absent.
///
/// Runs no Python code; CPython caches the answer by the type's version, misses included.
#[inline(always)]
pub(crate) fn is_in_type(
    class: *mut ffi::PyTypeObject,
    name: &Bound<'_, PyString>,
) -> Option<bool> {
    Some(!found(class, name)?.is_null())
}

/// Where the attribute lies that `class` or one of its bases defines, or NULL; `None` if CPython's function is absent.
#[inline(always)]
fn found(class: *mut ffi::PyTypeObject, name: &Bound<'_, PyString>) -> Option<*mut ffi::PyObject> {
    static FUNCTION: OnceLock<Option<TypeLookup>> = OnceLock::new();
    // SAFETY: `_PyType_Lookup` has had this signature since Python 2.2 (S23, CPython's functions).
    let function = FUNCTION.get_or_init(|| unsafe { symbol("_PyType_Lookup") });
    // SAFETY: a live type and a string, attached; the result is not dereferenced.
    function.map(|lookup| unsafe { lookup(class, name.as_ptr()) })
}

/// Whether `class` certainly has none of these attributes. A failing `getattr` costs as much as several successful
/// ones, at least before CPython 3.12, because it creates an exception.
#[inline(always)]
pub(crate) fn lacks(class: &Bound<'_, PyType>, names: &[&Bound<'_, PyString>]) -> bool {
    // The metaclass's attributes, and those of its `__getattr__`, are attributes of the class too.
    let meta = class.get_type_ptr();
    let root = &raw mut ffi::PyType_Type;
    let lacks = |class, name| is_in_type(class, name) == Some(false);
    names.iter().all(|name| lacks(class.as_type_ptr(), name))
        && (meta == root
            || (getattro(meta) == getattro(root) && names.iter().all(|name| lacks(meta, name))))
}

/// Whether the attributes of instances are those of `class`: they have no dict, and the usual function looks them up.
#[cold]
pub(crate) fn looks_up_by_type(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let dict: isize = class
        .getattr(intern!(class.py(), "__dictoffset__"))?
        .extract()?;
    let root = &raw mut ffi::PyBaseObject_Type;
    Ok(dict == 0 && getattro(class.as_type_ptr()) == getattro(root))
}

/// Whether objects of `class` certainly report it as their `__class__`, which `isinstance` asks after the type.
#[inline(always)]
pub(crate) fn reports_its_class(py: Python<'_>, class: *mut ffi::PyTypeObject) -> bool {
    /// How `object` looks up attributes, and its `__class__`: neither changes.
    static ROOT: OnceLock<(usize, usize)> = OnceLock::new();
    let name = intern!(py, "__class__");
    // 0 without CPython's function, and for no type else.
    let own = |class| found(class, name).map_or(0, |own| own.addr());
    let of = |class| (getattro(class), own(class));
    let root = ROOT.get_or_init(|| of(&raw mut ffi::PyBaseObject_Type));
    root.1 != 0 && of(class) == *root
}

/// Whether `isinstance(x, class)` is certainly what [`is_subtype`] says of the type of `x`: neither the metaclass nor
/// `x` answers it in another way.
#[inline(always)]
pub(crate) fn is_asked_by_type(x: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> bool {
    let (meta, root) = (class.get_type_ptr(), &raw mut ffi::PyType_Type);
    let name = intern!(class.py(), "__instancecheck__");
    let is_usual = || found(meta, name).is_some_and(|own| Some(own) == found(root, name));
    (meta == root || is_usual()) && reports_its_class(x.py(), x.get_type_ptr())
}

/// `_PyObject_GetDictPtr`: where an object points to its dict, or NULL.
type DictPointer = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut *mut ffi::PyObject;

/// Where `x` points to its dict, or NULL if it cannot have one; `None` if CPython's function is absent.
#[inline(always)]
fn dict_place(x: &Bound<'_, PyAny>) -> Option<*mut *mut ffi::PyObject> {
    static FUNCTION: OnceLock<Option<DictPointer>> = OnceLock::new();
    // SAFETY: `_PyObject_GetDictPtr` has had this signature since Python 2.2 (S23, CPython's functions).
    let function = FUNCTION.get_or_init(|| unsafe { symbol("_PyObject_GetDictPtr") });
    // SAFETY: a live object, attached.
    function.map(|function| unsafe { function(x.as_ptr()) })
}

/// Whether `x` certainly has no attributes of its own: it has no dict, or none yet.
#[inline(always)]
pub(crate) fn has_no_dict(x: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a word of the object, which CPython changes attached.
    dict_place(x).is_some_and(|place| place.is_null() || unsafe { place.read() }.is_null())
}

/// The bytes from `x` to where it points to its dict, if it can have one.
#[cold]
pub(crate) fn dict_offset(x: &Bound<'_, PyAny>) -> Option<isize> {
    let place = dict_place(x).filter(|place| !place.is_null())?;
    Some(place.addr().wrapping_sub(x.as_ptr().addr()) as isize)
}

/// Whether what `x` has under `name` is the method of its class; `None` if it has nothing there.
#[cold]
pub(crate) fn is_method_of_class(
    x: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
) -> PyResult<Option<bool>> {
    let Some(found) = x.getattr_opt(name)? else {
        return Ok(None);
    };
    let own = x.get_type().getattr(name)?;
    let own = own.call_method1(intern!(x.py(), "__get__"), (x,))?;
    // Methods of one type are equal if function and object are the same; another type may claim anything.
    Ok(Some(own.get_type().is(found.get_type()) && own.eq(found)?))
}

/// Whether CPython's own function looks up attributes of instances: the class has neither `__getattr__` nor
/// `__getattribute__`.
#[inline(always)]
pub(crate) fn looks_up_as_usual(class: *mut ffi::PyTypeObject) -> bool {
    getattro(class) == ffi::PyObject_GenericGetAttr as *const () as usize
}

/// The address of the function that looks up attributes of instances.
#[inline(always)]
fn getattro(class: *mut ffi::PyTypeObject) -> usize {
    // SAFETY: a live type; the slot is a function pointer that is only compared.
    unsafe { ffi::PyType_GetSlot(class, ffi::Py_tp_getattro) }.addr()
}

/// Whether `class` is `base` or a subclass, ignoring metaclasses.
#[inline(always)]
pub(crate) fn is_subtype(class: *mut ffi::PyTypeObject, base: &Bound<'_, PyType>) -> bool {
    // SAFETY: both types are alive; this reads their bases and calls nothing.
    unsafe { ffi::PyType_IsSubtype(class, base.as_type_ptr()) != 0 }
}

/// Whether Python code can change `class`, and all of its bases but `object`.
#[inline(always)]
pub(crate) fn is_python(class: &Bound<'_, PyType>) -> bool {
    let root = &raw mut ffi::PyBaseObject_Type;
    let mut class = class.as_type_ptr();
    while class != root {
        // SAFETY: a live type; this only reads its flags.
        if unsafe { ffi::PyType_GetFlags(class) } & ffi::Py_TPFLAGS_HEAPTYPE == 0 {
            return false;
        }
        // SAFETY: a live type, which holds its base; only `object` has none.
        class = unsafe { ffi::PyType_GetSlot(class, ffi::Py_tp_base) }.cast();
    }
    true
}

/// The class of this full name that a library's C code made, if `class` is it or derives from it. Whatever `sys.modules`
/// says: Python code can make no such class.
#[cold]
pub(crate) fn static_base<'py>(
    class: &Bound<'py, PyType>,
    module: &str,
    name: &str,
) -> PyResult<Option<Bound<'py, PyType>>> {
    for base in class.mro() {
        let base = base.cast_into::<PyType>()?;
        if is_static(&base) && base.name()? == name && base.module()? == module {
            return Ok(Some(base));
        }
    }
    Ok(None)
}

/// As [`static_base`], of a class that is kept `known` from the first on; all that derive from it have an `attribute`.
#[inline(always)]
pub(crate) fn known_base<'py>(
    known: &'static Once<Py<PyType>>,
    class: &Bound<'py, PyType>,
    attribute: &Bound<'py, PyString>,
    (module, name): (&str, &str),
) -> PyResult<Option<&'py Bound<'py, PyType>>> {
    let py = class.py();
    let base = match known.get(py) {
        Some(base) => base,
        None if is_in_type(class.as_type_ptr(), attribute) == Some(false) => return Ok(None),
        None => match static_base(class, module, name)? {
            Some(base) => known.get_or_init(py, || base.unbind()),
            None => return Ok(None),
        },
    };
    let base = base.bind(py);
    Ok(is_subtype(class.as_type_ptr(), base).then_some(base))
}

/// Whether Python code cannot set attributes on `class`, so no table can appear on it later.
pub(crate) fn is_immutable(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: a live type; this only reads its flags.
    let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
    flags & ffi::Py_TPFLAGS_IMMUTABLETYPE != 0
}

/// Whether `class` is a static type: it lives as long as the process, and Python code cannot change it.
pub(crate) fn is_static(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: a live type; this only reads its flags.
    let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
    flags & ffi::Py_TPFLAGS_HEAPTYPE == 0
}

#[cfg(test)]
mod tests {
    use pyo3::types::PyModule;

    use super::*;

    #[test]
    fn a_class_lacks_what_neither_it_nor_its_metaclass_has() -> PyResult<()> {
        Python::attach(|py| {
            let code = c"class Meta(type):
    of_meta = 1
class Making(type):
    def __getattr__(cls, name): return 1
class Plain:
    own = 1
class X(Plain, metaclass=Meta): pass
class Y(Plain, metaclass=Making): pass";
            let module = PyModule::from_code(py, code, c"x.py", c"x")?;
            for (class, name, absent) in [
                ("Plain", "own", false),
                ("Plain", "missing", true),
                ("X", "own", false),
                ("X", "of_meta", false),
                ("X", "missing", true),
                ("Y", "missing", false),
            ] {
                let class = module.getattr(class)?.cast_into::<PyType>()?;
                let name = PyString::new(py, name);
                assert_eq!(lacks(&class, &[&name]), absent, "{class} {name}");
                assert_eq!(class.hasattr(&name)?, !absent);
            }
            Ok(())
        })
    }
}
