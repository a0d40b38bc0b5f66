//! The boundary between Rust and C: every `extern "C"` function of dlx runs its body inside [`guard`].
//!
//! Unwinding into C is undefined behaviour, so panics are caught here and only here (S1, panics, in `docs/safety.md`).

use std::any::Any;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::impl_::trampoline::{MethodDef, noargs};
use pyo3::panic::PanicException;
use pyo3::prelude::*;

use crate::cpython::interpreter::{self, Pending, is_attached};

/// Runs `body`; if it panics, returns `on_panic` of the payload.
pub(crate) fn guard<R>(
    body: impl FnOnce() -> R,
    on_panic: impl FnOnce(Box<dyn Any + Send>) -> R,
) -> R {
    // A caught panic ends the call, so nothing observes half-changed state.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => on_panic(payload),
    }
}

/// Reports a panic in a function that cannot report errors to its caller: to `sys.unraisablehook` if the thread is
/// attached, otherwise only through Rust's own message on `stderr`.
#[cold]
pub(crate) fn unraisable(payload: Box<dyn Any + Send>) {
    if is_attached() != Some(true) {
        return;
    }
    Python::try_attach(|py| {
        let _pending = Pending::save(py);
        interpreter::unraisable(py, panicked(&*payload));
    });
}

/// The message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("dlx panicked: {text}")
}

/// The exception for a panic.
#[cold]
pub(crate) fn panicked(payload: &(dyn Any + Send)) -> PyErr {
    PanicException::new_err((panic_message(payload),))
}

/// Runs the body of an exchange function that can raise: returns 0, or -1 with an exception set (R123).
///
/// # Safety
///
/// The thread is attached to the interpreter and stays attached for the call, as `dlpack.h` requires of callers
/// (R146). `body` must not drop an owned `Py<T>`: PyO3 does not count this attachment.
pub(crate) unsafe fn attached(body: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    // SAFETY: the caller promises an attached thread (S2, callers).
    let py = unsafe { Python::assume_attached() };
    guard(
        || match body(py) {
            Ok(()) => 0,
            Err(error) => raise(py, error),
        },
        |payload| raise(py, panicked(&*payload)),
    )
}

/// What `body` returns, whose attachment PyO3 counts; for functions that CPython calls.
///
/// `Python::try_attach` would ask CPython for the thread's state, and whether the interpreter is initialized. PyO3's own
/// functions need not, and this begins as they do: in the trampoline that its macros use (S20).
///
/// # Errors
///
/// Those of `body`. A panic goes on after it, so the caller runs this inside [`guard`].
#[inline(always)]
pub(crate) fn counted<'py, F>(py: Python<'py>, body: F) -> PyResult<Bound<'py, PyAny>>
where
    F: FnOnce() -> PyResult<Bound<'py, PyAny>>,
{
    struct Counted<F>(PhantomData<F>);
    impl<'py, F: FnOnce() -> PyResult<Bound<'py, PyAny>>> MethodDef<noargs::Func> for Counted<F> {
        const METH: noargs::Func = run::<F>;
    }
    /// # Safety
    ///
    /// `body` points to an `F` that is given up.
    unsafe fn run<'py, F: FnOnce() -> PyResult<Bound<'py, PyAny>>>(
        _: Python<'_>,
        body: *mut ffi::PyObject,
    ) -> PyResult<*mut ffi::PyObject> {
        // SAFETY: the caller's promise.
        let body = unsafe { body.cast::<F>().read() };
        body().map(Bound::into_ptr)
    }
    let mut body = ManuallyDrop::new(body);
    // SAFETY: attached, as the token proves; the trampoline passes the pointer on to `run`, once.
    let made = unsafe { noargs::<Counted<F>>((&raw mut body).cast(), null_mut()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}

/// Raises `error` for a table function; returns -1.
///
/// PyO3 creates the exception lazily and drops references while doing so, so the attachment must be one that it
/// counts.
#[cold]
#[inline(never)]
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

/// Raises `error` for a function that returns an object; returns NULL. Called attached, by CPython.
#[cold]
#[inline(never)]
pub(crate) fn raised(error: PyErr) -> *mut ffi::PyObject {
    // SAFETY: the caller is attached.
    raise(unsafe { Python::assume_attached() }, error);
    null_mut()
}

#[cfg(test)]
mod tests;
