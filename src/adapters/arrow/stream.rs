//! Arrow's C stream interface: the only array of a stream that has one, such as a polars Series of one chunk.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::zeroed;
use std::ptr::{NonNull, null};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;

use super::schema::{ArrowSchema, Schema, dtype};
use super::{ArrowArray, Taken, checked, over};
use crate::abi::*;
use crate::copy::request::Request;
use crate::cpython::call::attribute;
use crate::cpython::interpreter::quietly_anywhere;
use crate::cpython::once::intern;
use crate::tensor::capsule;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::{EXCEPTION_SET, Error, Shown, caused, copy_refused, is_urgent};

/// `ArrowArrayStream` of the Arrow C stream interface.
#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

/// An array that does not exist yet, for a stream to fill; left like that, it is the end of the stream.
// SAFETY: numbers, pointers and functions that may be NULL.
const RELEASED: ArrowArray = unsafe { zeroed() };

/// A stream that dlx owns; dropping it releases it, once.
struct Arrays(ArrowArrayStream);

impl Drop for Arrays {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: we own the stream and do not touch it again (S12, Arrow arrays).
            quietly_anywhere(|| unsafe { release(&mut self.0) });
        }
    }
}

impl Arrays {
    /// Moves the stream out of its capsule, and marks the original as released.
    fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let found = capsule::contents(capsule, Some(c"arrow_array_stream"))?;
        let found = found.cast::<ArrowArrayStream>();
        // Two threads may have the same capsule: nothing in here suspends the critical section (S25, capsules).
        let taken = with_critical_section(capsule, || {
            // SAFETY: the capsule of this name points to a stream, and lives (S12); from the next statement on, the copy
            // is the stream.
            let taken = Self(unsafe { found.read() });
            // SAFETY: as above.
            unsafe { (*found.as_ptr()).release = None };
            taken
        });
        match taken.0.release {
            Some(_) => Ok(taken),
            None => {
                Err(Error::refused("the Arrow stream has already been released or moved").into())
            }
        }
    }

    fn dtype(&mut self, py: Python<'_>) -> PyResult<DLDataType> {
        let mut schema = Schema(ArrowSchema::RELEASED);
        let code = match self.0.get_schema {
            // SAFETY: a live stream, called from one thread, and our struct to fill (S12).
            Some(get_schema) => unsafe { get_schema(&mut self.0, &mut schema.0) },
            None => return Err(Error::refused("the Arrow stream has no get_schema").into()),
        };
        self.check(py, code, "get_schema")?;
        Ok(dtype(&schema.0)?)
    }

    /// The next array; `None` at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Taken>> {
        let mut next = Taken(RELEASED);
        let code = match self.0.get_next {
            // SAFETY: a live stream, called from one thread, and our struct to fill (S12).
            Some(get_next) => unsafe { get_next(&mut self.0, &mut next.0) },
            None => return Err(Error::refused("the Arrow stream has no get_next").into()),
        };
        self.check(py, code, "get_next")?;
        Ok(next.0.release.is_some().then_some(next))
    }

    /// The only array with elements, or else any.
    fn only(&mut self, py: Python<'_>) -> PyResult<Option<Taken>> {
        let mut only: Option<Taken> = None;
        while let Some(next) = self.next(py)? {
            match &only {
                Some(one) if one.0.length != 0 && next.0.length != 0 => {
                    return Err(Error::refused(
                        "the Arrow stream has more than one array with elements; expected one: make them one first",
                    )
                    .into());
                }
                Some(one) if one.0.length != 0 => {}
                _ => only = Some(next),
            }
        }
        Ok(only)
    }

    /// The error of a call that failed; its cause is the exception that is set, if any.
    fn check(&mut self, py: Python<'_>, code: c_int, name: &str) -> PyResult<()> {
        let set = match PyErr::take(py) {
            Some(error) if is_urgent(py, &error) => return Err(error),
            None if code == 0 => return Ok(()),
            set => set,
        };
        let how = match code {
            0 => EXCEPTION_SET.to_owned(),
            _ => format!("failed with {code}: {}", self.said()),
        };
        // The exception of the call itself counts more.
        let set = set.or(PyErr::take(py));
        let error = Error::refused(format!("{name} of the Arrow stream {how}"));
        Err(caused(py, error.into(), set))
    }

    /// The first line of what the stream says of its last call, which has failed.
    fn said(&mut self) -> String {
        let text = match self.0.get_last_error {
            // SAFETY: a live stream whose last call has failed (S12).
            Some(get_last_error) => unsafe { get_last_error(&mut self.0) },
            None => null(),
        };
        let text = NonNull::new(text.cast_mut()).map_or_else(String::new, |text| {
            // SAFETY: a C string that is valid until the next call on the stream (S12).
            let text = unsafe { CStr::from_ptr(text.as_ptr()) };
            text.to_string_lossy().into_owned()
        });
        text.lines().next().unwrap_or_default().to_owned()
    }
}

/// Whether the stream of `x` is asked before its `__array__`: it is polars' own Series, whose stream takes less time.
pub(crate) fn is_first(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = x.get_type();
    Ok(class.name()? == "Series" && class.module()?.to_str()?.starts_with("polars."))
}

/// Imports an object that has `__arrow_c_stream__`, if the stream has one array.
///
/// Neither the object nor the stream says whether the array is a copy: with `copy=False` two streams have to show the
/// same memory.
pub(crate) fn snapshot(
    x: &Bound<'_, PyAny>,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let method = attribute(x, intern!(x.py(), "__arrow_c_stream__"))?;
    let Some(method) = method.filter(|method| !method.is_none()) else {
        return Ok(None);
    };
    let found = from(&method)?;
    if request.copy == Some(false) {
        let again = from(&method).map_err(|error| {
            if is_urgent(x.py(), &error) {
                return error;
            }
            let message = "copy=False, but the Arrow stream can be read only once, so nothing shows that it is no copy";
            caused(x.py(), copy_refused(x.py(), message.to_owned()), error)
        })?;
        if again.meta().data != found.meta().data {
            return Ok(Some(found.copied()?));
        }
    }
    Ok(Some(found))
}

fn from(method: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    let answer = method.call0()?;
    let capsule = answer.cast::<PyCapsule>().map_err(|_| {
        let answer = Shown(&answer);
        PyTypeError::new_err(format!("{method} returned {answer}, not a capsule"))
    })?;
    let mut arrays = Arrays::take(capsule)?;
    let dtype = arrays.dtype(method.py())?;
    match arrays.only(method.py())? {
        Some(array) => {
            let (meta, length) = checked(&array.0, dtype, device::CPU)?;
            over(meta, length, array)
        }
        None => Ok(Snapshot::allocate(
            &[0],
            dtype,
            DLPACK_FLAG_BITMASK_READ_ONLY,
        )?),
    }
}
