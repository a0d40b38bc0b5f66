//! Where Rust meets C: every `extern "C"` function of dlx runs its body inside [`guard`].
//!
//! Unwinding into C is undefined, so this is the only file that catches a panic (invariant S1 of
//! `docs/safety.md`).

use std::any::Any;
use std::ffi::c_int;
use std::hint::black_box;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, transmute};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Runs `body`, or `on_panic` with the payload when it panicked.
pub(crate) fn guard<R>(
    body: impl FnOnce() -> R,
    on_panic: impl FnOnce(Box<dyn Any + Send>) -> R,
) -> R {
    // A caught panic ends the call, so no half-changed state is looked at afterwards.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => on_panic(payload),
    }
}

/// The text of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("dlx panicked: {text}")
}

/// The body of an exchange function with a Python error channel: 0, or -1 with an exception set (R123).
///
/// # Safety
///
/// The thread is attached to the interpreter and stays so for the call, as `dlpack.h` asks of callers
/// (R146). Nothing in `body` may drop an owned `Py<T>`: PyO3 does not count this attachment.
pub(crate) unsafe fn attached(body: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    // SAFETY: the caller promises an attached thread (S2).
    let py = unsafe { Python::assume_attached() };
    guard(
        || match body(py) {
            Ok(()) => 0,
            Err(error) => raise(py, error),
        },
        |payload| {
            let message = panic_message(&*payload);
            raise(py, PanicException::new_err((message,)))
        },
    )
}

/// Sets the exception of a table function, and answers -1.
///
/// PyO3 makes the exception only now and drops references on the way, so it must know of the attachment.
#[cold]
fn raise(py: Python<'_>, error: PyErr) -> c_int {
    let mut error = Some(error);
    let mut restore = |py: Python<'_>| {
        if let Some(error) = error.take() {
            error.restore(py);
        }
    };
    if Python::try_attach(&mut restore).is_none() {
        restore(py);
    }
    -1
}

/// A pending Python exception, put aside while a destructor runs, and set again when dropped (R5).
pub(crate) struct Pending<'py>([*mut ffi::PyObject; 3], PhantomData<Python<'py>>);

impl<'py> Pending<'py> {
    /// Takes the exception that is set, if any.
    #[allow(
        deprecated,
        reason = "PyErr_GetRaisedException is not in the 3.11 stable ABI"
    )]
    pub(crate) fn save(_py: Python<'py>) -> Self {
        let [mut kind, mut value, mut traceback] = [null_mut(); 3];
        // SAFETY: `_py` proves attachment, and the three places are ours to write.
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
        // SAFETY: attached for `'py`, and the three references are those that `save` was given.
        unsafe { ffi::PyErr_Restore(kind, value, traceback) };
    }
}

/// What a Python object holds, and lets go of without disturbing the exception that is set: a foreign
/// deleter may run Python code, and objects die while exceptions travel (R5).
pub(crate) struct Quiet<T>(ManuallyDrop<T>);

impl<T> Quiet<T> {
    /// Holds `value` until the Python object around it dies.
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Quiet<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        // Python's destructors run attached, so this finds the thread as it is.
        Python::try_attach(|py| {
            let _pending = Pending::save(py);
            // SAFETY: dropped once, here, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        });
    }
}

/// Calls a producer's method with these keywords.
///
/// Before CPython 3.14, a thread that wants the interpreter back while that finalizes is unwound out of the
/// call by `pthread_exit`. Rust aborts when its frames are unwound so; this stops the thread instead, as 3.14
/// does.
pub(crate) fn call<'py>(
    method: &Bound<'py, PyAny>,
    keywords: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            while !thread::panicking() {
                thread::park();
            }
        }
    }
    type Call = unsafe extern "C" fn(
        *mut ffi::PyObject,
        *mut ffi::PyObject,
        *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
    type CallUnwinding = unsafe extern "C-unwind" fn(
        *mut ffi::PyObject,
        *mut ffi::PyObject,
        *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
    // PyO3 declares the function as one that does not unwind; the compiler must not see through this.
    let function = black_box(ffi::PyObject_Call as Call);
    // SAFETY: the same function, and the same ABI but for what happens on unwinding.
    let function = unsafe { transmute::<Call, CallUnwinding>(function) };
    let nothing = PyTuple::empty(method.py());
    let stop = Stop;
    // SAFETY: three live objects, attached; an unwinding that is no panic ends in `stop`.
    let result = unsafe { function(method.as_ptr(), nothing.as_ptr(), keywords.as_ptr()) };
    std::mem::forget(stop);
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(method.py(), result) }
}

static FINALIZING: AtomicBool = AtomicBool::new(false);

/// Notes that the interpreter is going away; from here on Python references are leaked (R14).
#[pyfunction]
fn finalize() {
    FINALIZING.store(true, Ordering::Release);
}

/// Ties dlx to this interpreter, and refuses a second one: caches and types are shared by the process.
pub(crate) fn one_interpreter(py: Python<'_>) -> PyResult<()> {
    static INTERPRETER: AtomicI64 = AtomicI64::new(-1);
    // SAFETY: attached, so there is a current interpreter.
    let current = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter just found.
    let id = unsafe { ffi::PyInterpreterState_GetID(current) };
    let known = INTERPRETER.compare_exchange(-1, id, Ordering::AcqRel, Ordering::Acquire);
    if known.is_err_and(|known| known != id) {
        return Err(PyImportError::new_err(
            "dlx supports one interpreter per process",
        ));
    }
    let finalize = wrap_pyfunction!(finalize, py)?;
    py.import("atexit")?.call_method1("register", (finalize,))?;
    Ok(())
}

/// A Python object that keeps memory alive and may be let go from any thread (invariant S5).
pub(crate) struct PythonOwner(Option<Py<PyAny>>);

impl PythonOwner {
    /// Holds `object` until dropped.
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(Some(object))
    }
}

impl Drop for PythonOwner {
    fn drop(&mut self) {
        let mut object = self.0.take();
        if !FINALIZING.load(Ordering::Acquire) {
            Python::try_attach(|py| {
                let _pending = Pending::save(py);
                if let Some(object) = object.take() {
                    object.drop_ref(py);
                }
            });
        }
        std::mem::forget(object);
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_the_value_of_on_panic() {
        let message = guard(|| panic!("on purpose"), |payload| panic_message(&*payload));
        assert_eq!(message, "dlx panicked: on purpose");
    }

    #[test]
    fn a_panic_in_a_table_function_is_an_exception_and_minus_one() {
        Python::attach(|py| {
            // SAFETY: inside `Python::attach`.
            let code = unsafe { attached(|_| panic!("number {}", 7)) };
            assert_eq!(code, -1);
            // SAFETY: as above.
            assert!(!unsafe { ffi::PyErr_Occurred() }.is_null());
            // SAFETY: as above.
            unsafe { ffi::PyErr_Clear() };
            let _ = py;
        });
    }
}
