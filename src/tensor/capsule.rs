//! The capsules of `__dlpack__`, `dltensor` and `dltensor_versioned`, in both directions.

use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;

use crate::abi::*;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::interpreter::quietly;
use crate::stream::usage::StreamUsage;
use crate::stream::{Stream, Wanted, needs_order, no_streams, wanted};
use crate::tensor::managed::{MAYBE_READ_ONLY, Managed, ManagedTensor};
use crate::tensor::snapshot::{Snapshot, Source};

/// A capsule that owns `managed` until it is consumed.
pub(crate) fn export<M: ManagedTensor>(
    py: Python<'_>,
    managed: Managed<M>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let tensor = managed.into_raw();
    let destructor = Some(destroy::<M> as ffi::PyCapsule_Destructor);
    // SAFETY: ownership of `tensor` passes to the capsule, whose destructor deletes it, on any thread.
    let capsule = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, tensor.cast(), M::NAME, destructor)
    };
    #[expect(clippy::manual_inspect, reason = "`inspect_err` copies the result")]
    capsule.map_err(|error| {
        // SAFETY: no capsule was created, so the tensor is still ours.
        drop(unsafe { Managed::from_raw(tensor) });
        error
    })
}

/// Destructor of exported capsules: deletes the tensor unless it was consumed (R3, R4), and preserves the pending
/// exception (R5).
unsafe extern "C" fn destroy<M: ManagedTensor>(capsule: *mut ffi::PyObject) {
    let body = || {
        // SAFETY: CPython's call of a destructor is attached (S2).
        let py = unsafe { Python::assume_attached() };
        quietly(py, || {
            // SAFETY: attached (S2), with a live capsule.
            if let Some(tensor) = unsafe { pointer::<M>(capsule, M::NAME) } {
                // SAFETY: an exported capsule of this name owns its tensor, and is being destroyed.
                unsafe { Managed::from_raw(tensor) }.delete();
            }
        });
    };
    guard(body, unraisable);
}

/// Advice for who calls `__dlpack__`.
pub(crate) const ASK_OTHERWISE: &str = "pass max_version=(1, 0) or later, or copy=True";

/// Whether a consumer of this version accepts versioned capsules (R22, R23).
pub(crate) fn is_versioned(max_version: Option<(i64, i64)>) -> bool {
    max_version.is_some_and(|(major, _)| major >= DLPACK_MAJOR_VERSION.into())
}

/// The capsule that `__dlpack__` returns to a consumer that accepts versioned ones, or does not.
///
/// A tensor from an unversioned capsule is exported in one, whatever the consumer accepts (R24): each side treats the
/// memory as it would without dlx (R43).
///
/// # Errors
///
/// `BufferError` if an unversioned capsule cannot describe the tensor (R40), which ends in [`ASK_OTHERWISE`].
pub(crate) fn of<'py>(
    py: Python<'py>,
    snapshot: &Snapshot,
    versioned: bool,
    fresh: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    if versioned && !snapshot.has(MAYBE_READ_ONLY) {
        return export(py, snapshot.export::<DLManagedTensorVersioned>(fresh)?);
    }
    if snapshot.has(DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) {
        return Err(PyBufferError::new_err(format!(
            "an unversioned capsule cannot mark the tensor as read-only or padded; {ASK_OTHERWISE}"
        )));
    }
    export(py, snapshot.export::<DLManagedTensor>(fresh)?)
}

/// The tensor of a capsule that has this name.
///
/// # Safety
///
/// The thread is attached and `capsule` is a Python object or NULL.
pub(crate) unsafe fn pointer<M>(capsule: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<M>> {
    // SAFETY: attached, as the caller guarantees; `IsValid` accepts any object, and NULL.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: a valid capsule of this name, so this cannot fail.
    let tensor: *mut c_void = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
    NonNull::new(tensor.cast())
}

/// Consumes a capsule of either kind (R34); leaves a refused one unchanged (R11).
///
/// `usage` says what its producer was asked to order. Only one of several threads gets the tensor: nothing between the
/// check of the name and the renaming suspends the critical section (S25, capsules).
#[inline(always)]
pub(crate) fn import(
    capsule: &Bound<'_, PyCapsule>,
    usage: Option<Arc<StreamUsage>>,
) -> PyResult<Snapshot> {
    with_critical_section(capsule, || {
        // SAFETY: `Bound` proves attachment and a live object.
        if let Some(tensor) = unsafe { pointer(capsule.as_ptr(), DLManagedTensorVersioned::NAME) } {
            return consume::<DLManagedTensorVersioned>(capsule, tensor, usage);
        }
        // SAFETY: as above.
        match unsafe { pointer(capsule.as_ptr(), DLManagedTensor::NAME) } {
            Some(tensor) => consume::<DLManagedTensor>(capsule, tensor, usage),
            None => Err(refuse(capsule)),
        }
    })
}

/// Consumes a capsule that has the unused name of `M` and points to `tensor`.
fn consume<M: ManagedTensor>(
    capsule: &Bound<'_, PyCapsule>,
    tensor: NonNull<M>,
    usage: Option<Arc<StreamUsage>>,
) -> PyResult<Snapshot>
where
    Source: From<Managed<M>>,
{
    // SAFETY: the capsule owns the tensor, keeps it if it is refused, and is renamed below before it can delete it.
    let managed = ManuallyDrop::new(unsafe { Managed::from_raw(tensor) });
    let snapshot = Snapshot::import(managed, usage)?;
    mark_used::<M>(capsule);
    Ok(snapshot)
}

/// Marks a capsule as consumed. Its destructor has nothing left to do (R4) and is removed, as tvm-ffi and nanobind do:
/// Warp's is written in Python.
#[inline(always)]
fn mark_used<M: ManagedTensor>(capsule: &Bound<'_, PyCapsule>) {
    // SAFETY: a live capsule and a static name (R2); renaming a valid capsule succeeds.
    unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) };
    // SAFETY: a live capsule, which owns nothing any more.
    unsafe { ffi::PyCapsule_SetDestructor(capsule.as_ptr(), None) };
}

/// The pointer in a capsule of another protocol, if the capsule has the name that the protocol prescribes.
pub(crate) fn contents(
    capsule: &Bound<'_, PyCapsule>,
    accepted: Option<&CStr>,
) -> PyResult<NonNull<c_void>> {
    let pointer = capsule.pointer_checked(accepted);
    pointer.map_err(|_| unexpected(name(capsule), &called(accepted)))
}

/// The name of a capsule.
fn name<'a>(capsule: &'a Bound<'_, PyCapsule>) -> Option<&'a CStr> {
    // SAFETY: a live capsule.
    let name = NonNull::new(unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) }.cast_mut())?;
    // SAFETY: the name of a capsule is a C string that outlives the capsule.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) })
}

/// What an error message calls a capsule of this name.
fn called(name: Option<&CStr>) -> String {
    name.map_or("without a name".to_owned(), |name| {
        format!("named {name:?}")
    })
}

/// The error for a capsule that dlx cannot consume (R10).
#[cold]
fn refuse(capsule: &Bound<'_, PyCapsule>) -> PyErr {
    let used = [DLManagedTensor::USED, DLManagedTensorVersioned::USED];
    match name(capsule) {
        Some(name) if used.contains(&name) => PyBufferError::new_err(format!(
            "the capsule has already been consumed ({name:?}); call __dlpack__ again for another"
        )),
        name => unexpected(name, "named \"dltensor\" or \"dltensor_versioned\""),
    }
}

#[cold]
fn unexpected(name: Option<&CStr>, expected: &str) -> PyErr {
    let found = called(name);
    PyBufferError::new_err(format!("the capsule is {found}; expected one {expected}"))
}

/// Makes the stream passed to `__dlpack__` wait until `snapshot` is ready (R72 to R76, R80).
pub(crate) fn order_for_export(
    stream: Option<&Bound<'_, PyAny>>,
    snapshot: &Snapshot,
) -> PyResult<()> {
    if stream.is_none() && !snapshot.has_streams() {
        return Ok(());
    }
    let device = snapshot.meta().device;
    let consumer = match wanted(stream, device)? {
        Wanted::NoOrder if needs_order(device) => return Ok(()),
        Wanted::NoOrder => return Err(no_streams(device)),
        Wanted::Unset => Stream::default(device),
        Wanted::Stream(stream) => stream,
    };
    Ok(snapshot.order(&consumer)?)
}
