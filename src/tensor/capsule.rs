//! The capsules of `__dlpack__`: `dltensor` and `dltensor_versioned`, both directions.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;

use crate::abi::*;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::interpreter::quietly;
use crate::stream::usage::StreamUsage;
use crate::stream::{Stream, Wanted, has_streams, no_streams, wanted};
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::managed::{Managed, ManagedTensor};
use crate::tensor::snapshot::{Snapshot, Source};

/// A managed struct and the names of its capsules.
pub(crate) trait CapsuleNames: ManagedTensor + 'static {
    /// Name of a capsule that still owns its tensor (R1).
    const NAME: &'static CStr;
    /// Name of a capsule whose tensor somebody took (R7).
    const USED: &'static CStr;
}

impl CapsuleNames for DLManagedTensorVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";
}

impl CapsuleNames for DLManagedTensor {
    const NAME: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";
}

/// A capsule that owns `managed` until somebody consumes it.
pub(crate) fn export<M: CapsuleNames>(
    py: Python<'_>,
    managed: Managed<M>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let tensor = managed.into_raw();
    // SAFETY: `tensor` is a managed tensor that we give to the capsule; `destroy` is its destructor and may
    // run on any thread.
    let capsule = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, tensor.cast(), M::NAME, Some(destroy::<M>))
    };
    if capsule.is_err() {
        // SAFETY: no capsule was made, so the tensor is still ours.
        drop(unsafe { Managed::from_raw(tensor) });
    }
    capsule
}

/// Name of a capsule that nobody consumes.
const HELD: &CStr = c"dlx_held_tensor";

/// A capsule that owns `managed` for as long as it lives: no protocol knows its name.
pub(crate) fn hold(
    py: Python<'_>,
    managed: Managed<DLManagedTensorVersioned>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let tensor = managed.into_raw();
    // SAFETY: `tensor` is a managed tensor that we give to the capsule; `let_go` is its destructor and may run on
    // any thread.
    let capsule = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, tensor.cast(), HELD, Some(let_go))
    };
    if capsule.is_err() {
        // SAFETY: no capsule was made, so the tensor is still ours.
        drop(unsafe { Managed::from_raw(tensor) });
    }
    capsule
}

/// The destructor of what [`hold`] makes, whatever exception is set (R5).
unsafe extern "C" fn let_go(capsule: *mut ffi::PyObject) {
    guard(
        || {
            // SAFETY: CPython calls destructors attached (S2).
            let py = unsafe { Python::assume_attached() };
            quietly(py, || {
                // SAFETY: a capsule that is going away; renamed, it would give NULL.
                let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, HELD.as_ptr()) };
                // SAFETY: the capsule owns the tensor until here.
                drop(
                    NonNull::new(tensor.cast::<DLManagedTensorVersioned>())
                        .map(|tensor| unsafe { Managed::from_raw(tensor) }),
                );
            });
        },
        unraisable,
    );
}

/// The capsule of `__dlpack__` that a consumer of this version reads: unversioned below 1.0 (R22, R23).
///
/// What came in an unversioned capsule goes out in one, whatever the consumer reads (R24): each treats the memory as
/// it would have without dlx (R43).
///
/// # Errors
///
/// `BufferError` where an unversioned capsule could not say what the tensor is (R40).
pub(crate) fn of<'py>(
    py: Python<'py>,
    snapshot: &Snapshot,
    max_version: Option<(i64, i64)>,
    fresh: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let versioned = max_version.is_some_and(|(major, _)| major >= DLPACK_MAJOR_VERSION.into());
    if versioned && !snapshot.has(MAYBE_READ_ONLY) {
        return export(py, snapshot.export::<DLManagedTensorVersioned>(fresh)?);
    }
    if snapshot.has(DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) {
        return Err(PyBufferError::new_err(
            "an unversioned capsule cannot say that the tensor is read-only or padded; \
             ask for max_version=(1, 0) or later, or for copy=True",
        ));
    }
    export(py, snapshot.export::<DLManagedTensor>(fresh)?)
}

/// The destructor: deletes the tensor unless it was consumed (R3, R4), whatever exception is set (R5).
unsafe extern "C" fn destroy<M: CapsuleNames>(capsule: *mut ffi::PyObject) {
    guard(
        || {
            // SAFETY: CPython calls destructors attached (S2).
            let py = unsafe { Python::assume_attached() };
            quietly(py, || {
                // SAFETY: `capsule` is a capsule, and the name is a C string.
                let tensor = unsafe { pointer::<M>(capsule) };
                // SAFETY: the capsule still bears the unused name, so it owns the tensor, and it is going away.
                let tensor = tensor.map(|tensor| unsafe { Managed::from_raw(tensor) });
                if let Some(tensor) = tensor {
                    tensor.delete();
                }
            });
        },
        unraisable,
    );
}

/// The tensor of a capsule that bears the unused name of `M`.
///
/// # Safety
///
/// The thread is attached and `capsule` is a Python object.
unsafe fn pointer<M: CapsuleNames>(capsule: *mut ffi::PyObject) -> Option<NonNull<M>> {
    // SAFETY: the caller's promise; `IsValid` takes any object.
    if unsafe { ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: it is a valid capsule of this name, so this cannot fail.
    let tensor: *mut c_void = unsafe { ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()) };
    NonNull::new(tensor.cast())
}

/// Consumes a capsule of either kind (R34); when it is refused, it is left as it was (R11).
///
/// `usage` says what its producer was asked to order. Of several threads one gets the tensor: between the look at the
/// name and the new name nothing runs that would let the others in (S25).
pub(crate) fn import(
    capsule: &Bound<'_, PyCapsule>,
    usage: Option<StreamUsage>,
) -> PyResult<Snapshot> {
    with_critical_section(capsule, || {
        // SAFETY: `Bound` proves attachment and a live object.
        if let Some(tensor) = unsafe { pointer::<DLManagedTensorVersioned>(capsule.as_ptr()) } {
            return consume(capsule, tensor, usage);
        }
        // SAFETY: as above.
        if let Some(tensor) = unsafe { pointer::<DLManagedTensor>(capsule.as_ptr()) } {
            return consume(capsule, tensor, usage);
        }
        Err(refuse(capsule))
    })
}

/// Consumes a capsule that bears the unused name of `M` and points to `tensor`.
fn consume<M: CapsuleNames>(
    capsule: &Bound<'_, PyCapsule>,
    tensor: NonNull<M>,
    usage: Option<StreamUsage>,
) -> PyResult<Snapshot>
where
    Source: From<Managed<M>>,
{
    // SAFETY: the capsule owns the tensor and is renamed below before it could delete it; if the tensor is
    // refused, `into_raw` leaves it to the capsule.
    let managed = unsafe { Managed::from_raw(tensor) };
    match Snapshot::import(managed, usage) {
        Ok(snapshot) => {
            // SAFETY: a live capsule and a static name (R2); setting the name of a valid capsule succeeds.
            unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) };
            Ok(snapshot)
        }
        Err((error, managed)) => {
            managed.into_raw();
            Err(error.into())
        }
    }
}

/// The tensor of a capsule that bears the unused name of `M`, which is consumed whatever becomes of the tensor; of
/// several threads one gets it (S25).
pub(crate) fn take<M: CapsuleNames>(capsule: &Bound<'_, PyCapsule>) -> Option<Managed<M>> {
    with_critical_section(capsule, || {
        // SAFETY: `Bound` proves attachment and a live object.
        let tensor = unsafe { pointer::<M>(capsule.as_ptr()) }?;
        // SAFETY: a live capsule and a static name (R2); setting the name of a valid capsule succeeds.
        unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) };
        // SAFETY: the capsule owned the tensor, and has just given it up, to nobody else (R7, S25).
        Some(unsafe { Managed::from_raw(tensor) })
    })
}

/// What a capsule of another protocol points to, if it bears the name that this protocol gives it.
pub(crate) fn contents(
    capsule: &Bound<'_, PyCapsule>,
    accepted: Option<&CStr>,
) -> PyResult<NonNull<c_void>> {
    let text = |name: Option<&CStr>| match name {
        Some(name) => format!("named {name:?}"),
        None => "without a name".to_owned(),
    };
    capsule.pointer_checked(accepted).map_err(|_| {
        PyBufferError::new_err(format!(
            "the capsule is {}; accepted is one {}",
            text(name(capsule)),
            text(accepted)
        ))
    })
}

/// The name of a capsule.
fn name<'a>(capsule: &'a Bound<'_, PyCapsule>) -> Option<&'a CStr> {
    // SAFETY: a live capsule.
    let name = NonNull::new(unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) }.cast_mut())?;
    // SAFETY: a capsule's name is a C string that outlives the capsule.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) })
}

/// Why a capsule is neither of ours to consume (R10).
#[cold]
pub(crate) fn refuse(capsule: &Bound<'_, PyCapsule>) -> PyErr {
    let Some(name) = name(capsule) else {
        return PyBufferError::new_err(
            "the capsule has no name; accepted are 'dltensor' and 'dltensor_versioned'",
        );
    };
    if name == DLManagedTensor::USED || name == DLManagedTensorVersioned::USED {
        return PyBufferError::new_err(format!(
            "the capsule was consumed already ({name:?}); call __dlpack__ again for another"
        ));
    }
    PyBufferError::new_err(format!(
        "the capsule is named {name:?}; accepted are \"dltensor\" and \"dltensor_versioned\""
    ))
}

/// Makes the stream that a consumer of `__dlpack__` names wait until `snapshot` is ready (R72 to R76, R80).
pub(crate) fn order_for_export(
    stream: Option<&Bound<'_, PyAny>>,
    snapshot: &Snapshot,
) -> PyResult<()> {
    if stream.is_none() && snapshot.usage().is_none() {
        return Ok(());
    }
    let device = snapshot.meta().device;
    let consumer = match wanted(stream, device)? {
        Wanted::NoOrder if has_streams(device) => return Ok(()),
        Wanted::NoOrder => return Err(no_streams(device)),
        Wanted::Unset => Stream::default(device),
        Wanted::Stream(stream) => stream,
    };
    Ok(snapshot.order(&consumer)?)
}
