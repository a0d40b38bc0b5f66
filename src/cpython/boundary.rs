//! Where Rust meets C: every `extern "C"` function of dlx runs its body inside [`guard`].
//!
//! Unwinding into C is undefined, so this is the only file that catches a panic (invariant S1 of
//! `docs/safety.md`).

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::panic::PanicException;
use pyo3::prelude::*;

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

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use pyo3::ffi;

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
