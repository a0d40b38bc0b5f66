//! The dtype of an Arrow schema, or the reason why its elements are not plain numbers.

use std::ffi::{CStr, c_char, c_void};
use std::mem::zeroed;
use std::ptr::NonNull;
use std::slice;

use pyo3::prelude::*;

use crate::abi::*;
use crate::cpython::interpreter::quietly_anywhere;
use crate::cpython::modules::python;
use crate::types::dtype::scalar;
use crate::types::error::Error;

/// `ArrowSchema` of the Arrow C data interface.
#[repr(C)]
pub(super) struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

impl ArrowSchema {
    /// A released schema, for a producer to fill.
    // SAFETY: numbers, pointers and functions that may be NULL.
    pub(super) const RELEASED: Self = unsafe { zeroed() };
}

/// A schema that dlx owns; dropping it releases it.
pub(super) struct Schema(pub(super) ArrowSchema);

impl Drop for Schema {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: we own the schema and do not touch it again (S12, Arrow arrays).
            quietly_anywhere(|| unsafe { release(&mut self.0) });
        }
    }
}

/// The dtype of a schema.
pub(super) fn dtype(schema: &ArrowSchema) -> Result<DLDataType, Error> {
    if schema.release.is_none() || schema.format.is_null() {
        return Err(Error::refused("the Arrow schema has already been released"));
    }
    // SAFETY: a C string that the unreleased schema keeps (S12, Arrow arrays).
    let format = unsafe { CStr::from_ptr(schema.format) };
    // SAFETY: NULL or the metadata, which the unreleased schema keeps (S12).
    let extension = unsafe { entry(schema.metadata, b"ARROW:extension:name") };
    let is_bool8 = extension == Some(b"arrow.bool8") && format.to_bytes() == b"c";
    let (code, bits) = match format.to_bytes() {
        b"c" if is_bool8 => (kDLBool, 8),
        _ if !schema.dictionary.is_null() => {
            return Err(refused(format, true));
        }
        b"c" => (kDLInt, 8),
        b"C" => (kDLUInt, 8),
        b"s" => (kDLInt, 16),
        b"S" => (kDLUInt, 16),
        b"i" => (kDLInt, 32),
        b"I" => (kDLUInt, 32),
        b"l" => (kDLInt, 64),
        b"L" => (kDLUInt, 64),
        b"e" => (kDLFloat, 16),
        b"f" => (kDLFloat, 32),
        b"g" => (kDLFloat, 64),
        _ => return Err(refused(format, false)),
    };
    if let Some(name) = extension.filter(|_| !is_bool8) {
        return Err(extended(name, ", whose elements are more than numbers"));
    }
    Ok(scalar(code, bits))
}

/// The value of `key` in the metadata of a schema.
///
/// # Safety
///
/// `metadata` is NULL, or laid out for `'a` as the Arrow C data interface says: the number of entries, then the key and
/// the value of each, both preceded by their length.
unsafe fn entry<'a>(metadata: *const c_char, key: &[u8]) -> Option<&'a [u8]> {
    let mut at = NonNull::new(metadata.cast_mut())?.cast::<u8>();
    let mut bytes = |count: usize| {
        let start = at;
        // SAFETY: the caller's promise; `count` comes from the lengths in the metadata.
        at = unsafe { at.add(count) };
        // SAFETY: as above.
        unsafe { slice::from_raw_parts(start.as_ptr(), count) }
    };
    let number = |bytes: &[u8]| {
        let number = bytes.try_into().map_or(0, i32::from_ne_bytes);
        number.max(0) as usize
    };
    let entries = number(bytes(size_of::<i32>()));
    let mut text = || {
        let length = number(bytes(size_of::<i32>()));
        bytes(length)
    };
    let mut entries = (0..entries).map(|_| (text(), text()));
    entries.find_map(|(name, value)| (name == key).then_some(value))
}

/// The error for an extension type whose storage is not all of its meaning.
#[cold]
pub(super) fn extended(name: &[u8], what: &str) -> Error {
    Error::refused(format!(
        "the Arrow array has the extension type {}{what}; pass its storage (.storage in pyarrow) for the plain numbers",
        String::from_utf8_lossy(name)
    ))
}

/// The error for a format that is not accepted, in the words of `python/dlx/_containers/elements.py`.
#[cold]
fn refused(format: &CStr, is_dictionary: bool) -> Error {
    let format = format.to_string_lossy();
    let words = Python::attach(|py| {
        let said = (&format, is_dictionary);
        python(py, "dlx._containers.elements", "of_format", said)?.extract::<String>()
    });
    let words = words.unwrap_or_else(|_| format!("the format {format:?}"));
    Error::refused(format!(
        "the Arrow array has {words}; expected integers or floating-point numbers"
    ))
}
