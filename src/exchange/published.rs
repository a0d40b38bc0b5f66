//! The C functions of the exchange tables that dlx publishes (`dlpack.h` 1.3).

mod allocate;

use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::abi::*;
use crate::cpython::boundary::{attached, guard};
use crate::stream::usage::StreamUsage;
use crate::stream::{self, Namer, Stream};
use crate::tensor::checked::Prototype;
use crate::tensor::managed::{Managed, ManagedVersioned, replace_deleter};
use crate::tensor::snapshot::Snapshot;
use crate::tensor::trace;
use crate::types::device;
use crate::types::error::Error;

/// Name of the capsule that holds a table (R113).
pub(super) const NAME: &CStr = c"dlpack_exchange_api";

/// The implementation behind the five functions of a table.
///
/// The functions are called attached but not counted by PyO3, so an implementation must not drop an owned `Py<T>`.
pub(crate) trait Exchange: Sync {
    /// The snapshot of `object` if it needs no waiting and cannot fail; `None` decides nothing.
    #[inline(always)]
    fn fast_borrow<'a>(&self, _object: &'a Bound<'_, PyAny>) -> Option<&'a Snapshot> {
        None
    }

    /// A new managed tensor for `object`, ordered before [`Self::current_work_stream`].
    fn export(&'static self, object: Borrowed<'_, '_, PyAny>) -> PyResult<ManagedVersioned>;

    /// A view whose dimensions belong to `object`: no allocation, no reference count (R129).
    fn borrow(&'static self, object: Borrowed<'_, '_, PyAny>) -> PyResult<DLTensor>;

    /// A new object over `snapshot`.
    fn import<'py>(&self, py: Python<'py>, snapshot: Snapshot) -> PyResult<Bound<'py, PyAny>>;

    /// A new tensor; called without Python (R136).
    fn allocate(&self, wanted: Prototype<'_>) -> Result<ManagedVersioned, Error>;

    /// The stream that consumers of this table run on, as an integer; 0 if there is none (R139, R141).
    fn current_work_stream(&self, py: Python<'_>, device: DLDevice) -> PyResult<i64>;

    /// Who names that stream.
    fn namer(&'static self, device: DLDevice) -> Namer;
}

/// A type that identifies one [`Exchange`]: table functions get no context, so each table needs its own.
pub(crate) trait ExchangeType: 'static {
    /// The exchange's type.
    type Exchange: Exchange + 'static;

    /// The exchange that the functions serve, once there is one.
    fn exchange() -> Option<&'static Self::Exchange>;
}

/// The table of dlx's version whose functions serve `T`.
pub(super) const fn table<T: ExchangeType>() -> Published {
    Published(DLPackExchangeAPI {
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
    })
}

/// A table of dlx, to be kept in a static.
pub(crate) struct Published(DLPackExchangeAPI);

impl Published {
    /// The same table; one that does not `lend` has no borrow function (R122).
    pub(super) fn lending(&self, lends: bool) -> Self {
        let borrow = self.0.dltensor_from_py_object_no_sync;
        Self(DLPackExchangeAPI {
            dltensor_from_py_object_no_sync: borrow.filter(|_| lends),
            ..self.0
        })
    }

    /// The pointer for a capsule.
    pub(crate) fn header(&self) -> NonNull<DLPackExchangeAPIHeader> {
        NonNull::from(&self.0).cast()
    }
}

// SAFETY: a table of function pointers, which nobody writes to; `prev_api` is NULL.
unsafe impl Sync for Published {}
// SAFETY: as for `Sync`.
unsafe impl Send for Published {}

/// The capsule for `__dlpack_c_exchange_api__`, without a destructor (R115).
pub(crate) fn publish<'py>(
    py: Python<'py>,
    table: &'static Published,
) -> PyResult<Bound<'py, PyCapsule>> {
    // SAFETY: the table is static (S14, slots), and nobody writes to it.
    unsafe { PyCapsule::new_with_pointer(py, table.header().cast(), NAME) }
}

/// The exchange of a table that has been given to a class.
#[inline(always)]
fn claimed<E>(exchange: Option<&'static E>) -> Result<&'static E, Error> {
    exchange.ok_or_else(|| Error::refused("the exchange table has no class yet"))
}

unsafe extern "C" fn managed_tensor_from_py_object_no_sync<T: ExchangeType>(
    py_object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    // SAFETY: the caller of the table obeys `dlpack.h` (S2, callers).
    unsafe { from_py_object(py_object, out, T::exchange()) }
}

unsafe extern "C" fn dltensor_from_py_object_no_sync<T: ExchangeType>(
    py_object: *mut c_void,
    out: *mut DLTensor,
) -> c_int {
    let fast_borrow = || {
        // SAFETY: exchange functions are called attached (S2).
        let py = unsafe { Python::assume_attached() };
        // SAFETY: the caller keeps the object alive for the call (S2).
        let object = unsafe { Borrowed::from_ptr_or_opt(py, py_object.cast()) }?;
        let tensor = *T::exchange()?.fast_borrow(&object)?.dl_tensor();
        // SAFETY: `out` is the caller's place for the result (S2).
        unsafe { out.write(tensor) };
        Some(())
    };
    match guard(fast_borrow, |_| None) {
        Some(()) => 0,
        // SAFETY: the caller of the table obeys `dlpack.h` (S2).
        None => unsafe { slow_borrow(py_object, out, T::exchange()) },
    }
}

unsafe extern "C" fn managed_tensor_to_py_object_no_sync<T: ExchangeType>(
    tensor: *mut DLManagedTensorVersioned,
    out_py_object: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    unsafe { to_py_object(tensor, out_py_object, T::exchange()) }
}

unsafe extern "C" fn current_work_stream<T: ExchangeType>(
    device_type: DLDeviceType,
    device_id: i32,
    out_current_stream: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    unsafe { work_stream(device_type, device_id, out_current_stream, T::exchange()) }
}

unsafe extern "C" fn managed_tensor_allocator<T: ExchangeType>(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    // SAFETY: the caller of the table obeys `dlpack.h` (S2).
    unsafe { allocate::allocate(prototype, out, error_ctx, set_error, T::exchange()) }
}

/// # Safety
///
/// Call it as `dlpack.h` says: attached, with a live object and a place for the result (S2).
#[inline(never)]
unsafe extern "C" fn from_py_object<E: Exchange>(
    py_object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
    exchange: Option<&'static E>,
) -> c_int {
    let body = |py: Python<'_>| {
        // SAFETY: the caller keeps the object alive for the call (S2).
        let object = unsafe { Borrowed::from_ptr(py, py_object.cast()) };
        let managed = claimed(exchange)?.export(object)?.into_raw();
        if trace::is_on() {
            // SAFETY: a new tensor, which nobody else has seen, of an object that the caller holds.
            unsafe { trace::exported(managed, py_object.cast(), c"table") };
        }
        // SAFETY: `out` is the caller's place for the result (S2).
        unsafe { out.write(managed.as_ptr()) };
        Ok(())
    };
    // SAFETY: exchange functions are called attached (S2).
    unsafe { attached(body) }
}

/// The part of [`dltensor_from_py_object_no_sync`] that may wait or fail; not inlined, so that the fast path needs no frame.
///
/// # Safety
///
/// Call it as `dlpack.h` says: attached, with a live object and a place for the result (S2).
#[inline(never)]
unsafe extern "C" fn slow_borrow<E: Exchange>(
    py_object: *mut c_void,
    out: *mut DLTensor,
    exchange: Option<&'static E>,
) -> c_int {
    let body = |py: Python<'_>| {
        // SAFETY: the caller keeps the object alive for the call (S2).
        let object = unsafe { Borrowed::from_ptr(py, py_object.cast()) };
        let tensor = claimed(exchange)?.borrow(object)?;
        // SAFETY: `out` is the caller's place for the result (S2).
        unsafe { out.write(tensor) };
        Ok(())
    };
    // SAFETY: exchange functions are called attached (S2).
    unsafe { attached(body) }
}

/// Takes ownership of the tensor only on success: a caller that gets -1 still owns it (R131).
///
/// # Safety
///
/// Call it as `dlpack.h` says: attached, with a tensor that the caller owns and a place for the result (S2).
#[inline(never)]
unsafe extern "C" fn to_py_object<E: Exchange>(
    tensor: *mut DLManagedTensorVersioned,
    out_py_object: *mut *mut c_void,
    exchange: Option<&'static E>,
) -> c_int {
    let body = |py: Python<'_>| {
        let exchange = claimed(exchange)?;
        let tensor = NonNull::new(tensor).ok_or_else(|| Error::refused("the tensor is NULL"))?;
        // SAFETY: the caller owns the tensor (R130), and keeps it on failure: nothing here drops it.
        let managed = ManuallyDrop::new(unsafe { Managed::from_raw(tensor) });
        // The caller's work is ordered before the stream that this table names.
        let usage = match managed.read().map(|(tensor, _)| tensor.device) {
            Ok(device) if stream::has_streams(device) => {
                let handle = exchange.current_work_stream(py, device)?;
                let stream = Stream::of_table(handle, device);
                Some(StreamUsage::ready_now_on(stream, device)?)
            }
            _ => None,
        };
        let snapshot = Snapshot::import(managed, usage)?;
        // A panic leaks it rather than delete the caller's tensor.
        let kept = ManuallyDrop::new(snapshot.clone());
        let imported = exchange.import(py, snapshot);
        let kept = ManuallyDrop::into_inner(kept);
        let object = match imported {
            Ok(object) => object,
            Err(error) => {
                // Somebody may have kept the object, if only in a traceback: then the last of the two owners deletes it.
                if let Err(kept) = kept.forget() {
                    // SAFETY: `kept` keeps the tensor alive, whose caller waits for this function (S15, tensors handed
                    // back).
                    unsafe { replace_deleter(tensor, kept) };
                }
                return Err(error);
            }
        };
        drop(kept);
        if trace::is_on() {
            trace::begun(&object, c"table", None, None);
        }
        // SAFETY: `out_py_object` is the caller's place for the result (S2).
        unsafe { out_py_object.write(object.into_ptr().cast()) };
        Ok(())
    };
    // SAFETY: exchange functions are called attached (S2).
    unsafe { attached(body) }
}

/// # Safety
///
/// Call it as `dlpack.h` says: attached, with a place for the result (S2).
#[inline(never)]
unsafe extern "C" fn work_stream<E: Exchange>(
    device_type: DLDeviceType,
    device_id: i32,
    out_current_stream: *mut *mut c_void,
    exchange: Option<&'static E>,
) -> c_int {
    let device = device::of(device_type, device_id);
    let body = |py: Python<'_>| {
        let exchange = claimed(exchange)?;
        let stream = exchange.current_work_stream(py, device)?;
        if stream::has_streams(device) {
            let named = Stream::of_table(stream, device);
            stream::told(py, device, exchange.namer(device), &named)?;
        }
        let stream = std::ptr::without_provenance_mut(stream as usize);
        // SAFETY: `out_current_stream` is the caller's place for the result (S2).
        unsafe { out_current_stream.write(stream) };
        Ok(())
    };
    // SAFETY: exchange functions are called attached (S2).
    unsafe { attached(body) }
}

#[cfg(test)]
mod tests;
