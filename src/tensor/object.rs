//! The Python class of tensors, with its own allocation and deallocation.
//!
//! PyO3 creates objects through `object.__new__` with an empty tuple, frees them by a function that it looks up on the
//! class, and registers them with the garbage collector, although most tensors hold nothing to traverse. So
//! `dlx.Tensor` derives from PyO3's class, which has all the methods, and makes and frees its objects itself (S24 of
//! `docs/safety.md`).

mod collected;

use std::ffi::{c_int, c_ulong, c_void};
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::exceptions::{PyBufferError, PyMemoryError, PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::abi::DLDevice;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::interpreter::quietly;
use crate::cpython::once::Once;
use crate::cpython::symbol::symbol;
use crate::cpython::{derived, head};
use crate::tensor::snapshot::Snapshot;

/// A strided view of memory that it keeps alive: shape, strides, dtype, device and address, all immutable.
///
/// Made by functions such as `from_dlpack`, `from_pointer`, `from_buffer` and `empty`. The elements themselves belong to
/// whoever exported them and may change even if ``readonly`` is set. Exports by DLPack (``__dlpack__`` and the C exchange
/// table) and, on the CPU, by the buffer protocol and ``__array_interface__``.
#[pyclass(frozen, sequence, subclass, weakref, module = "dlx._core")]
pub struct Tensor {
    pub(super) snapshot: ManuallyDrop<Snapshot>,
    /// Whether the `with` block that lent it has ended.
    pub(super) ended: AtomicBool,
}

impl Tensor {
    /// The snapshot; `None` for a lent tensor whose block has ended.
    #[inline(always)]
    pub(crate) fn current(&self) -> Option<&Snapshot> {
        (!self.ended.load(Ordering::Relaxed)).then_some(&*self.snapshot)
    }

    /// As [`Self::current`].
    ///
    /// # Errors
    ///
    /// `BufferError` for a lent tensor whose block has ended.
    #[inline(always)]
    pub(crate) fn snapshot(&self) -> PyResult<&Snapshot> {
        self.current().ok_or_else(ended)
    }

    /// The snapshot, if it has no streams and has not ended.
    #[inline(always)]
    pub(crate) fn fast_snapshot(&self) -> Option<&Snapshot> {
        self.current().filter(|snapshot| !snapshot.has_streams())
    }

    /// The snapshot, for its description only: a lent tensor's memory may be gone.
    pub(crate) fn described(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The device.
    pub(crate) fn device(&self) -> DLDevice {
        self.snapshot.meta().device
    }

    /// Ends a loan: from now on this tensor gives no access to the memory.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Drop for Tensor {
    /// Preserves the pending exception: objects die while exceptions propagate, and a foreign deleter may run Python code
    /// (R5).
    fn drop(&mut self) {
        // SAFETY: a part of a Python object, whose destructor runs attached, or was about to become part of one in a
        // function that is called attached.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: taken only here; `self` is not used again.
        let snapshot = unsafe { ManuallyDrop::take(&mut self.snapshot) };
        quietly(py, || snapshot.drop_attached(py));
    }
}

#[cold]
#[inline(never)]
fn ended() -> PyErr {
    PyBufferError::new_err(
        "the tensor was lent for a call or a `with` block that has ended; keep x[...] in its place, which outlives it",
    )
}

/// What follows the head in an object of the class, with PyO3's layout.
#[repr(C)]
pub(super) struct Body {
    pub(super) value: Tensor,
    pub(super) weak: AtomicPtr<ffi::PyObject>,
}

impl Body {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self {
            value: Tensor {
                snapshot: ManuallyDrop::new(snapshot),
                ended: AtomicBool::new(false),
            },
            weak: AtomicPtr::new(null_mut()),
        }
    }

    /// The body of an object of the class.
    ///
    /// # Safety
    ///
    /// `object` points to memory for such an object.
    #[inline(always)]
    pub(super) unsafe fn of(object: *mut ffi::PyObject) -> *mut Self {
        // SAFETY: inside that memory, as the caller guarantees.
        unsafe { object.byte_add(head::size()) }.cast()
    }
}

/// The class, and the subclass whose objects the garbage collector tracks.
struct Classes {
    plain: Py<PyType>,
    collected: Py<PyType>,
}

static CLASSES: Once<Classes> = Once::new();

impl Tensor {
    /// The class `dlx.Tensor`.
    #[inline(always)]
    pub(crate) fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
        Ok(classes(py)?.plain.bind(py))
    }

    /// Whether `class` is one of the two.
    pub(crate) fn is_class(class: &Bound<'_, PyType>) -> PyResult<bool> {
        let classes = classes(class.py())?;
        Ok(class.is(&classes.plain) || class.is(&classes.collected))
    }

    /// `object`, if it is a tensor. Python code cannot subclass the class.
    #[inline(always)]
    pub(crate) fn of<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, Self>> {
        // Until the classes exist, there are no instances.
        let classes = CLASSES.get(object.py())?;
        let class = object.get_type_ptr().cast();
        (classes.plain.as_ptr() == class || classes.collected.as_ptr() == class).then(|| {
            // SAFETY: its type is one of the two classes of `Tensor`.
            unsafe { object.cast_unchecked() }
        })
    }

    /// A tensor over `snapshot`, tracked by the garbage collector if the objects that it holds may be part of a cycle.
    #[cold]
    pub(crate) fn holding(py: Python<'_>, snapshot: Snapshot) -> PyResult<Bound<'_, Self>> {
        if snapshot.objects().into_iter().any(collected::may_hold) {
            collected::new(py, classes(py)?.collected.bind(py), snapshot)
        } else {
            Self::new(py, snapshot)
        }
    }

    /// A tensor over a part of what `whole` holds, tracked if that is: alone, it holds the same objects.
    #[cold]
    pub(crate) fn part<'py>(
        whole: &Bound<'py, Self>,
        snapshot: Snapshot,
    ) -> PyResult<Bound<'py, Self>> {
        let py = whole.py();
        let collected = classes(py)?.collected.bind(py);
        if whole.get_type().is(collected) {
            collected::new(py, collected, snapshot)
        } else {
            Self::new(py, snapshot)
        }
    }

    /// A tensor over `snapshot`.
    #[inline(never)]
    pub(crate) fn new(py: Python<'_>, snapshot: Snapshot) -> PyResult<Bound<'_, Self>> {
        let body = Body::new(snapshot);
        let class = Self::class(py)?.as_type_ptr();
        // SAFETY: attached.
        let memory = unsafe { ffi::PyObject_Malloc(head::size() + size_of::<Body>()) };
        let Some(memory) = NonNull::new(memory.cast::<ffi::PyObject>()) else {
            return Err(PyMemoryError::new_err(()));
        };
        // SAFETY: room for an object.
        let place = unsafe { Body::of(memory.as_ptr()) };
        // SAFETY: as above, with the alignment of CPython's allocator, of which the head keeps enough.
        unsafe { place.write(body) };
        // SAFETY: attached; a complete object of this class (S24) except for its head, which this fills.
        let object = unsafe { ffi::PyObject_Init(memory.as_ptr(), class) };
        // SAFETY: the only reference to the object.
        let object = unsafe { Bound::from_owned_ptr(py, object) };
        // SAFETY: its class is that of `Tensor`.
        Ok(unsafe { object.cast_into_unchecked() })
    }
}

#[inline(always)]
fn classes(py: Python<'_>) -> PyResult<&Classes> {
    CLASSES.get_or_try_init(py, || {
        let plain = derive(py)?;
        let collected = collected::derive(&plain)?.unbind();
        let plain = plain.unbind();
        Ok(Classes { plain, collected })
    })
}

/// Refuses subclasses in Python: they would inherit a table that makes their base.
///
/// Source: R130.
#[pyfunction]
#[pyo3(signature = (**_keywords))]
fn __init_subclass__(_keywords: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    Err(PyTypeError::new_err(
        "type 'dlx.Tensor' is not an acceptable base type",
    ))
}

/// Derives the class from PyO3's.
///
/// # Errors
///
/// `SystemError` if PyO3's object layout differs.
#[cold]
#[inline(never)]
fn derive(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let base = py.get_type::<Tensor>();
    let number = |name| base.getattr(name)?.extract::<usize>();
    // The rest, besides the head and the weak references, is then the value.
    let layout = (number("__basicsize__")?, number("__weakrefoffset__")?);
    head::find(py)?;
    let mut size = head::size() + size_of::<Body>();
    if head::IS_OPAQUE {
        size = size.next_multiple_of(head::ALIGNMENT);
    }
    if layout != (size, head::size() + offset_of!(Body, weak)) {
        let message = format!("dlx does not know how PyO3 lays out objects: {layout:?}");
        return Err(PySystemError::new_err(message));
    }
    let functions = [
        dealloc as *mut c_void,
        // A type with its own `tp_traverse` does not inherit `Py_TPFLAGS_HAVE_GC`.
        traverse as *mut c_void,
        free as *mut c_void,
    ];
    let class = subclass(&base, functions, ffi::Py_TPFLAGS_BASETYPE as _)?;
    let init_subclass = wrap_pyfunction!(__init_subclass__, py)?;
    class.setattr("__init_subclass__", init_subclass)?;
    Ok(class)
}

/// A class `dlx.Tensor` derived from `base`, with these `tp_dealloc`, `tp_traverse` and `tp_free`.
pub(super) fn subclass<'py>(
    base: &Bound<'py, PyType>,
    [dealloc, traverse, free]: [*mut c_void; 3],
    flags: c_ulong,
) -> PyResult<Bound<'py, PyType>> {
    let slots = [
        (ffi::Py_tp_dealloc, dealloc),
        (ffi::Py_tp_traverse, traverse),
        (ffi::Py_tp_free, free),
    ];
    let flags = flags | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    // SAFETY: each slot has a function of its type, as both callers pass them.
    let class = unsafe { derived::class(base, c"dlx.Tensor", flags, &slots) }?;
    class.setattr("__doc__", base.getattr("__doc__")?)?;
    share(&class);
    Ok(class)
}

/// `tp_dealloc` of the class. PyO3 does not count its attachment, and a snapshot's release does not require that (S5).
///
/// # Safety
///
/// Called by CPython, attached, with an object of the class whose reference count is zero.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let body = || {
        // SAFETY: a live head, as the caller guarantees.
        let class = unsafe { ffi::Py_TYPE(object) };
        // SAFETY: an object of the class without references, as the caller guarantees.
        unsafe { end(object) };
        // SAFETY: allocated by `new`.
        unsafe { ffi::PyObject_Free(object.cast()) };
        // SAFETY: every object holds a reference to its class.
        unsafe { ffi::Py_DECREF(class.cast()) };
    };
    guard(body, unraisable);
}

/// Drops everything in an object except its head and its memory.
///
/// # Safety
///
/// As for [`dealloc`].
#[inline(always)]
pub(super) unsafe fn end(object: *mut ffi::PyObject) {
    // SAFETY: an object of the class.
    let place = unsafe { Body::of(object) };
    // SAFETY: still intact here (S24, tensor objects).
    let weak = unsafe { &(*place).weak };
    if !weak.load(Ordering::Relaxed).is_null() {
        // SAFETY: attached, with an object without references, as the caller guarantees.
        unsafe { ffi::PyObject_ClearWeakRefs(object) };
    }
    // SAFETY: written when the object was made (S24), and nothing can reach it any more.
    unsafe { place.drop_in_place() };
}

/// `tp_free` of the class. Having its own function makes CPython refuse `__class__` assignments to and from other
/// classes.
unsafe extern "C" fn free(object: *mut c_void) {
    // SAFETY: memory allocated by `new`.
    unsafe { ffi::PyObject_Free(object) };
}

/// `tp_traverse` of the class; never called.
unsafe extern "C" fn traverse(_: *mut ffi::PyObject, _: ffi::visitproc, _: *mut c_void) -> c_int {
    0
}

/// Makes the class immortal on free-threaded builds. It lives as long as the process, and every tensor holds a
/// reference to it; threads contending for that count would cost as much as a GIL.
fn share(class: &Bound<'_, PyType>) {
    if !head::is_free_threaded() {
        return;
    }
    // SAFETY: `_Py_SetRefcnt` is `Py_SET_REFCNT` as a function, with this signature since CPython 3.13.
    let set: Option<unsafe extern "C" fn(*mut ffi::PyObject, ffi::Py_ssize_t)> =
        unsafe { symbol("_Py_SetRefcnt") };
    if let Some(set) = set {
        // SAFETY: a live object that is not shared yet; so large a count makes it immortal.
        unsafe { set(class.as_ptr(), ffi::Py_ssize_t::MAX) };
    }
}

#[cfg(test)]
mod tests;
