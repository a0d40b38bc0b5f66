//! The allocator of a table, which runs without Python.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use super::{Exchange, claimed};
use crate::abi::*;
use crate::cpython::boundary::{guard, panic_message};
use crate::tensor::checked::{Prototype, extents};
use crate::tensor::trace;
use crate::types::error::Error;

/// Allocates, and reports failures through `SetError` alone (R135, R136).
///
/// # Safety
///
/// Call it as `dlpack.h` says: with a prototype, a place for the result, and a callback with its context (S2, callers).
pub(super) unsafe extern "C" fn allocate<E: Exchange>(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
    exchange: Option<&'static E>,
) -> c_int {
    let result = guard(
        || {
            // SAFETY: the caller has set dtype, ndim, shape and device of the prototype. The other fields may be
            // uninitialized (R134), but they are plain bytes and never read.
            let given = unsafe { &*prototype };
            // SAFETY: `shape` holds `ndim` extents, which stay valid for the call (S2).
            let shape = unsafe { extents(given.shape, given.ndim) }?;
            claimed(exchange)?.allocate(Prototype {
                shape,
                dtype: given.dtype,
                device: given.device,
            })
        },
        |payload| Err(Error::Panicked(panic_message(&*payload))),
    );
    match result {
        Ok(managed) => {
            let managed = managed.into_raw();
            if trace::is_on() {
                // SAFETY: a new tensor, which nobody else has seen.
                unsafe { trace::exported(managed, null_mut(), c"allocator") };
            }
            // SAFETY: `out` is the caller's place for the result (S2).
            unsafe { out.write(managed.as_ptr()) };
            0
        }
        Err(error) => {
            if let Some(set_error) = set_error {
                let message = CString::new(error.message()).unwrap_or_default();
                let (kind, message): (*const c_char, _) = (error.kind().as_ptr(), message.as_ptr());
                // SAFETY: the context belongs to this callback, and both strings outlive the call.
                unsafe { set_error(error_ctx, kind, message) };
            }
            -1
        }
    }
}
