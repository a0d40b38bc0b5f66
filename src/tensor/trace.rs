//! Tracing: who holds memory that came in or went out through dlx.
//!
//! Where memory comes in or goes out, dlx asks whether a trace [`is_on`], and then calls [`begun`] or [`exported`].
//! The end of an import is the drop of its snapshot's source, and the end of an export the call of its deleter; both
//! only note a number and the time, because they happen on any thread. What is imported and exported is the same as
//! without a trace.

mod export;

use std::ffi::{CStr, c_int, c_long, c_void};
use std::mem::take;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyMemoryError, PyRecursionError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::abi::DLTensor;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::fork::Lock;
use crate::cpython::interpreter::{self, has_others};
use crate::cpython::once::intern;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::{Snapshot, Source, Traced};

pub(crate) use export::{exported, made_capsule};

/// What is called for each begin, a reference of its own, or NULL; accessed only by attached threads.
static HOOK: AtomicPtr<ffi::PyObject> = AtomicPtr::new(null_mut());
static NUMBERS: AtomicU64 = AtomicU64::new(1);
/// The ends that nobody has asked for yet: number, nanoseconds since 1970, thread.
static ENDED: Lock<Vec<(u64, u64, u64)>> = Lock::new(Vec::new());

/// Notes the end of what has this number when it is dropped.
struct End(u64);

impl Drop for End {
    fn drop(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos() as u64);
        ENDED.lock().push((self.0, now, thread()));
    }
}

/// The thread, as `threading.get_ident` gives it.
#[cfg(unix)]
fn thread() -> u64 {
    // SAFETY: always succeeds.
    let thread = unsafe { libc::pthread_self() };
    thread as u64
}

#[cfg(windows)]
fn thread() -> u64 {
    #[link(name = "kernel32")]
    unsafe extern "system" {
        safe fn GetCurrentThreadId() -> u32;
    }
    GetCurrentThreadId().into()
}

/// Call ``hook`` at each import and export from now on, at none with None; append what has ended to ``ends``.
///
/// The hook gets the way, a number, the source, the number of the import whose memory is exported or 0, the address of
/// the `DLTensor`, its flags, and the class that it is converted to, or None. An end is the number, nanoseconds since
/// 1970 and the thread.
#[pyfunction]
pub(crate) fn trace_with(hook: Option<Py<PyAny>>, ends: &Bound<'_, PyList>) -> PyResult<()> {
    let before = HOOK.swap(hook.map_or(null_mut(), Py::into_ptr), Ordering::AcqRel);
    // SAFETY: attached; the static's own reference, or NULL.
    unsafe { ffi::Py_XDECREF(before) };
    // No Python code runs in between, so a signal loses nothing.
    let ended = take(&mut *ENDED.lock());
    ended.into_iter().try_for_each(|end| ends.append(end))
}

/// Whether a trace is on: asked wherever memory comes in or goes out, for a load and a branch.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    !HOOK.load(Ordering::Relaxed).is_null()
}

/// Begins to watch `made`, if it is a new tensor: of `source`, to be converted to `class`.
#[cold]
#[inline(never)]
pub(crate) fn begun(
    made: &Bound<'_, PyAny>,
    way: &'static CStr,
    source: Option<&Bound<'_, PyAny>>,
    class: Option<&Bound<'_, PyAny>>,
) {
    let watch = || {
        let Some(tensor) = Tensor::of(made).filter(|_| !has_others(made)) else {
            return;
        };
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let snapshot = tensor.get().described();
        let wrap = |source| {
            let _end = Box::new(End(number));
            Source::Traced(Box::new(Traced {
                number,
                source,
                _end,
            }))
        };
        // SAFETY: nobody else has seen the object that holds the snapshot, as its count says (S27, traces).
        if unsafe { snapshot.wrap_source(wrap) } {
            let (tensor, flags) = (snapshot.dl_tensor(), snapshot.meta().flags);
            tell(made.py(), way, number, source, tensor, flags, class);
        }
    };
    // A panic of the hook would undo what has succeeded.
    guard(watch, unraisable);
}

/// The address of the first element.
fn address_of(tensor: &DLTensor) -> u64 {
    (tensor.data.addr() as u64).wrapping_add(tensor.byte_offset)
}

/// Calls the hook, of a call that has succeeded.
fn tell(
    py: Python<'_>,
    way: &'static CStr,
    number: u64,
    source: Option<&Bound<'_, PyAny>>,
    tensor: &DLTensor,
    flags: u64,
    class: Option<&Bound<'_, PyAny>>,
) {
    let shown = (source.and_then(Tensor::of)).map(|tensor| tensor.get().described());
    // A copy that was made for the export has another address.
    let shown = shown.filter(|shown| address_of(shown.dl_tensor()) == address_of(tensor));
    let parent = shown.and_then(Snapshot::traced).unwrap_or(0);
    // SAFETY: attached, so the static's reference is alive, if there is one.
    let hook = unsafe { Bound::from_borrowed_ptr_or_opt(py, HOOK.load(Ordering::Acquire)) };
    let Some(hook) = hook else {
        return;
    };
    let address = from_ref(tensor).addr();
    let way = way.to_string_lossy();
    // PyO3 counts this attachment, because an exception is dropped.
    Python::attach(|py| {
        let arguments = (way, number, source, parent, address, flags, class).into_pyobject(py);
        if let Err(error) = arguments.and_then(|arguments| hook.call1(arguments)) {
            raise_soon(py, error);
        }
    });
}

/// Raises `error` in this thread as soon as the traced call has returned: it is of a signal's handler, which CPython ran
/// inside of the hook, or another thread has sent it. Where the hook ran out of stack or memory, the program goes on.
fn raise_soon(py: Python<'_>, error: PyErr) {
    let is_exhausted =
        error.is_instance_of::<PyRecursionError>(py) || error.is_instance_of::<PyMemoryError>(py);
    let raises = !is_exhausted
        && match is_main(py) {
            Ok(false) => sent_again(py, &error),
            // Handlers of signals run there.
            Ok(true) | Err(_) => pending(py, &error),
        };
    if !raises {
        interpreter::unraisable(py, error);
    }
}

/// Whether this is the thread in which CPython makes pending calls.
fn is_main(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0(intern!(py, "main_thread"))?;
    let number: u64 = main.getattr(intern!(py, "ident"))?.extract()?;
    Ok(number == thread())
}

/// Sends this thread an exception of the same class, as another thread did; returns whether that is possible.
fn sent_again(py: Python<'_>, error: &PyErr) -> bool {
    let class = error.get_type(py);
    // SAFETY: attached, with a live class.
    let sent = unsafe { ffi::PyThreadState_SetAsyncExc(thread() as c_long, class.as_ptr()) };
    sent == 1
}

/// Raises an exception by a pending call, which CPython makes once; returns whether there is room for it.
fn pending(py: Python<'_>, error: &PyErr) -> bool {
    extern "C" fn raise(error: *mut c_void) -> c_int {
        let body = || {
            // SAFETY: from `into_raw` below; CPython makes each pending call once.
            let error = unsafe { Box::from_raw(error.cast::<PyErr>()) };
            Python::attach(|py| error.restore(py));
            -1
        };
        guard(body, |_| 0)
    }
    let error = Box::into_raw(Box::new(error.clone_ref(py)));
    // SAFETY: the function may be called with this argument at any time.
    if unsafe { ffi::Py_AddPendingCall(Some(raise), error.cast()) } == 0 {
        return true;
    }
    // SAFETY: the queue is full, so the pointer is still its only one.
    drop(unsafe { Box::from_raw(error) });
    false
}
