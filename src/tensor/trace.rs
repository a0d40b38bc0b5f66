//! Tracing: who holds memory that came in or went out through dlx.
//!
//! Nothing here is reached unless a trace is on: then the entries of the Python API and of the exchange tables are
//! twins, which call the function that they replace and then [`imported`] or [`exported`]. The end of an import is the
//! drop of its snapshot's source, and the end of an export the call of its deleter; both only note a number and the
//! time, because they happen on any thread.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::{take, transmute};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyMemoryError, PyRecursionError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::abi::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::fork::Lock;
use crate::cpython::interpreter::is_attached;
use crate::tensor::managed::ManagedTensor;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::{Hold, Snapshot, Source};
use crate::types::layout;

/// What is called for each begin; taken only by attached threads.
static HOOK: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
static ON: AtomicBool = AtomicBool::new(false);
static NUMBERS: AtomicU64 = AtomicU64::new(1);
/// The ends that nobody has asked for yet: number, nanoseconds since 1970, thread.
static ENDED: Lock<Vec<(u64, u64, u64)>> = Lock::new(Vec::new());
/// The exports that have not ended, by the address of the managed tensor.
static EXPORTS: Lock<Option<HashMap<usize, Exported>>> = Lock::new(None);

/// Notes the end of what has this number when it is dropped.
struct End(u64);

impl Drop for End {
    fn drop(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos() as u64);
        // SAFETY: always succeeds.
        let thread = unsafe { libc::pthread_self() };
        ENDED.lock().push((self.0, now, thread as u64));
    }
}

/// The owner of traced memory.
struct Held {
    source: Source,
    // Dropped after the source.
    end: End,
}

impl Hold for Held {
    fn objects(&self) -> [*mut ffi::PyObject; 2] {
        self.source.objects()
    }

    fn traced(&self) -> Option<u64> {
        Some(self.end.0)
    }
}

type Deleter = unsafe extern "C" fn(*mut c_void);

/// A traced export.
struct Exported {
    deleter: Option<Deleter>,
    end: End,
}

/// Whether a trace is on.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Acquire)
}

/// Calls `hook` for each begin from now on, none with `None`.
pub(crate) fn set_hook(hook: Option<Py<PyAny>>) {
    ON.store(hook.is_some(), Ordering::Release);
    let before = {
        let mut place = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, hook)
    };
    drop(before);
}

/// Adds what has ended since the last call, by number. No Python code runs in between, so a signal loses nothing.
pub(crate) fn ended(into: &Bound<'_, PyDict>) -> PyResult<()> {
    let ended = take(&mut *ENDED.lock());
    ended
        .into_iter()
        .try_for_each(|(number, time, thread)| into.set_item(number, (time, thread)))
}

/// Begins to watch the tensor `made`, a new reference, which came from `source` and is converted to `target`.
///
/// # Safety
///
/// Attached; `made` is NULL or a live object that nobody else has seen, `source` and `target` NULL or live objects.
pub(crate) unsafe fn imported(
    made: *mut ffi::PyObject,
    source: *mut ffi::PyObject,
    target: *mut ffi::PyObject,
    way: &'static str,
) {
    // A consumer may have copied the function of a table while a trace was on.
    if made.is_null() || !is_on() {
        return;
    }
    let body = || {
        Python::attach(|py| {
            // SAFETY: NULL or live, as the caller promises.
            let Some(made) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, made) }) else {
                return;
            };
            let Some(tensor) = Tensor::of(&made) else {
                return;
            };
            // SAFETY: attached, with a live object.
            let count = unsafe { ffi::Py_REFCNT(made.as_ptr()) };
            // One reference is that of the caller, the other `made`. From 3.14 on the upper half holds flags.
            if count as u32 != 2 {
                return;
            }
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            let snapshot = tensor.get().described();
            let wrap = |source| {
                let end = End(number);
                Source::Held(Box::new(Held { source, end }))
            };
            // SAFETY: nobody else has seen the object that holds the snapshot (S27, traces).
            if unsafe { snapshot.wrap_source(wrap) } {
                // SAFETY: NULL or live, as the caller promises.
                let source = unsafe { Bound::from_borrowed_ptr_or_opt(py, source) };
                // SAFETY: as above.
                let target = unsafe { Bound::from_borrowed_ptr_or_opt(py, target) };
                let begin = Begin {
                    way,
                    number,
                    source,
                    target,
                    nbytes: snapshot.nbytes(),
                };
                tell(py, begin, snapshot.as_dl_tensor());
            }
        });
    };
    guard(body, unraisable);
}

/// Begins to watch the managed tensor in a new capsule, which `source` exported.
///
/// # Safety
///
/// Attached; `capsule` is NULL or a live object that nobody else has seen, `source` a live object.
pub(crate) unsafe fn exported_capsule(
    capsule: *mut ffi::PyObject,
    source: *mut ffi::PyObject,
    way: &'static str,
) {
    if capsule.is_null() {
        return;
    }
    let body = || {
        Python::attach(|py| {
            // SAFETY: NULL or live, as the caller promises.
            let Some(capsule) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, capsule) }) else {
                return;
            };
            let Ok(capsule) = capsule.cast::<PyCapsule>() else {
                return;
            };
            if let Ok(tensor) = capsule.pointer_checked(Some(c"dltensor_versioned")) {
                // SAFETY: a capsule of this name owns such a tensor.
                unsafe { exported(tensor.cast::<DLManagedTensorVersioned>(), source, way) };
            } else if let Ok(tensor) = capsule.pointer_checked(Some(c"dltensor")) {
                // SAFETY: as above.
                unsafe { exported(tensor.cast::<DLManagedTensor>(), source, way) };
            }
        });
    };
    guard(body, unraisable);
}

/// Begins to watch a managed tensor that has just been made of `source`.
///
/// # Safety
///
/// `managed` points to a live managed tensor that nobody else has seen; `source` is NULL or a live object.
pub(crate) unsafe fn exported<M: ManagedTensor>(
    managed: NonNull<M>,
    source: *mut ffi::PyObject,
    way: &'static str,
) {
    let body = || {
        // A consumer may have copied the function of a table while a trace was on. An allocator is called by threads
        // that know nothing of Python (R136).
        if !is_on() || is_attached() != Some(true) {
            return;
        }
        let address = managed.as_ptr().addr();
        let mut locked = EXPORTS.lock();
        let exports = locked.get_or_insert_default();
        // A table may pass on what another one has exported.
        if exports.contains_key(&address) {
            return;
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a live managed tensor, as the caller promises.
        let Ok((tensor, flags)) = (unsafe { M::read(managed) }) else {
            return;
        };
        let tensor = *tensor;
        // SAFETY: as above.
        let place = unsafe { M::deleter_place(managed) };
        // SAFETY: nobody else has seen the tensor, so nobody else accesses the field (S27).
        let deleter = unsafe { place.replace(Some(delete::<M>)) };
        // SAFETY: pointers to either struct are passed alike; `delete` casts it back before the call.
        let deleter: Option<Deleter> =
            unsafe { transmute::<Option<unsafe extern "C" fn(*mut M)>, _>(deleter) };
        let exported = Exported {
            deleter,
            end: End(number),
        };
        exports.insert(address, exported);
        drop(locked);
        let padded = flags & crate::abi::DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0;
        // SAFETY: a tensor of dlx has `ndim` extents, or NULL for none.
        let shape = unsafe { extents(&tensor) };
        let nbytes = layout::nbytes(shape.iter().product(), tensor.dtype, padded);
        Python::attach(|py| {
            // SAFETY: NULL or live, as the caller promises.
            let source = unsafe { Bound::from_borrowed_ptr_or_opt(py, source) };
            let begin = Begin {
                way,
                number,
                source,
                target: None,
                nbytes,
            };
            tell(py, begin, &tensor);
        });
    };
    guard(body, unraisable);
}

/// The deleter of a traced export: restores the one of its maker and calls it.
unsafe extern "C" fn delete<M: ManagedTensor>(managed: *mut M) {
    let body = || {
        let taken = {
            let mut exports = EXPORTS.lock();
            exports
                .as_mut()
                .and_then(|exports| exports.remove(&managed.addr()))
        };
        let (Some(Exported { deleter, end }), Some(tensor)) = (taken, NonNull::new(managed)) else {
            return;
        };
        // SAFETY: the inverse of the conversion in `exported`.
        let deleter: Option<unsafe extern "C" fn(*mut M)> = unsafe { transmute(deleter) };
        // SAFETY: the consumer calls the deleter of a live tensor that it gives up.
        let place = unsafe { M::deleter_place(tensor) };
        // SAFETY: as above.
        unsafe { place.write(deleter) };
        if let Some(deleter) = deleter {
            // SAFETY: the consumer's call, passed on.
            unsafe { deleter(managed) };
        }
        drop(end);
    };
    guard(body, unraisable);
}

/// The extents of a tensor of dlx.
///
/// # Safety
///
/// `shape` has `ndim` values, or is NULL.
unsafe fn extents(tensor: &DLTensor) -> &[i64] {
    if tensor.shape.is_null() || tensor.ndim <= 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(tensor.shape, tensor.ndim as usize) }
}

/// The address of the first element.
fn address_of(tensor: &DLTensor) -> u64 {
    (tensor.data.addr() as u64).wrapping_add(tensor.byte_offset)
}

/// What the hook is told, beside the tensor.
struct Begin<'py> {
    way: &'static str,
    number: u64,
    source: Option<Bound<'py, PyAny>>,
    target: Option<Bound<'py, PyAny>>,
    nbytes: i64,
}

/// Calls the hook, of a call that has succeeded.
fn tell<'py>(py: Python<'py>, begin: Begin<'py>, tensor: &DLTensor) {
    let hook = {
        let place = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
        place.as_ref().map(|hook| hook.clone_ref(py))
    };
    let Some(hook) = hook else {
        return;
    };
    // SAFETY: both callers pass a tensor of dlx.
    let shape = PyTuple::new(py, unsafe { extents(tensor) });
    let told = shape.and_then(|shape| {
        let DLTensor { dtype, device, .. } = *tensor;
        let address = address_of(tensor);
        let dtype = (dtype.code.0, dtype.bits, dtype.lanes);
        let device = (device.device_type.0, device.device_id);
        let Begin {
            way,
            number,
            source,
            target,
            nbytes,
        } = begin;
        let imported = source.as_ref().and_then(Tensor::of);
        // A copy that was made for the export has another address.
        let shown = imported.map(|tensor| tensor.get().described());
        let shown = shown.filter(|shown| address_of(shown.as_dl_tensor()) == address);
        let parent = shown.and_then(Snapshot::traced);
        let what = (address, shape, dtype, device, nbytes);
        hook.call1(py, (way, number, source, target, parent, what))
    });
    if let Err(error) = told {
        raise_soon(py, error);
    }
}

/// Raises `error` on the main thread as soon as the traced call has returned: most often it is of a signal's handler,
/// which CPython ran inside of the hook. Where the hook ran out of stack or memory, the program goes on.
fn raise_soon(py: Python<'_>, error: PyErr) {
    extern "C" fn raise(error: *mut c_void) -> c_int {
        let body = || {
            // SAFETY: from `into_raw` below; CPython makes each pending call once.
            let error = unsafe { Box::from_raw(error.cast::<PyErr>()) };
            Python::attach(|py| error.restore(py));
            -1
        };
        guard(body, |_| 0)
    }
    if !error.is_instance_of::<PyRecursionError>(py) && !error.is_instance_of::<PyMemoryError>(py) {
        let error = Box::into_raw(Box::new(error.clone_ref(py)));
        // SAFETY: the function may be called with this argument at any time.
        if unsafe { ffi::Py_AddPendingCall(Some(raise), error.cast()) } == 0 {
            return;
        }
        // SAFETY: the queue is full, so the pointer is still its only one.
        drop(unsafe { Box::from_raw(error) });
    }
    error.write_unraisable(py, None);
}
