//! The C exchange table of `dlpack.h` 1.3, read from a foreign type and published for one of ours.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};

use crate::abi::*;
use crate::boundary::{attached, guard, panic_message};
use crate::error::Error;
use crate::managed::Managed;
use crate::snapshot::{Snapshot, extents};
use crate::stream;

/// Name of the capsule that holds a table (R113).
const NAME: &CStr = c"dlpack_exchange_api";

/// A foreign table of major version 1 that can export.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    from_py: DLPackManagedTensorFromPyObjectNoSync,
}

impl Table {
    /// The table that a type publishes (R112), or `None` if it publishes none that dlx can read.
    ///
    /// An integer in place of a capsule is not followed: any class attribute could be one.
    pub(crate) fn of_type(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = class.py();
        for name in [
            intern!(py, "__dlpack_c_exchange_api__"),
            intern!(py, "__c_dlpack_exchange_api__"),
        ] {
            if let Some(attribute) = class.getattr_opt(name)?
                && let Ok(capsule) = attribute.cast::<PyCapsule>()
                && capsule.is_valid_checked(Some(NAME))
            {
                let header = capsule.pointer_checked(Some(NAME))?.cast();
                // SAFETY: a capsule of this name points to a table that lives as long as the process
                // (R114), and every table starts with a header.
                if let Some(table) = unsafe { Self::readable(header) } {
                    return Ok(Some(table));
                }
            }
        }
        Ok(None)
    }

    /// The first table of the chain that has major version 1 and exports (R119).
    ///
    /// # Safety
    ///
    /// `header` is the start of a table that lives as long as the process, and so is each `prev_api`.
    unsafe fn readable(mut header: NonNull<DLPackExchangeAPIHeader>) -> Option<Self> {
        // A chain of more versions than DLPack has had is a loop.
        for _ in 0..64 {
            // SAFETY: the caller promises a live header.
            let DLPackExchangeAPIHeader { version, prev_api } = unsafe { header.as_ref() };
            if version.major == DLPACK_MAJOR_VERSION {
                // SAFETY: major version 1 means that the header belongs to this struct.
                let api = unsafe { header.cast::<DLPackExchangeAPI>().as_ref() };
                let from_py = api.managed_tensor_from_py_object_no_sync?;
                return Some(Self { from_py });
            }
            header = NonNull::new(*prev_api)?;
        }
        None
    }

    /// An owned export of `object`, without synchronization.
    ///
    /// # Errors
    ///
    /// The table's own exception, or `BufferError` where it breaks the rule of R123.
    pub(crate) fn export(
        self,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<Managed<DLManagedTensorVersioned>> {
        let py = object.py();
        let mut out = null_mut();
        // SAFETY: the table was found on the type of `object`, the thread is attached, `out` is ours.
        let code = unsafe { (self.from_py)(object.as_ptr().cast(), &mut out) };
        // SAFETY: what a table writes to `out` is given to the caller, and nobody else has it (S3).
        let managed = NonNull::new(out).map(|out| unsafe { Managed::from_raw(out) });
        match (code, managed) {
            // SAFETY: attached.
            (0, Some(managed)) if unsafe { ffi::PyErr_Occurred() }.is_null() => Ok(managed),
            (0, Some(_)) => Err(broken(
                object,
                "succeeded with an exception set",
                PyErr::take(py),
            )),
            (0, None) => Err(broken(
                object,
                "succeeded without a tensor",
                PyErr::take(py),
            )),
            // A table that failed must not have given a tensor; what it wrote is not followed.
            (_, managed) => {
                std::mem::forget(managed);
                Err(match PyErr::take(py) {
                    Some(error) => error,
                    None => broken(object, "failed without an exception", None),
                })
            }
        }
    }
}

/// Whether Python code cannot set attributes of `class`, so that a table cannot appear on it later.
pub(crate) fn is_immutable(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: a live type; its flags are read, nothing is called.
    let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
    flags & ffi::Py_TPFLAGS_IMMUTABLETYPE != 0
}

/// The error for a table that does not keep to R123.
#[cold]
fn broken(object: &Bound<'_, PyAny>, how: &str, cause: Option<PyErr>) -> PyErr {
    let class = object.get_type();
    let name = class
        .fully_qualified_name()
        .map_or_else(|_| "a type".to_owned(), |name| name.to_string());
    let error = PyBufferError::new_err(format!(
        "managed_tensor_from_py_object_no_sync of {name} {how}"
    ));
    error.set_cause(object.py(), cause);
    error
}

/// A class of dlx that has a table: what the five functions do for it.
///
/// The functions are called attached, but PyO3 does not know it: an implementation drops no owned `Py<T>`.
pub(crate) trait Exchange: Sized + 'static {
    /// A managed tensor of its own for `object`.
    fn export(object: Borrowed<'_, '_, PyAny>) -> PyResult<Managed<DLManagedTensorVersioned>>;

    /// A view whose dimensions belong to `object`: no allocation, no reference count (R129).
    fn borrow(object: Borrowed<'_, '_, PyAny>) -> PyResult<DLTensor>;

    /// An object of this class over `snapshot`.
    fn import(py: Python<'_>, snapshot: Snapshot) -> PyResult<Bound<'_, PyAny>>;

    /// A new tensor; called without Python (R136).
    fn allocate(
        shape: &[i64],
        dtype: DLDataType,
        device: DLDevice,
    ) -> Result<Managed<DLManagedTensorVersioned>, Error>;

    /// The stream that the class works on now.
    fn current_work_stream(device: DLDevice) -> PyResult<i64>;
}

/// The table of a class, for as long as the process lives.
pub(crate) const fn table<T: Exchange>() -> DLPackExchangeAPI {
    DLPackExchangeAPI {
        header: DLPackExchangeAPIHeader {
            version: DLPackVersion {
                major: DLPACK_MAJOR_VERSION,
                minor: DLPACK_MINOR_VERSION,
            },
            prev_api: null_mut(),
        },
        managed_tensor_allocator: Some(managed_tensor_allocator::<T>),
        managed_tensor_from_py_object_no_sync: Some(managed_tensor_from_py_object_no_sync::<T>),
        managed_tensor_to_py_object_no_sync: Some(managed_tensor_to_py_object_no_sync::<T>),
        dltensor_from_py_object_no_sync: Some(dltensor_from_py_object_no_sync::<T>),
        current_work_stream: Some(current_work_stream::<T>),
    }
}

/// A table in a static.
pub(crate) struct Published(pub(crate) DLPackExchangeAPI);

// SAFETY: an immutable table of functions; `prev_api` is NULL.
unsafe impl Sync for Published {}

/// The capsule for `__dlpack_c_exchange_api__`; it has no destructor (R115).
pub(crate) fn publish<'py>(
    py: Python<'py>,
    table: &'static Published,
) -> PyResult<Bound<'py, PyCapsule>> {
    // SAFETY: the table is static and never written, though a capsule holds a mutable pointer.
    unsafe { PyCapsule::new_with_pointer(py, NonNull::from(&table.0).cast(), NAME) }
}

unsafe extern "C" fn managed_tensor_from_py_object_no_sync<T: Exchange>(
    py_object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    let body = |py: Python<'_>| {
        // SAFETY: the caller passes an object that it keeps alive for the call (S2).
        let object = unsafe { Borrowed::from_ptr(py, py_object.cast()) };
        let managed = T::export(object)?;
        // SAFETY: `out` is the caller's to be written (S2).
        unsafe { out.write(managed.into_raw().as_ptr()) };
        Ok(())
    };
    // SAFETY: exchange functions are called attached (S2).
    unsafe { attached(body) }
}

unsafe extern "C" fn dltensor_from_py_object_no_sync<T: Exchange>(
    py_object: *mut c_void,
    out: *mut DLTensor,
) -> c_int {
    let body = |py: Python<'_>| {
        // SAFETY: the caller passes an object that it keeps alive for the call (S2).
        let object = unsafe { Borrowed::from_ptr(py, py_object.cast()) };
        let tensor = T::borrow(object)?;
        // SAFETY: `out` is the caller's to be written (S2).
        unsafe { out.write(tensor) };
        Ok(())
    };
    // SAFETY: exchange functions are called attached (S2).
    unsafe { attached(body) }
}

/// Takes the tensor over only when it succeeds (R131): a caller that gets -1 still owns it.
unsafe extern "C" fn managed_tensor_to_py_object_no_sync<T: Exchange>(
    tensor: *mut DLManagedTensorVersioned,
    out_py_object: *mut *mut c_void,
) -> c_int {
    let body = |py: Python<'_>| {
        let tensor = NonNull::new(tensor).ok_or_else(|| Error::refused("the tensor is NULL"))?;
        // SAFETY: the caller offers a tensor that it owns (R130); on failure `into_raw` and `kept` below leave
        // it to the caller.
        let managed = unsafe { Managed::from_raw(tensor) };
        // What the caller computed is ready on the stream that this table names.
        let device = managed.read().map(|(tensor, _)| tensor.device);
        let stream = device.ok().and_then(stream::default);
        let snapshot = Snapshot::import(managed, stream).map_err(|(error, managed)| {
            managed.into_raw();
            error
        })?;
        // Leaked unless the import succeeds: the caller's tensor is then not deleted by us, not even by a
        // panic.
        let kept = ManuallyDrop::new(snapshot.clone());
        let object = T::import(py, snapshot)?;
        drop(ManuallyDrop::into_inner(kept));
        // SAFETY: `out_py_object` is the caller's to be written (S2).
        unsafe { out_py_object.write(object.into_ptr().cast()) };
        Ok(())
    };
    // SAFETY: exchange functions are called attached (S2).
    unsafe { attached(body) }
}

unsafe extern "C" fn current_work_stream<T: Exchange>(
    device_type: DLDeviceType,
    device_id: i32,
    out_current_stream: *mut *mut c_void,
) -> c_int {
    let body = |_py: Python<'_>| {
        let device = DLDevice {
            device_type,
            device_id,
        };
        let stream = T::current_work_stream(device)?;
        let stream = std::ptr::without_provenance_mut(stream as usize);
        // SAFETY: `out_current_stream` is the caller's to be written (S2).
        unsafe { out_current_stream.write(stream) };
        Ok(())
    };
    // SAFETY: exchange functions are called attached (S2).
    unsafe { attached(body) }
}

/// Reports through `SetError` alone, exactly when it fails (R135, R136).
unsafe extern "C" fn managed_tensor_allocator<T: Exchange>(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    let result = guard(
        || {
            // SAFETY: the caller passes a prototype whose dtype, ndim, shape and device are set (R134).
            let (shape, dtype, device) = unsafe { prototype_fields(prototype) }?;
            T::allocate(shape, dtype, device)
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

#[cfg(test)]
mod tests;
