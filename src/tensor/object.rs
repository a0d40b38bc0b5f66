//! The class of tensors that Python sees, whose objects are made and freed without the detours of PyO3.
//!
//! PyO3 makes an object through `object.__new__`, with a tuple of no arguments, frees it by a function that it asks
//! the class for, and has the garbage collector know it, though a tensor has nothing that the collector could follow.
//! So the class is derived from the one that PyO3 makes, which has all the methods, and says itself how its objects
//! begin and end (invariant S24 of `docs/safety.md`).

mod collected;

use std::ffi::{c_int, c_ulong, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::exceptions::{PyBufferError, PyMemoryError, PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::abi::DLDevice;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::interpreter::Quiet;
use crate::cpython::symbol::symbol;
use crate::tensor::snapshot::Snapshot;

/// A strided view of memory that it keeps alive: shape, strides, dtype, device and address, all immutable.
///
/// Made by `from_dlpack` and `from_pointer`. The elements themselves belong to whoever exported them and may
/// change even if ``readonly`` is set. Exports by DLPack (``__dlpack__`` and the C exchange table)
/// and, on the CPU, by the buffer protocol and ``__array_interface__``.
#[pyclass(frozen, subclass, weakref, module = "dlx._core")]
pub struct Tensor {
    pub(super) snapshot: Quiet<Snapshot>,
    /// Whether the block that lent it has ended.
    pub(super) ended: AtomicBool,
}

impl Tensor {
    /// What it is.
    ///
    /// # Errors
    ///
    /// `BufferError` for a tensor that was lent for a block, once that has ended.
    #[inline(always)]
    pub(crate) fn snapshot(&self) -> PyResult<&Snapshot> {
        if self.ended.load(Ordering::Relaxed) {
            Err(ended())
        } else {
            Ok(&self.snapshot)
        }
    }

    /// What it is, if it is not ended and has no streams.
    #[inline(always)]
    pub(crate) fn fast_snapshot(&self) -> Option<&Snapshot> {
        let is_plain = !self.ended.load(Ordering::Relaxed) && self.snapshot.usage().is_none();
        is_plain.then_some(&*self.snapshot)
    }

    /// What it is, to be described: the memory may no longer be its own.
    pub(crate) fn described(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Where the memory is.
    pub(crate) fn device(&self) -> DLDevice {
        self.snapshot.meta().device
    }

    /// Takes back what was lent: from here on nobody gets at the memory through this tensor.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cold]
#[inline(never)]
fn ended() -> PyErr {
    PyBufferError::new_err(
        "the tensor was lent for a block that has ended; import what is to be kept with dlx.from_dlpack",
    )
}

/// An object of the class, as PyO3 lays it out.
#[repr(C)]
pub(super) struct Object {
    head: MaybeUninit<ffi::PyObject>,
    pub(super) value: Tensor,
    pub(super) weak: AtomicPtr<ffi::PyObject>,
}

/// The class, and the one derived from it whose objects the garbage collector knows.
struct Classes {
    plain: Py<PyType>,
    collected: Py<PyType>,
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

impl Tensor {
    /// The class `dlx.Tensor`.
    #[inline(always)]
    pub(crate) fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
        Ok(classes(py)?.plain.bind(py))
    }

    /// Whether `class` is that of tensors.
    pub(crate) fn is_class(class: &Bound<'_, PyType>) -> PyResult<bool> {
        let classes = classes(class.py())?;
        Ok(class.is(&classes.plain) || class.is(&classes.collected))
    }

    /// `object`, if it is a tensor; Python code cannot derive from the class.
    #[inline(always)]
    pub(crate) fn of<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, Self>> {
        // Without the classes there is no instance.
        let classes = CLASSES.get(object.py())?;
        let class = object.get_type_ptr().cast();
        (classes.plain.as_ptr() == class || classes.collected.as_ptr() == class).then(|| {
            // SAFETY: its type is a class of `Tensor`.
            unsafe { object.cast_unchecked() }
        })
    }

    /// The tensor over `snapshot`, which holds objects that may come to hold it: the garbage collector is told.
    #[cold]
    pub(crate) fn holding(py: Python<'_>, snapshot: Snapshot) -> PyResult<Bound<'_, Self>> {
        if snapshot.objects().into_iter().any(collected::may_hold) {
            collected::new(py, classes(py)?.collected.bind(py), snapshot)
        } else {
            Self::new(py, snapshot)
        }
    }

    #[inline(always)]
    pub(super) fn over(snapshot: Snapshot) -> Self {
        Self {
            snapshot: Quiet::new(snapshot),
            ended: AtomicBool::new(false),
        }
    }

    /// The tensor over `snapshot`.
    #[inline(never)]
    pub(crate) fn new(py: Python<'_>, snapshot: Snapshot) -> PyResult<Bound<'_, Self>> {
        let object = Object {
            head: MaybeUninit::uninit(),
            value: Self::over(snapshot),
            weak: AtomicPtr::new(null_mut()),
        };
        let class = Self::class(py)?.as_type_ptr();
        // SAFETY: attached.
        let memory = unsafe { ffi::PyObject_Malloc(size_of::<Object>()) };
        let Some(place) = NonNull::new(memory.cast::<Object>()) else {
            return Err(PyMemoryError::new_err(()));
        };
        // SAFETY: room for an object, aligned as CPython aligns all of them.
        unsafe { place.write(object) };
        // SAFETY: attached; all of an object of this class but its head (S24), which this fills.
        let object = unsafe { ffi::PyObject_Init(place.as_ptr().cast(), class) };
        // SAFETY: the only reference to the object.
        let object = unsafe { Bound::from_owned_ptr(py, object) };
        // SAFETY: its class is that of `Tensor`.
        Ok(unsafe { object.cast_into_unchecked() })
    }
}

#[inline(always)]
fn classes(py: Python<'_>) -> PyResult<&Classes> {
    match CLASSES.get(py) {
        Some(classes) => Ok(classes),
        None => CLASSES.get_or_try_init(py, || {
            let plain = derive(py)?;
            let collected = collected::derive(&plain)?.unbind();
            let plain = plain.unbind();
            Ok(Classes { plain, collected })
        }),
    }
}

/// What Python code finds that derives from the class: a subclass would inherit a table that makes its base (R130).
#[pyfunction]
#[pyo3(signature = (**_keywords))]
fn __init_subclass__(_keywords: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    Err(PyTypeError::new_err(
        "type 'dlx.Tensor' is not an acceptable base type",
    ))
}

/// Derives the class from that of PyO3.
///
/// # Errors
///
/// `SystemError` if PyO3 lays its objects out in another way.
#[cold]
#[inline(never)]
fn derive(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let base = py.get_type::<Tensor>();
    let number = |name| base.getattr(name)?.extract::<usize>();
    // What is there besides the head and the weak references is then the value.
    let layout = (number("__basicsize__")?, number("__weakrefoffset__")?);
    if layout != (size_of::<Object>(), offset_of!(Object, weak)) {
        let message = format!("dlx does not know how PyO3 lays out objects: {layout:?}");
        return Err(PySystemError::new_err(message));
    }
    let functions = [
        dealloc as *mut c_void,
        // Who has one of his own does not inherit that the collector knows his objects.
        traverse as *mut c_void,
        free as *mut c_void,
    ];
    let class = subclass(&base, functions, ffi::Py_TPFLAGS_BASETYPE as _)?;
    let init_subclass = intern!(py, "__init_subclass__");
    class.setattr(init_subclass, wrap_pyfunction!(__init_subclass__, py)?)?;
    share(&class);
    Ok(class)
}

/// A class `dlx.Tensor` derived from `base`, whose objects `tp_dealloc`, `tp_traverse` and `tp_free` are for.
pub(super) fn subclass<'py>(
    base: &Bound<'py, PyType>,
    [dealloc, traverse, free]: [*mut c_void; 3],
    flags: c_ulong,
) -> PyResult<Bound<'py, PyType>> {
    let py = base.py();
    let mut slots = [
        (ffi::Py_tp_dealloc, dealloc),
        (ffi::Py_tp_traverse, traverse),
        (ffi::Py_tp_free, free),
        (0, null_mut()),
    ]
    .map(|(slot, pfunc)| ffi::PyType_Slot { slot, pfunc });
    let flags = flags | ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: c"dlx.Tensor".as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: flags as _,
        slots: slots.as_mut_ptr(),
    };
    let bases = PyTuple::new(py, [base])?;
    // SAFETY: attached; each slot has a function of its kind, the last is zero, and CPython copies all of it.
    let class = unsafe { ffi::PyType_FromSpecWithBases(&mut spec, bases.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, class) }?.cast_into::<PyType>()?;
    let doc = intern!(py, "__doc__");
    class.setattr(doc, base.getattr(doc)?)?;
    Ok(class)
}

/// `tp_dealloc` of the class. PyO3 does not know of its attachment, as a snapshot does not need it to (S5).
///
/// # Safety
///
/// Called by CPython, attached, with an object of the class that nobody refers to any more.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let body = || {
        // SAFETY: as the caller promises.
        let class = unsafe { ffi::Py_TYPE(object) };
        // SAFETY: as the caller promises.
        unsafe { end(object) };
        // SAFETY: allocated by `new`.
        unsafe { ffi::PyObject_Free(object.cast()) };
        // SAFETY: every object has a reference to its class.
        unsafe { ffi::Py_DECREF(class.cast()) };
    };
    guard(body, unraisable);
}

/// Ends all of an object but its head and its memory.
///
/// # Safety
///
/// As for [`dealloc`].
#[inline(always)]
pub(super) unsafe fn end(object: *mut ffi::PyObject) {
    let place = object.cast::<Object>();
    // SAFETY: whole until here (S24).
    let weak = unsafe { &(*place).weak };
    if !weak.load(Ordering::Relaxed).is_null() {
        // SAFETY: as the caller promises.
        unsafe { ffi::PyObject_ClearWeakRefs(object) };
    }
    // SAFETY: written when the object was made (S24); nobody gets at it any more.
    unsafe { place.drop_in_place() };
}

/// `tp_free` of the class, by which CPython sees that no object of it may be given the class of another: a function of
/// its own.
unsafe extern "C" fn free(object: *mut c_void) {
    // SAFETY: memory that `new` allocated.
    unsafe { ffi::PyObject_Free(object) };
}

/// `tp_traverse` of the class; nobody calls it.
unsafe extern "C" fn traverse(_: *mut ffi::PyObject, _: ffi::visitproc, _: *mut c_void) -> c_int {
    0
}

/// Whether objects begin with more than a count and a type: so they do without a GIL.
const IS_FREE_THREADED: bool = size_of::<ffi::PyObject>() > 2 * size_of::<usize>();

/// Ends the counting of references to the class, which lives as long as the process, where threads run at once: each
/// tensor has one, and to count it in turn would cost them as much as a GIL.
pub(super) fn share(class: &Bound<'_, PyType>) {
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
    use crate::types::dtype;

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
