//! The allocator of a table, which is called without Python.

use std::ffi::{CString, c_char, c_int, c_void};

use super::Exchange;
use crate::abi::*;
use crate::cpython::boundary::{guard, panic_message};
use crate::tensor::checked::extents;
use crate::types::error::Error;

/// Reports through `SetError` alone, exactly when it fails (R135, R136).
///
/// # Safety
///
/// Called as `dlpack.h` says: with a prototype, a place for the result, and a callback with its context (S2).
pub(super) unsafe fn allocate<E: Exchange>(
    exchange: &E,
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    let result = guard(
        || {
            // SAFETY: the caller passes a prototype whose dtype, ndim, shape and device are set (R134).
            let (shape, dtype, device) = unsafe { prototype_fields(prototype) }?;
            exchange.allocate(shape, dtype, device)
        },
        |payload| Err(Error::Panicked(panic_message(&*payload))),
    );
    match result {
        Ok(managed) => {
            // SAFETY: `out` is the caller's to be written (S2).
            unsafe { out.write(managed.into_raw().as_ptr()) };
            0
        }
        Err(error) => {
            if let Some(set_error) = set_error {
                let message = CString::new(error.message()).unwrap_or_default();
                let (kind, message): (*const c_char, _) = (error.kind().as_ptr(), message.as_ptr());
                // SAFETY: the context is the one that goes with this callback; both strings outlive the call.
                unsafe { set_error(error_ctx, kind, message) };
            }
            -1
        }
    }
}

/// The four fields of a prototype that mean anything (R134).
///
/// # Safety
///
/// `prototype` points to a `DLTensor` whose shape stays valid for `'a`.
unsafe fn prototype_fields<'a>(
    prototype: *mut DLTensor,
) -> Result<(&'a [i64], DLDataType, DLDevice), Error> {
    // SAFETY: the caller's promise; the fields not named in R134 may be uninitialized, but they are plain
    // bytes that are not looked at.
    let DLTensor {
        device,
        ndim,
        dtype,
        shape,
        ..
    } = unsafe { &*prototype };
    // SAFETY: as promised, `shape` holds `ndim` extents.
    let shape = unsafe { extents(*shape, *ndim) }?;
    Ok((shape, *dtype, *device))
}
