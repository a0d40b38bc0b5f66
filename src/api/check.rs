//! The native parts of `dlx_check.conformance`: what C code calls of its probes, and calls into exchange tables, which `dlx.inspect`
//! makes, too.
//!
//! A deleter may run on any thread, without Python and with an exception pending, so those of probes only count and
//! overwrite (S26 of `docs/safety.md`). What is right is judged in Python.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi::*;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::fork::Lock;
use crate::tensor::capsule::{CapsuleNames, pointer};
use crate::tensor::managed::Managed;

/// What lies before the managed tensor of a probe, in memory that is never freed.
#[repr(C)]
struct Counter {
    /// Calls of the deleter.
    deleted: AtomicU64,
    /// Calls of the capsule's destructor.
    destroyed: AtomicU64,
    /// What the first call of the deleter overwrites, or NULL.
    memory: *mut u8,
    /// Bytes of it.
    size: u64,
    reserved: [u64; 4],
}

const _: () = assert!(size_of::<Counter>() == 64);

/// What the deleter leaves in the memory of a probe.
const FREED: u8 = 0xCB;

/// What the deleter leaves in the pointers of the struct: no address that can be read.
const NOWHERE: usize = 0xDEAD_0000_0000_0000;

/// The counter of a probe.
///
/// # Safety
///
/// `managed` is preceded by a [`Counter`] (S26).
unsafe fn counter<'a>(managed: *mut c_void) -> &'a Counter {
    // SAFETY: the caller's promise.
    let counter = unsafe { managed.cast::<Counter>().sub(1) };
    // SAFETY: as above; the memory of probes is never freed.
    unsafe { &*counter }
}

/// Counts a deletion; the first one overwrites the elements and the pointers of `tensor`.
///
/// # Safety
///
/// `managed` is preceded by a [`Counter`], and `tensor` is part of it (S26).
unsafe fn deleted(managed: *mut c_void, tensor: *mut DLTensor) {
    // SAFETY: the caller's promise.
    let counter = unsafe { counter(managed) };
    if counter.deleted.fetch_add(1, Ordering::SeqCst) > 0 {
        return;
    }
    if !counter.memory.is_null() {
        // SAFETY: `memory` has `size` bytes, which the probe owns (S26).
        unsafe { counter.memory.write_bytes(FREED, counter.size as usize) };
    }
    // SAFETY: `tensor` is part of the probe's struct, and its consumer has given it up.
    let tensor = unsafe { &mut *tensor };
    tensor.data = NOWHERE as *mut c_void;
    tensor.shape = NOWHERE as *mut i64;
    tensor.strides = NOWHERE as *mut i64;
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    let body = || {
        // SAFETY: only the structs of probes have this deleter (S26).
        let tensor = unsafe { &raw mut (*managed).dl_tensor };
        // SAFETY: as above.
        unsafe { deleted(managed.cast(), tensor) };
    };
    guard(body, unraisable);
}

unsafe extern "C" fn delete_unversioned(managed: *mut DLManagedTensor) {
    let body = || {
        // SAFETY: only the structs of probes have this deleter (S26).
        let tensor = unsafe { &raw mut (*managed).dl_tensor };
        // SAFETY: as above.
        unsafe { deleted(managed.cast(), tensor) };
    };
    guard(body, unraisable);
}

/// Destructor of a probe's capsules: counts one that was destroyed before anybody consumed it, and deletes the tensor
/// (R3, R4).
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    let body = || {
        // SAFETY: CPython's call of a destructor.
        unsafe { end::<DLManagedTensorVersioned>(capsule) };
        // SAFETY: as above.
        unsafe { end::<DLManagedTensor>(capsule) };
    };
    guard(body, unraisable);
}

/// As [`destroy`], of a capsule that still has the name for these structs.
///
/// # Safety
///
/// Attached, with a live capsule of a probe.
unsafe fn end<M: CapsuleNames>(capsule: *mut ffi::PyObject) {
    // SAFETY: the caller's promise.
    let Some(managed) = (unsafe { pointer::<M>(capsule, M::NAME) }) else {
        return;
    };
    // SAFETY: a counter precedes the struct (S26).
    let counter = unsafe { counter(managed.as_ptr().cast()) };
    counter.destroyed.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the capsule owns the probe's struct, is destroyed, and nobody consumed it.
    drop(unsafe { Managed::from_raw(managed) });
}

/// What answers the functions of a probe's table; never freed.
static HOOK: AtomicPtr<ffi::PyObject> = AtomicPtr::new(null_mut());

/// Has the hook answer a table function: a code, or an exception to be left behind a success.
fn answer(function: u8, arguments: [u64; 4]) -> c_int {
    Python::attach(|py| {
        // SAFETY: attached; the hook is an object that is never freed.
        let hook = unsafe { Bound::from_borrowed_ptr_or_opt(py, HOOK.load(Ordering::SeqCst)) };
        let Some(hook) = hook else {
            PyRuntimeError::new_err("the probe has no hook").restore(py);
            return -1;
        };
        let [a, b, c, d] = arguments;
        let answer = match hook.call1((function, a, b, c, d)) {
            Ok(answer) => answer,
            Err(error) => {
                error.restore(py);
                return -1;
            }
        };
        answer.extract::<c_int>().unwrap_or_else(|_| {
            PyErr::from_value(answer).restore(py);
            0
        })
    })
}

unsafe extern "C" fn allocate(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    context: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    let set_error = set_error.map_or(0, |function| function as usize as u64);
    let arguments = [prototype as u64, out as u64, context as u64, set_error];
    guard(|| answer(0, arguments), |_| -1)
}

unsafe extern "C" fn from_object(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    guard(|| answer(1, [object as u64, out as u64, 0, 0]), |_| -1)
}

unsafe extern "C" fn to_object(
    tensor: *mut DLManagedTensorVersioned,
    out: *mut *mut c_void,
) -> c_int {
    guard(|| answer(2, [tensor as u64, out as u64, 0, 0]), |_| -1)
}

unsafe extern "C" fn borrow_object(object: *mut c_void, out: *mut DLTensor) -> c_int {
    guard(|| answer(3, [object as u64, out as u64, 0, 0]), |_| -1)
}

unsafe extern "C" fn stream(kind: DLDeviceType, id: i32, out: *mut *mut c_void) -> c_int {
    guard(
        || answer(4, [kind.0 as u64, id as u64, out as u64, 0]),
        |_| -1,
    )
}

/// The addresses of the five functions of a probe's table, in the order of `DLPackExchangeAPI`; `hook` answers all.
///
/// It is called with the index of the function and its four arguments as integers, and returns the code, or an exception
/// to leave behind a success. What it raises is left behind a failure.
#[pyfunction]
fn table(hook: Py<PyAny>) -> [usize; 5] {
    HOOK.store(hook.into_ptr(), Ordering::SeqCst);
    [
        allocate as DLPackManagedTensorAllocator as usize,
        from_object as DLPackManagedTensorFromPyObjectNoSync as usize,
        to_object as DLPackManagedTensorToPyObjectNoSync as usize,
        borrow_object as DLPackDLTensorFromPyObjectNoSync as usize,
        stream as DLPackCurrentWorkStream as usize,
    ]
}

/// The addresses of the deleters for versioned and unversioned structs, and of the destructor of their capsules.
#[pyfunction]
fn functions() -> [usize; 3] {
    [
        delete_versioned as unsafe extern "C" fn(_) as usize,
        delete_unversioned as unsafe extern "C" fn(_) as usize,
        destroy as ffi::PyCapsule_Destructor as usize,
    ]
}

type Function = unsafe extern "C" fn(u64, u64, u64, u64) -> c_int;

/// The function at an address.
fn function_at(address: usize) -> Option<Function> {
    // SAFETY: a NULL pointer is `None`; who passes another address promises a function of at most four words (S26).
    unsafe { std::mem::transmute::<usize, Option<Function>>(address) }
}

/// Calls the C function at `address`; returns its code and the exception that it left, as ctypes cannot (R123).
#[pyfunction]
fn call(
    py: Python<'_>,
    address: usize,
    arguments: [u64; 4],
) -> PyResult<(c_int, Option<Py<PyAny>>)> {
    let function = function_at(address).ok_or_else(|| PyRuntimeError::new_err("NULL"))?;
    let [a, b, c, d] = arguments;
    // SAFETY: attached; the arguments are those of the function (S26).
    let code = unsafe { function(a, b, c, d) };
    let left = PyErr::take(py).map(|error| error.into_value(py).into_any());
    Ok((code, left))
}

/// Calls the deleter at `address` on a new thread that Python does not know, while this one is detached (R13).
#[pyfunction]
fn delete_elsewhere(py: Python<'_>, address: usize, managed: u64) -> PyResult<()> {
    let deleter = function_at(address).ok_or_else(|| PyRuntimeError::new_err("NULL"))?;
    py.detach(|| {
        let thread = std::thread::spawn(move || {
            // SAFETY: a deleter, which takes one word and may run on any thread.
            unsafe { deleter(managed, 0, 0, 0) };
        });
        // A thread that only calls C does not panic.
        let _ = thread.join();
    });
    Ok(())
}

/// Drops the last item of `list` while an exception is pending; returns the exception that is pending afterwards (R5).
#[pyfunction]
fn drop_pending(list: &Bound<'_, pyo3::types::PyList>) -> PyResult<Option<Py<PyAny>>> {
    let py = list.py();
    let last = list.call_method0("pop")?;
    PyKeyError::new_err("pending").restore(py);
    drop(last);
    Ok(PyErr::take(py).map(|error| error.into_value(py).into_any()))
}

/// An error callback that counts its calls in the 64-bit word at its context (R135).
unsafe extern "C" fn count_error(
    context: *mut c_void,
    _kind: *const c_char,
    _message: *const c_char,
) {
    let body = || {
        // SAFETY: the suite passes the address of such a word (S26).
        let count = unsafe { &*context.cast::<AtomicU64>() };
        count.fetch_add(1, Ordering::SeqCst);
    };
    guard(body, unraisable);
}

/// The address of an error callback for allocators, which counts its calls in the word that its context points to.
#[pyfunction]
fn error_counter() -> usize {
    count_error as SetError as usize
}

/// What the deleters of foreign structs were, and how often they were called since.
static WATCHED: Lock<BTreeMap<usize, (usize, u64)>> = Lock::new(BTreeMap::new());

/// Counts a deletion of a foreign struct, and calls its own deleter.
unsafe extern "C" fn pass_on(managed: *mut c_void) {
    let body = || {
        let own = {
            let mut watched = WATCHED.lock();
            let Some((own, count)) = watched.get_mut(&(managed as usize)) else {
                return;
            };
            *count += 1;
            *own
        };
        if let Some(own) = function_at(own) {
            // SAFETY: the deleter that the struct had, called as its consumer called this one.
            unsafe { own(managed as u64, 0, 0, 0) };
        }
    };
    guard(body, unraisable);
}

/// Replaces the deleter at the address `field` of a foreign struct by one that counts and then calls it.
#[pyfunction]
fn watch(managed: usize, field: usize) {
    let mut watched = WATCHED.lock();
    let field = field as *mut usize;
    // SAFETY: `dlx_check.conformance` passes the address of the field in a live struct that it owns (S26).
    let own = unsafe { field.read() };
    watched.insert(managed, (own, 0));
    // SAFETY: as above.
    unsafe { field.write(pass_on as unsafe extern "C" fn(_) as usize) };
}

/// How often the deleter of a watched struct was called.
#[pyfunction]
fn watched(managed: usize) -> u64 {
    WATCHED.lock().get(&managed).map_or(0, |(_, count)| *count)
}

/// A module of the functions above, made when it is asked for: importing dlx does not pay for it.
#[pyfunction]
pub(crate) fn check_natives(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    let module = PyModule::new(py, "dlx._core.check_natives")?;
    module.add_function(wrap_pyfunction!(table, &module)?)?;
    module.add_function(wrap_pyfunction!(functions, &module)?)?;
    module.add_function(wrap_pyfunction!(call, &module)?)?;
    module.add_function(wrap_pyfunction!(delete_elsewhere, &module)?)?;
    module.add_function(wrap_pyfunction!(drop_pending, &module)?)?;
    module.add_function(wrap_pyfunction!(error_counter, &module)?)?;
    module.add_function(wrap_pyfunction!(watch, &module)?)?;
    module.add_function(wrap_pyfunction!(watched, &module)?)?;
    Ok(module)
}
