//! The export function that all tables of the pool have while a trace is on.
//!
//! Their allocators and importers are not exchanged: these get no object that tells whose table was called.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::{POOL, functions};
use crate::abi::*;
use crate::cpython::boundary::attached;
use crate::exchange::published::{Functions, Published, note_export};
use crate::types::error::type_name;

/// Puts the function of a trace into the table of the slot at `index`, or the table's own.
pub(super) fn exchange(index: usize, table: &Published, on: bool) {
    let mut functions = plain(index);
    if on {
        functions.from_py = Some(export);
    }
    table.exchange(&functions);
}

fn plain(index: usize) -> Functions {
    functions::table(index, false).functions()
}

/// Exports by the table of the object's own class, or of its nearest base.
unsafe extern "C" fn export(
    py_object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    let mut found = None;
    let find = |py: Python<'_>| {
        // SAFETY: the caller of the table obeys `dlpack.h`: attached, with a live object (S2).
        let class = unsafe { Borrowed::from_ptr(py, py_object.cast()) }.get_type();
        let slot_of =
            |base: Bound<'_, PyAny>| POOL.iter().position(|slot| slot.is_for(base.as_ptr()));
        found = class.mro().iter().find_map(slot_of);
        match found {
            Some(_) => Ok(()),
            None => Err(PyBufferError::new_err(format!(
                "an exchange table was given {}",
                type_name(&class)
            ))),
        }
    };
    // SAFETY: as above.
    let code = unsafe { attached(find) };
    let Some(plain) = found.and_then(|index| plain(index).from_py) else {
        return code;
    };
    // SAFETY: the caller's call, passed on.
    let code = unsafe { plain(py_object, out) };
    // SAFETY: the function has written a result if it returned 0.
    unsafe { note_export(code, py_object, out, c"table") };
    code
}
