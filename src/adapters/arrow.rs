//! Arrow's PyCapsule interface: primitive arrays, read-only.

mod on_device;
mod schema;
pub(super) mod stream;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::slice;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;

use crate::abi::*;
use crate::copy::request::Request;
use crate::cpython::call::{attribute, has};
use crate::cpython::depth::nested;
use crate::cpython::interpreter::{quietly, quietly_anywhere};
use crate::cpython::once::intern;
use crate::tensor::capsule;
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::snapshot::{Hold, Snapshot, Source};
use crate::types::device;
use crate::types::error::{Error, Shown};

use schema::{ArrowSchema, dtype, extended};

/// `ArrowArray` of the Arrow C data interface.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// Whether `x` is an array of Arrow's, which nobody may write to (S12, Arrow arrays).
#[cold]
#[inline(never)]
pub(crate) fn is_array(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    Ok(has(x, intern!(py, "__arrow_c_array__"))?
        || has(x, intern!(py, "__arrow_c_device_array__"))?)
}

/// An array that dlx owns; dropping it releases it, once.
struct Taken(ArrowArray);

// SAFETY: Arrow lets any thread release an array, which is immutable until then (S12, Arrow arrays).
unsafe impl Send for Taken {}
// SAFETY: as for `Send`.
unsafe impl Sync for Taken {}

impl Taken {
    /// Moves the array out of its producer's struct and marks that as released.
    ///
    /// # Safety
    ///
    /// `array` points to a live array that the caller may take, and nothing else writes to it meanwhile.
    unsafe fn from_raw(array: NonNull<ArrowArray>) -> Self {
        // SAFETY: alive, as the caller promises; from the next statement on, the copy is the array.
        let taken = Self(unsafe { array.read() });
        // SAFETY: as above.
        unsafe { (*array.as_ptr()).release = None };
        taken
    }
}

impl Hold for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the array is ours to move, and the original is marked as released (S12).
            let this = unsafe { Self::from_raw(NonNull::from(&mut self.0)) };
            nested(this, |this| {
                // SAFETY: we own the array and do not touch it again (S12).
                quietly_anywhere(|| unsafe { release(&mut this.0) });
            });
        }
    }
}

/// Imports an object that has `__arrow_c_device_array__` or `__arrow_c_array__`, in this order, because an object on a
/// device may answer the second with a copy.
pub(super) fn snapshot(
    x: &Bound<'_, PyAny>,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let py = x.py();
    let (method, is_on_device) = match attribute(x, intern!(py, "__arrow_c_device_array__"))? {
        Some(method) => (method, true),
        None => match attribute(x, intern!(py, "__arrow_c_array__"))? {
            Some(method) => (method, false),
            None => return Ok(None),
        },
    };
    let (schema, capsule) = capsules(&method)?;
    let taken = if is_on_device {
        on_device::snapshot(&schema, &capsule, request)
    } else {
        of_host(&schema, &capsule)
    };
    // They release what was not taken.
    quietly(py, || drop((schema, capsule)));
    taken.map(Some)
}

fn of_host(schema: &Bound<'_, PyCapsule>, capsule: &Bound<'_, PyCapsule>) -> PyResult<Snapshot> {
    let array = capsule::contents(capsule, Some(c"arrow_array"))?;
    // SAFETY: the capsule of this name points to an array, and lives until this function returns (S12).
    unsafe { take(schema, capsule, array.cast(), device::CPU) }
}

/// The schema and array capsules that a method of the interface returns.
fn capsules<'py>(
    method: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let answer = method.call0()?;
    answer.extract().map_err(|_| {
        let answer = Shown(&answer);
        PyTypeError::new_err(format!(
            "{method} returned {answer}, not a pair of capsules"
        ))
    })
}

/// The snapshot that keeps an array of this length.
fn over(meta: Meta, length: i64, taken: Taken) -> PyResult<Snapshot> {
    let shape = [length];
    let checked = Checked::new(meta, &shape, None)?;
    Ok(checked.over(Source::Held(Box::new(taken))))
}

/// Takes the array, whose memory is on `place`, or fails and leaves it to its capsule.
///
/// # Safety
///
/// `array` points to the array in `capsule`, which a producer gave to us, and does not move during the call.
unsafe fn take(
    schema: &Bound<'_, PyCapsule>,
    capsule: &Bound<'_, PyCapsule>,
    array: NonNull<ArrowArray>,
    place: DLDevice,
) -> PyResult<Snapshot> {
    let found = capsule::contents(schema, Some(c"arrow_schema"))?.cast::<ArrowSchema>();
    // SAFETY: the capsule of this name points to a schema, which it releases when it is destroyed (S12).
    let dtype = dtype(unsafe { found.as_ref() })?;
    // Two threads may have the same capsule: nothing in here suspends the critical section (S25, capsules).
    let (meta, length, taken) = with_critical_section(capsule, || {
        // SAFETY: the caller's promise; the reference ends with the statement.
        let (meta, length) = checked(unsafe { array.as_ref() }, dtype, place)?;
        // SAFETY: the caller's promise.
        let taken = unsafe { Taken::from_raw(array) };
        Ok::<_, Error>((meta, length, taken))
    })?;
    over(meta, length, taken)
}

/// The memory of a primitive array without nulls, and its length.
fn checked(array: &ArrowArray, dtype: DLDataType, place: DLDevice) -> Result<(Meta, i64), Error> {
    let (meta, length) = memory(array, dtype, place)?;
    let shape = [length];
    let size = Checked::new(meta, &shape, None)?.addressable()?.size;
    if dtype.code != kDLBool || size == 0 {
        return Ok((meta, length));
    }
    if place != device::CPU {
        return Err(extended(
            b"arrow.bool8",
            " on a device, whose bytes may be others than 0 and 1",
        ));
    }
    // SAFETY: memory of `length` bytes, more than 0, that the array keeps and nothing writes (S12).
    if unsafe { any_bit(meta.data.cast(), size) } > 1 {
        let what = ", and a byte that is neither 0 nor 1";
        return Err(extended(b"arrow.bool8", what));
    }
    Ok((meta, length))
}

/// As [`checked`], before what is in the memory is looked at.
fn memory(array: &ArrowArray, dtype: DLDataType, place: DLDevice) -> Result<(Meta, i64), Error> {
    let &ArrowArray {
        length,
        null_count,
        offset,
        n_buffers,
        n_children,
        buffers,
        ..
    } = array;
    if array.release.is_none() {
        return Err(Error::refused(
            "the Arrow array has already been released or moved",
        ));
    }
    if n_buffers != 2 || n_children != 0 || buffers.is_null() || !array.dictionary.is_null() {
        return Err(Error::refused(format!(
            "the Arrow array has {n_buffers} buffers and {n_children} children; expected a primitive array: \
             2 buffers, no children, no dictionary"
        )));
    }
    let item = i64::from(dtype.bits / 8);
    let end = offset.checked_add(length);
    if length < 0 || offset < 0 || end.is_none_or(|end| end.checked_mul(item).is_none()) {
        return Err(Error::refused(format!(
            "the Arrow array has length {length} and offset {offset}; expected numbers from 0 on that an \
             address space has room for"
        )));
    }
    // SAFETY: the array is not released and has two buffers (S12).
    let validity: *const u8 = unsafe { *buffers }.cast();
    // SAFETY: as above.
    let second = unsafe { buffers.add(1) };
    // SAFETY: as above.
    let data = unsafe { *second };
    let nulls = match null_count {
        -1 if validity.is_null() => 0,
        -1 if place != device::CPU => {
            return Err(Error::refused(
                "the Arrow array on a device has null_count -1 (unknown) and a bitmap; expected a null_count of 0",
            ));
        }
        // SAFETY: the bitmap has a bit per element up to the end of the array (S12).
        -1 => unsafe { zeros(validity, offset, length) },
        count => count,
    };
    if nulls != 0 {
        return Err(Error::refused(format!(
            "the Arrow array has null_count {nulls}; expected 0: DLPack cannot represent nulls"
        )));
    }
    // Arrow data are immutable.
    let meta = Meta::on_cpu(data.cast_mut(), dtype, DLPACK_FLAG_BITMASK_READ_ONLY);
    let byte_offset = (offset * item) as u64;
    let tensor = DLTensor {
        byte_offset,
        device: place,
        ..meta.tensor(1)
    };
    Ok((Meta::of(&tensor, meta.flags)?, length))
}

/// The bits set in any of `length` bytes.
///
/// # Safety
///
/// `bytes` is not NULL, `length` bytes are readable there, and nothing writes them.
unsafe fn any_bit(bytes: *const u8, length: i64) -> u8 {
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice::from_raw_parts(bytes, length as usize) };
    bytes.iter().fold(0, |all, byte| all | byte)
}

/// The number of zeros among the `length` bits from bit `offset` on.
///
/// # Safety
///
/// `bitmap` is not NULL and has `offset + length` bits; neither is negative, and their sum does not overflow.
unsafe fn zeros(bitmap: *const u8, offset: i64, length: i64) -> i64 {
    // SAFETY: the caller's promise.
    let bytes =
        unsafe { slice::from_raw_parts(bitmap, ((offset + length) as u64).div_ceil(8) as usize) };
    let zero = |bit: &i64| bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 0;
    (offset..offset + length).filter(zero).count() as i64
}
