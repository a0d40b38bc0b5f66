//! Creates objects and memory of another library through its table.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use crate::cpython::lookup::is_subtype;
use pyo3::exceptions::{PyBufferError, PyException, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::{Table, made};
use crate::abi::*;
use crate::cpython::boundary::{guard, unraisable};
use crate::stream;
use crate::tensor::checked::{Meta, Prototype};
use crate::tensor::managed::{ManagedVersioned, Offer};
use crate::types::error::{EXCEPTION_SET, broken, caused, failed, type_name};

const TO_PY: &str = "managed_tensor_to_py_object_no_sync";
const ALLOCATOR: &str = "managed_tensor_allocator";

impl Table {
    /// The object that the table, which belongs to `class`, makes from the offer.
    ///
    /// # Errors
    ///
    /// As for [`Self::export`]; the tensor is then deleted, by the library or else here (R131).
    #[inline(always)]
    pub(crate) fn import<'py, O: Send + 'static>(
        &self,
        class: &Bound<'py, PyType>,
        offer: Offer<O>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = class.py();
        let Some(to_py) = self.to_py else {
            return Err(broken(class, TO_PY, "is missing"));
        };
        let mut out = null_mut();
        // SAFETY: a table function, called attached, with a tensor offered to it and an out place of ours.
        let code = unsafe { to_py(offer.as_ptr(), &mut out) };
        if code != 0 {
            return Err(failed(class, TO_PY));
        }
        // SAFETY: on success the table returns a new reference (R130); NULL is handled below.
        let made = unsafe { Bound::from_owned_ptr_or_opt(py, out.cast()) };
        let Some(made) = made else {
            return Err(broken(class, TO_PY, "succeeded without an object"));
        };
        offer.accepted();
        // SAFETY: attached.
        if unsafe { ffi::PyErr_Occurred() }.is_null() {
            return Ok(made);
        }
        Err(broken(class, TO_PY, EXCEPTION_SET))
    }

    /// The stream that the library works on now; the default stream if it names none.
    pub(crate) fn stream_of(&self, py: Python<'_>, device: DLDevice) -> PyResult<i64> {
        let named = self.work_stream.map(|stream| stream.get(py, device));
        match named.transpose()? {
            None | Some(0) => stream::current(py, device),
            Some(stream) => Ok(stream),
        }
    }

    /// A new tensor in the library's own memory.
    ///
    /// # Errors
    ///
    /// `BufferError` if the library cannot even allocate an empty tensor, which takes no memory: it lacks the dtype, or
    /// lacks it on this device. Otherwise the exception that the library reports.
    pub(crate) fn allocate(
        &self,
        class: &Bound<'_, PyType>,
        wanted: Prototype<'_>,
    ) -> PyResult<ManagedVersioned> {
        let shape = &[0];
        let none = Prototype { shape, ..wanted };
        self.allocate_once(class, wanted).map_err(|error| {
            let is_refusal = error.is_instance_of::<PyBufferError>(class.py());
            match is_refusal || self.allocate_once(class, none).is_ok() {
                true => error,
                false => has_none(class, wanted, error),
            }
        })
    }

    fn allocate_once(
        &self,
        class: &Bound<'_, PyType>,
        wanted: Prototype<'_>,
    ) -> PyResult<ManagedVersioned> {
        let Some(allocator) = self.allocator else {
            return Err(broken(class, ALLOCATOR, "is missing"));
        };
        let mut shape = wanted.shape.to_vec();
        let mut prototype = DLTensor {
            device: wanted.device,
            shape: shape.as_mut_ptr(),
            // At most MAX_NDIM: the caller has checked.
            ..Meta::on_cpu(null_mut(), wanted.dtype, 0).tensor(shape.len())
        };
        let mut reported: Reported = None;
        let mut out = null_mut();
        let context = (&raw mut reported).cast();
        // SAFETY: a table function, with a prototype, an out place, and a callback with its context, all ours.
        let code = unsafe { allocator(&mut prototype, &mut out, context, Some(report)) };
        if code != 0
            && let Some((kind, message)) = reported
        {
            let py = class.py();
            let set = PyErr::take(py);
            return Err(caused(py, named(py, &kind, &message), set));
        }
        // SAFETY: what the function has returned and written.
        unsafe { made(code, out, || class.clone(), ALLOCATOR) }
    }
}

/// What an allocator reported: the name and message of an exception.
type Reported = Option<(String, String)>;

/// The `SetError` that dlx passes.
unsafe extern "C" fn report(context: *mut c_void, kind: *const c_char, message: *const c_char) {
    let text = |text: *const c_char| {
        // SAFETY: the allocator passes C strings or NULL.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
        text.map(|text| text.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    let body = || {
        // SAFETY: `allocate` passed this context with the callback, and keeps it for the call.
        let reported = unsafe { &mut *context.cast::<Reported>() };
        *reported = Some((text(kind), text(message)));
    };
    // A callback cannot return an error.
    guard(body, unraisable);
}

/// The error for an allocator that has no such tensors at all.
#[cold]
fn has_none(class: &Bound<'_, PyType>, wanted: Prototype<'_>, why: PyErr) -> PyErr {
    let py = class.py();
    let message = format!(
        "{} cannot make {} tensors on {}: {}",
        type_name(class),
        wanted.dtype,
        wanted.device,
        why.value(py),
    );
    caused(py, PyBufferError::new_err(message), why)
}

/// The builtin exception of this name, or a `RuntimeError` that mentions the name.
fn named(py: Python<'_>, kind: &str, message: &str) -> PyErr {
    // C++ libraries append a stack trace.
    let message = message.lines().next().unwrap_or_default().to_owned();
    let found = py
        .import("builtins")
        .and_then(|builtins| builtins.getattr(kind));
    match found.map(Bound::cast_into::<PyType>) {
        Ok(Ok(class)) if is_subtype(class.as_type_ptr(), &py.get_type::<PyException>()) => {
            PyErr::from_type(class, message)
        }
        _ => PyRuntimeError::new_err(format!("{kind}: {message}")),
    }
}
