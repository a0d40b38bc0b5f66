//! The class of tensors that Python sees, whose objects are made and freed without the detours of PyO3.
//!
//! PyO3 makes an object through `object.__new__`, with a tuple of no arguments, frees it by a function that it asks
//! the class for, and has the garbage collector know it, though a tensor has nothing that the collector could follow.
//! So the class is derived from the one that PyO3 makes, which has all the methods, and says itself how its objects
//! begin and end (invariant S24 of `docs/safety.md`).

#![allow(unsafe_code, reason = "the layout and the type that are proven here")]

use std::ffi::{c_int, c_void};
use std::ptr::{self, null_mut};
use std::sync::atomic::AtomicBool;

use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use super::Tensor;
use crate::boundary::guard;
use crate::dtype;
use crate::interpreter::Quiet;
use crate::method::symbol;
use crate::snapshot::Snapshot;

/// The class, and where in its objects the value lies; all else behind their head is zeros.
struct Class {
    class: Py<PyType>,
    place: usize,
}

static CLASS: PyOnceLock<Class> = PyOnceLock::new();

impl Tensor {
    /// The class `dlx.Tensor`.
    pub(crate) fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
        Ok(Class::get(py)?.class.bind(py))
    }

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
        let value = Self::over(snapshot);
        let Class { class, place } = Class::get(py)?;
        // SAFETY: attached, with a class whose objects are allocated so.
        let object = unsafe { ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0) };
        // SAFETY: a new reference, or NULL with an exception.
        let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
        // SAFETY: inside the object (S24).
        let place = unsafe { object.as_ptr().byte_add(*place) };
        // SAFETY: the place of the value in an object that nobody else has seen (S24).
        unsafe { place.cast::<Self>().write(value) };
        // SAFETY: an instance of the class of `Tensor`, complete now.
        Ok(unsafe { object.cast_into_unchecked() })
    }

    fn over(snapshot: Snapshot) -> Self {
        Self {
            snapshot: Quiet::new(snapshot),
            ended: AtomicBool::new(false),
        }
    }
}

impl Class {
    #[inline(always)]
    fn get(py: Python<'_>) -> PyResult<&Self> {
        match CLASS.get(py) {
            Some(class) => Ok(class),
            None => CLASS.get_or_try_init(py, || Self::derive(py)),
        }
    }

    /// Derives the class from that of PyO3.
    #[cold]
    #[inline(never)]
    fn derive(py: Python<'_>) -> PyResult<Self> {
        let base = py.get_type::<Tensor>();
        let place = place(&base)?;
        let slot = |slot, function| ffi::PyType_Slot {
            slot,
            pfunc: function,
        };
        let mut slots = [
            slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
            // Who has this of his own does not inherit that the collector knows his objects.
            slot(ffi::Py_tp_traverse, traverse as *mut c_void),
            slot(ffi::Py_tp_free, ffi::PyObject_Free as *mut c_void),
            slot(0, null_mut()),
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"dlx.Tensor".as_ptr(),
            basicsize: 0,
            itemsize: 0,
            flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as _,
            slots: slots.as_mut_ptr(),
        };
        let bases = PyTuple::new(py, [&base])?;
        // SAFETY: attached; the slots are functions of their kinds, closed by a zero, and CPython copies them.
        let class = unsafe { ffi::PyType_FromSpecWithBases(&mut spec, bases.as_ptr()) };
        // SAFETY: a new reference, or NULL with an exception.
        let class = unsafe { Bound::from_owned_ptr_or_err(py, class) }?.cast_into::<PyType>()?;
        let doc = intern!(py, "__doc__");
        class.setattr(doc, base.getattr(doc)?)?;
        share(&class);
        Ok(Self {
            class: class.unbind(),
            place,
        })
    }
}

/// Where PyO3 looks for the value in the objects of `base` and of what is derived from it.
///
/// # Errors
///
/// `SystemError` if there is something else in such an object that PyO3 writes.
fn place(base: &Bound<'_, PyType>) -> PyResult<usize> {
    let bytes = Snapshot::allocate(&[0], dtype::BYTE, 0)?;
    let sample = Bound::new(base.py(), Tensor::over(bytes))?;
    let size: usize = base.getattr("__basicsize__")?.extract()?;
    let start = sample.as_ptr().cast_const().cast::<u8>();
    let place = ptr::from_ref(sample.get()).addr() - start.addr();
    let value = place..place + size_of::<Tensor>();
    let mut rest = (size_of::<ffi::PyObject>()..size).filter(|offset| !value.contains(offset));
    let is_zero = |offset| {
        // SAFETY: inside a live object of `size` bytes.
        let byte = unsafe { start.add(offset) };
        // SAFETY: as above; CPython has zeroed every byte of it.
        unsafe { byte.read() == 0 }
    };
    match rest.all(is_zero) {
        true => Ok(place),
        false => Err(PySystemError::new_err(
            "dlx was built with a PyO3 whose objects it does not know",
        )),
    }
}

/// `tp_dealloc` of the class.
///
/// # Safety
///
/// Called by CPython, attached, with an object of the class that nobody refers to any more.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let body = || {
        // SAFETY: the caller's promise.
        let py = unsafe { Python::assume_attached() };
        let Some(Class { place, .. }) = CLASS.get(py) else {
            return; // There is no object without the class.
        };
        // SAFETY: as the caller promises.
        let class = unsafe { ffi::Py_TYPE(object) };
        // SAFETY: as the caller promises; the value is whole for the callbacks, which do not get at it.
        unsafe { ffi::PyObject_ClearWeakRefs(object) };
        // SAFETY: inside the object (S24).
        let place = unsafe { object.byte_add(*place) };
        // SAFETY: `new` has written it, and nobody looks at it any more (S24).
        unsafe { place.cast::<Tensor>().drop_in_place() };
        // SAFETY: allocated by `PyType_GenericAlloc` of a class without the garbage collector.
        unsafe { ffi::PyObject_Free(object.cast()) };
        // SAFETY: every object has a reference to its class.
        unsafe { ffi::Py_DECREF(class.cast()) };
    };
    guard(body, drop);
}

/// `tp_traverse` of the class, which nobody calls: its objects are not known to the collector.
unsafe extern "C" fn traverse(_: *mut ffi::PyObject, _: ffi::visitproc, _: *mut c_void) -> c_int {
    0
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
    use super::*;

    #[test]
    fn all_that_pyo3_writes_besides_the_value_is_zeros() -> PyResult<()> {
        Python::attach(|py| place(&py.get_type::<Tensor>()).map(|place| assert_ne!(place, 0)))
    }

    #[test]
    fn an_object_is_a_tensor_that_the_collector_does_not_know() -> PyResult<()> {
        Python::attach(|py| {
            let tensor = Tensor::new(py, Snapshot::allocate(&[2, 3], dtype::BYTE, 0)?)?;
            assert!(tensor.get_type().is(Tensor::class(py)?));
            assert!(Tensor::of(tensor.as_any()).is_some());
            assert!(tensor.is_instance_of::<Tensor>());
            assert_eq!(tensor.get().snapshot()?.shape(), [2, 3]);
            let is_tracked = py.import("gc")?.call_method1("is_tracked", (&tensor,))?;
            assert!(!is_tracked.is_truthy()?);
            let weak = py.import("weakref")?.getattr("ref")?.call1((&tensor,))?;
            assert!(weak.call0()?.is(&tensor));
            drop(tensor);
            assert!(weak.call0()?.is_none());
            Ok(())
        })
    }
}
