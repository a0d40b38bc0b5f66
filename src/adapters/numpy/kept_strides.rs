//! Strides in elements for lent arrays: NumPy's own are in bytes, and nothing else would own converted ones.
//!
//! Programs use few different strides, so each combination is kept for the life of the process, up to a limit.

#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::types::error::Error;

/// Maximum number of combinations: a few megabytes.
const MOST: usize = 1 << 16;

static KEPT: Mutex<Option<HashSet<&'static [i64]>>> = Mutex::new(None);

/// The same strides, kept for the life of the process.
///
/// # Errors
///
/// `BufferError` if too many combinations have been kept.
pub(super) fn keep(strides: &[i64]) -> Result<&'static [i64], Error> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(found) = kept.get(strides) {
        return Ok(found);
    }
    if kept.len() == MOST {
        return Err(Error::refused(
            "NumPy arrays with too many different strides have been lent; \
             use managed_tensor_from_py_object_no_sync for this one",
        ));
    }
    let strides = Box::leak(Box::from(strides));
    kept.insert(strides);
    Ok(strides)
}
