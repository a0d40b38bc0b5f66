//! Panics and exceptions at the boundary.

#![allow(clippy::panic)]

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::ffi;

use super::*;
use crate::cpython::interpreter::quietly;

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

/// The messages that `sys.unraisablehook` receives while `body` runs.
fn unraised(py: Python<'_>, body: impl FnOnce()) -> PyResult<Vec<String>> {
    let sys = py.import("sys")?;
    let code =
        c"texts = []\ndef hook(args): texts.append(f'{args.exc_type.__name__}: {args.exc_value}')";
    let module = PyModule::from_code(py, code, c"hook.py", c"hook")?;
    let before = sys.getattr("unraisablehook")?;
    sys.setattr("unraisablehook", module.getattr("hook")?)?;
    body();
    sys.setattr("unraisablehook", before)?;
    module.getattr("texts")?.extract()
}

#[test]
fn a_panic_in_a_deleter_is_reported_and_leaves_the_exception_that_is_set() -> PyResult<()> {
    Python::attach(|py| {
        let texts = unraised(py, || {
            PyKeyError::new_err("kept").restore(py);
            guard(|| panic!("on purpose"), unraisable);
            assert!(PyErr::take(py).is_some_and(|error| error.to_string().contains("kept")));
        })?;
        assert_eq!(texts, ["PanicException: dlx panicked: on purpose"]);
        Ok(())
    })
}

#[test]
fn a_counted_body_returns_raises_and_panics() {
    Python::attach(|py| {
        let none = || py.None().into_bound(py);
        assert!(counted(py, || Ok(none())).is_ok_and(|made| made.is_none()));
        let raised = counted(py, || Err(PyKeyError::new_err("key")));
        assert!(raised.is_err_and(|error| error.is_instance_of::<PyKeyError>(py)));
        let panics = || counted(py, || panic!("on purpose")).is_ok();
        assert!(guard(panics, |_| true));
        assert!(PyErr::take(py).is_none());
    });
}

#[test]
fn a_panic_in_a_thread_without_python_is_not_reported_to_it() {
    std::thread::spawn(|| guard(|| panic!("on purpose"), unraisable))
        .join()
        .unwrap_or_else(|_| panic!("it passed the guard"));
}

#[test]
fn an_exception_that_a_deleter_sets_is_reported() -> PyResult<()> {
    Python::attach(|py| {
        let raise = || PyKeyError::new_err("of a deleter").restore(py);
        let texts = unraised(py, || {
            quietly(py, raise);
            assert!(PyErr::take(py).is_none());
            PyValueError::new_err("kept").restore(py);
            quietly(py, raise);
            assert!(PyErr::take(py).is_some_and(|error| error.to_string().contains("kept")));
        })?;
        assert_eq!(texts, ["KeyError: 'of a deleter'"; 2]);
        Ok(())
    })
}
