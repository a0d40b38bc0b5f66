//! The Python object of a tensor, made and told from others without the detours of PyO3.
//!
//! PyO3 makes an object through `object.__new__`, with a tuple of no arguments, and what it then writes besides the
//! value is zeros, as allocations of CPython are. That is seen in the first object, which PyO3 makes (invariant S24 of
//! `docs/safety.md`).

#![allow(unsafe_code, reason = "the layout and the type that are proven here")]

use std::ptr;
use std::sync::atomic::AtomicBool;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::Tensor;
use crate::interpreter::Quiet;
use crate::method::symbol;
use crate::snapshot::Snapshot;

/// The class, and where in its objects the value lies, if all else that PyO3 writes is zeros.
struct Class {
    class: Py<PyType>,
    place: Option<usize>,
}

static CLASS: PyOnceLock<Class> = PyOnceLock::new();

impl Tensor {
    /// `object`, if it is a tensor; the class cannot be derived from.
    #[inline(always)]
    pub(crate) fn of<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, Self>> {
        // Without the class there is no instance.
        let class = CLASS.get(object.py())?.class.as_ptr();
        (object.get_type_ptr().cast() == class).then(|| {
            // SAFETY: its type is the class of `Tensor`.
            unsafe { object.cast_unchecked() }
        })
    }

    /// The tensor over `snapshot`.
    #[inline(never)]
    pub(crate) fn new(py: Python<'_>, snapshot: Snapshot) -> PyResult<Bound<'_, Self>> {
        let value = Self {
            snapshot: Quiet::new(snapshot),
            ended: AtomicBool::new(false),
        };
        let Some(Class { class, place }) = CLASS.get(py) else {
            return first(py, value);
        };
        let &Some(place) = place else {
            return Bound::new(py, value);
        };
        // SAFETY: attached, with a class whose objects are allocated so.
        let object = unsafe { ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0) };
        // SAFETY: a new reference, or NULL with an exception.
        let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
        // SAFETY: inside the object (S24).
        let place = unsafe { object.as_ptr().byte_add(place) };
        // SAFETY: the place of the value in an object that nobody else has seen (S24).
        unsafe { place.cast::<Self>().write(value) };
        // SAFETY: an instance of the class of `Tensor`, complete now.
        Ok(unsafe { object.cast_into_unchecked() })
    }
}

/// The first tensor, which PyO3 makes, and which shows how the others are to be made.
#[cold]
fn first(py: Python<'_>, value: Tensor) -> PyResult<Bound<'_, Tensor>> {
    let tensor = Bound::new(py, value)?;
    let class = tensor.get_type();
    let size: usize = class.getattr("__basicsize__")?.extract()?;
    let start = tensor.as_ptr().cast_const().cast::<u8>();
    let place = ptr::from_ref(tensor.get()).addr() - start.addr();
    let value = place..place + size_of::<Tensor>();
    let mut rest = (size_of::<ffi::PyObject>()..size).filter(|offset| !value.contains(offset));
    let is_zero = |offset| {
        // SAFETY: inside a live object of `size` bytes.
        let byte = unsafe { start.add(offset) };
        // SAFETY: as above; CPython has zeroed every byte of it.
        unsafe { byte.read() == 0 }
    };
    let place = rest.all(is_zero).then_some(place);
    share(&class);
    let class = class.unbind();
    CLASS.get_or_init(py, || Class { class, place });
    Ok(tensor)
}

/// Whether objects begin with more than a count and a type: so they do without a GIL.
const IS_FREE_THREADED: bool = size_of::<ffi::PyObject>() > 2 * size_of::<usize>();

/// Ends the counting of references to the class, which lives as long as the process, where threads run at once: each
/// tensor has one, and to count it in turn would cost them as much as a GIL.
fn share(class: &Bound<'_, PyType>) {
    if !IS_FREE_THREADED {
        return;
    }
    // SAFETY: `Py_SET_REFCNT` as a function, which has this signature since CPython 3.13.
    let set: Option<unsafe extern "C" fn(*mut ffi::PyObject, ffi::Py_ssize_t)> =
        unsafe { symbol("_Py_SetRefcnt") };
    if let Some(set) = set {
        // SAFETY: a live object, of which nobody else knows yet; so large a count makes it immortal.
        unsafe { set(class.as_ptr(), ffi::Py_ssize_t::MAX) };
    }
}

#[cfg(test)]
mod tests {
    use pyo3::PyTypeInfo;

    use super::*;
    use crate::abi::{DLDataType, kDLFloat};

    #[test]
    fn all_that_pyo3_writes_besides_the_value_is_zeros() -> PyResult<()> {
        Python::attach(|py| {
            let dtype = DLDataType {
                code: kDLFloat,
                bits: 32,
                lanes: 1,
            };
            let tensor = || Tensor::new(py, Snapshot::allocate(&[2, 3], dtype, 0)?);
            let (first, second) = (tensor()?, tensor()?);
            assert!(CLASS.get(py).is_some_and(|class| class.place.is_some()));
            assert!(second.get_type().is(Tensor::type_object(py)));
            assert_eq!(second.get().snapshot()?.shape(), [2, 3]);
            let weak = py.import("weakref")?.getattr("ref")?.call1((&second,))?;
            assert!(weak.call0()?.is(&second));
            drop((first, second));
            assert!(weak.call0()?.is_none());
            Ok(())
        })
    }
}
