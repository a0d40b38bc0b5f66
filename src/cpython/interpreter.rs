//! The interpreter's lifetime: pending exceptions while objects are released, attaching, and finalization (S5 of
//! `docs/safety.md`).

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::cpython::depth::nested;
use crate::cpython::symbol::symbol;

/// The pending Python exception, or three NULLs, saved while a destructor runs and restored on drop (R5).
pub(crate) struct Pending<'py>([*mut ffi::PyObject; 3], PhantomData<Python<'py>>);

impl<'py> Pending<'py> {
    /// Saves the current exception, if any.
    #[allow(
        deprecated,
        reason = "PyErr_GetRaisedException is not in the 3.11 stable ABI"
    )]
    pub(crate) fn save(_py: Python<'py>) -> Self {
        let [mut kind, mut value, mut traceback] = [null_mut(); 3];
        // SAFETY: `_py` proves attachment, and the three out-pointers are locals.
        unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback) };
        Self([kind, value, traceback], PhantomData)
    }
}

impl Drop for Pending<'_> {
    #[allow(
        deprecated,
        reason = "PyErr_SetRaisedException is not in the 3.11 stable ABI"
    )]
    fn drop(&mut self) {
        let [kind, value, traceback] = self.0;
        if !kind.is_null() {
            // SAFETY: attached for `'py`; the three references are those that `save` received.
            unsafe { ffi::PyErr_Restore(kind, value, traceback) };
        }
    }
}

/// Runs a release with the pending exception, if any, saved; usually there is none.
#[inline(always)]
pub(crate) fn quietly(py: Python<'_>, let_go: impl FnOnce()) {
    // SAFETY: `py` proves attachment.
    if unsafe { ffi::PyErr_Occurred() }.is_null() {
        let_go();
        report_raised(py);
    } else {
        with_pending(py, let_go);
    }
}

#[cold]
#[inline(never)]
fn with_pending(py: Python<'_>, let_go: impl FnOnce()) {
    let _pending = Pending::save(py);
    let_go();
    report_raised(py);
}

/// Passes an exception to `sys.unraisablehook`.
#[cold]
pub(crate) fn unraisable(py: Python<'_>, error: PyErr) {
    error.restore(py);
    report_raised(py);
}

/// Passes an exception set by a deleter to `sys.unraisablehook`; it has no caller to propagate to.
#[inline(always)]
fn report_raised(_py: Python<'_>) {
    // SAFETY: `_py` proves attachment.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        // SAFETY: `_py` proves attachment, and an exception is set.
        unsafe { ffi::PyErr_WriteUnraisable(null_mut()) };
    }
}

static FINALIZING: AtomicBool = AtomicBool::new(false);
/// How many threads wait for the interpreter, or have it, in [`attach_uncounted`]. In a fork it starts at zero, and what
/// the forking thread counted before brings it below.
static ATTACHED: AtomicIsize = AtomicIsize::new(0);

/// A thread that [`finalize`] waits for.
struct Counted;

impl Counted {
    /// `None` if the interpreter exits.
    fn begin() -> Option<Self> {
        // Each side announces itself before it looks for the other: either this sees that the interpreter exits, or
        // `finalize` sees this.
        ATTACHED.fetch_add(1, Ordering::SeqCst);
        let counted = Self;
        (!FINALIZING.load(Ordering::SeqCst)).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ATTACHED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// As [`attach_uncounted`], on a thread that is attached.
pub(crate) fn before_exit<'py, R>(
    py: Python<'py>,
    body: impl FnOnce(Python<'py>) -> R,
) -> Option<R> {
    let _counted = Counted::begin()?;
    Some(body(py))
}

/// Notes that the interpreter is finalizing; from now on Python references are leaked (R14).
///
/// A thread that waits for the interpreter now would never get it, or end there in the middle of a deleter. So those
/// that had begun get it first, from this thread, for a second at most: their Python code may never end.
pub(crate) fn finalize(py: Python<'_>) {
    const LIMIT: Duration = Duration::from_secs(1);
    const MOMENT: Duration = Duration::from_micros(100);
    FINALIZING.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    while ATTACHED.load(Ordering::SeqCst) > 0 && begin.elapsed() < LIMIT {
        py.detach(|| sleep(MOMENT));
    }
}

/// Forgets the threads of the parent in a fork.
#[cfg(unix)]
pub(super) fn forked() {
    ATTACHED.store(0, Ordering::SeqCst);
}

/// Whether Python references are leaked by now.
pub(crate) fn is_finalizing() -> bool {
    FINALIZING.load(Ordering::Acquire)
}

/// Refuses sub-interpreters, and a main interpreter that was started again: caches and types are per process, and
/// `PyGILState_Ensure` attaches to the main interpreter.
pub(crate) fn one_interpreter(_: Python<'_>) -> PyResult<()> {
    // SAFETY: attached, so there is a current interpreter.
    let current = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter obtained above.
    let id = unsafe { ffi::PyInterpreterState_GetID(current) };
    if id != 0 || is_finalizing() {
        return Err(PyImportError::new_err(
            "dlx supports the main interpreter alone, started once",
        ));
    }
    Ok(())
}

/// Runs a release of Python references, on any thread: attached, with the pending exception saved, or not at all once
/// the interpreter has begun to exit (S5, Python references).
pub(crate) fn release_unless_exiting(release: impl FnOnce(Python<'_>)) {
    attach_uncounted(|py| quietly(py, || release(py)));
}

/// Runs `body` attached, on any thread; returns `None` once the interpreter has begun to exit.
///
/// `Python::attach` trusts PyO3's own count of attachments, which misses a GIL released by C code between two calls of
/// dlx: it would take such a thread for attached. PyO3 does not count this attachment, so `body` may drop an owned
/// `Py<T>` only by `drop_ref`.
pub(crate) fn attach_uncounted<R>(body: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    struct Release(ffi::PyGILState_STATE);
    impl Drop for Release {
        fn drop(&mut self) {
            // SAFETY: this thread's own state, released in reverse order of acquisition.
            unsafe { ffi::PyGILState_Release(self.0) };
        }
    }
    let _counted = Counted::begin()?;
    // SAFETY: callable at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    // SAFETY: there is an interpreter, which exits only after this thread has released it (S5).
    let _release = Release(unsafe { ffi::PyGILState_Ensure() });
    // SAFETY: attached until `_release` is dropped, after `body` has returned.
    Some(body(unsafe { Python::assume_attached() }))
}

/// Whether this thread is attached; `None` if CPython's function is absent.
///
/// `PyGILState_Check` answers yes everywhere once there has been a sub-interpreter. So this does what that does otherwise:
/// it compares the attached thread with this one, since until 3.11 the first may be another.
pub(crate) fn is_attached() -> Option<bool> {
    type Current = unsafe extern "C" fn() -> *mut ffi::PyThreadState;
    static CURRENT: OnceLock<Option<Current>> = OnceLock::new();
    let find = || {
        // SAFETY: `PyThreadState_GetUnchecked` has had this signature since Python 3.13, and its predecessor since 3.5
        // (S23).
        unsafe { symbol("PyThreadState_GetUnchecked") }
            // SAFETY: as above.
            .or_else(|| unsafe { symbol("_PyThreadState_UncheckedGet") })
    };
    let current = (*CURRENT.get_or_init(find))?;
    // SAFETY: callable at any time; the answer is compared and not followed.
    let current = unsafe { current() };
    // SAFETY: as above.
    Some(!current.is_null() && current == unsafe { ffi::PyGILState_GetThisThreadState() })
}

/// Runs a release of another library's on any thread. What it sets where the thread is attached has no caller, either
/// (R5).
#[inline(never)]
pub(crate) fn quietly_anywhere(let_go: impl FnOnce()) {
    if is_attached() == Some(true) {
        // SAFETY: asked above.
        quietly(unsafe { Python::assume_attached() }, let_go);
    } else {
        let_go();
    }
}

/// Runs a call that may block detached: the device may be waiting for another Python thread.
pub(crate) fn blocking<R: Send>(body: impl Fn() -> R + Send + Sync) -> R {
    if is_attached() == Some(false) {
        return body();
    }
    attach_uncounted(|py| py.detach(&body)).unwrap_or_else(&body)
}

/// Whether somebody else has a reference to `object`, so that releasing one frees nothing.
#[inline(always)]
pub(crate) fn has_others(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object.
    let count = unsafe { ffi::Py_REFCNT(object.as_ptr()) };
    // From 3.14 on the upper half holds flags.
    count as u32 > 1
}

/// A Python object that keeps memory alive and may be released on any thread (S5).
pub(crate) struct PythonOwner(ManuallyDrop<Py<PyAny>>);

impl PythonOwner {
    /// Takes over the reference until dropped.
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }

    /// The object.
    pub(crate) fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// The object.
    pub(crate) fn bind<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.0.bind(py)
    }

    /// Drops it on a thread that is attached.
    pub(crate) fn drop_attached(self, py: Python<'_>) {
        // SAFETY: attached; this was our reference, released once (S5).
        let let_go = |this: &mut Self| unsafe { ffi::Py_DECREF(this.as_ptr()) };
        if is_finalizing() {
            std::mem::forget(self);
        } else if has_others(self.bind(py)) {
            let_go(&mut ManuallyDrop::new(self));
        } else {
            nested(self, let_go);
        }
    }
}

impl Drop for PythonOwner {
    fn drop(&mut self) {
        // SAFETY: the owner is not used again.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        // Leaked if the interpreter is exiting.
        nested(Self::new(object), |this| {
            // SAFETY: attached; this was our reference, released once (S5).
            release_unless_exiting(|_| unsafe { ffi::Py_DECREF(this.as_ptr()) });
        });
    }
}
