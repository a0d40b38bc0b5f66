//! `__arrow_c_device_array__`: memory of a device, and the event to wait for.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::{ArrowArray, take};
use crate::abi::*;
use crate::copy::request::Request;
use crate::cpython::interpreter::blocking;
use crate::driver::{self, Event};
use crate::stream::order;
use crate::stream::usage::{Ready, StreamUsage};
use crate::stream::{self, Wanted};
use crate::tensor::capsule;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::Error;

/// `ArrowDeviceArray` of the Arrow C device data interface, whose device types are DLPack's.
#[repr(C)]
struct ArrowDeviceArray {
    array: ArrowArray,
    device_id: i64,
    device_type: DLDeviceType,
    sync_event: *mut c_void,
    reserved: [i64; 3],
}

/// Imports an array of the device interface, ordered as requested; the tensor holds the array, and its event.
pub(super) fn snapshot(
    schema: &Bound<'_, PyCapsule>,
    capsule: &Bound<'_, PyCapsule>,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let array = capsule::contents(capsule, Some(c"arrow_device_array"))?;
    let array = array.cast::<ArrowDeviceArray>();
    // SAFETY: the capsule of this name points to this struct, and lives until this function returns (S12).
    let here = device_of(unsafe { array.as_ref() })?;
    // SAFETY: as above.
    let event = unsafe { array.as_ref() }.sync_event;
    let event = NonNull::new(event.cast::<usize>());
    if here == device::CPU && event.is_some() {
        return Err(refused(
            "on the CPU but has a sync_event, which dlx cannot wait for",
        ));
    }
    // SAFETY: as above; the array is the first field.
    let snapshot = unsafe { take(schema, capsule, array.cast(), here) }?;
    if here == device::CPU {
        return Ok(snapshot);
    }
    check_memory(snapshot.meta().data.addr(), here)?;
    // SAFETY: the array is ours, and not released: its event lives, and is not recorded again (S12).
    let point = event
        .map(|event| unsafe { point(event, here) })
        .transpose()?;
    Ok(match usage(point.map(Arc::new), here, request)? {
        Some(usage) => snapshot.used(usage)?,
        None => snapshot,
    })
}

fn refused(what: &str) -> PyErr {
    Error::refused(format!("the Arrow array is {what}")).into()
}

/// The device that the struct names.
fn device_of(array: &ArrowDeviceArray) -> PyResult<DLDevice> {
    let (device_type, device_id) = (array.device_type, array.device_id);
    let here = device::of(device_type, i32::try_from(device_id).unwrap_or(i32::MAX));
    let first = device::of(device_type, 0);
    match device_type {
        kDLCPU => Ok(device::CPU),
        // Memory of the host may have the number -1.
        kDLCUDAHost | kDLROCMHost if device_id < 0 => Ok(first),
        kDLCUDA | kDLCUDAHost | kDLCUDAManaged | kDLROCM | kDLROCMHost if device_id >= 0 => {
            Ok(here)
        }
        _ => Err(refused(&format!(
            "on {here}; expected the CPU, CUDA or ROCm"
        ))),
    }
}

/// Refuses memory of another device than the struct says, if the driver can tell.
fn check_memory(address: usize, here: DLDevice) -> PyResult<()> {
    if here.device_type != kDLCUDA && here.device_type != kDLROCM || address == 0 {
        return Ok(());
    }
    match driver::of(here).and_then(|driver| driver.device_of(address)) {
        Ok(there) if there != here.device_id => {
            let there = device::of(here.device_type, there);
            Err(refused(&format!(
                "said to be on {here}, and its memory is on {there}"
            )))
        }
        _ => Ok(()),
    }
}

/// The point of the event behind a `sync_event`.
///
/// # Safety
///
/// `event` points to a `cudaEvent_t` or `hipEvent_t`, as Arrow requires of the device, which lives until the result is
/// dropped.
unsafe fn point(event: NonNull<usize>, here: DLDevice) -> PyResult<Event> {
    // SAFETY: the caller's promise.
    let raw = unsafe { event.read_unaligned() };
    if raw == 0 {
        return Err(refused(&format!(
            "on {here}, and its sync_event points to a NULL event; expected an event, or NULL in place of sync_event"
        )));
    }
    // Of memory of the host, too, the driver has the events.
    let device_type = match here.device_type {
        kDLROCM | kDLROCMHost => kDLROCM,
        _ => kDLCUDA,
    };
    // SAFETY: the caller's promise.
    let point = unsafe { Event::of_other(device::of(device_type, here.device_id), raw) };
    point.map_err(|error| Error::from(error).into())
}

/// Makes the requested stream wait for `point`, unless that has been passed, and for nothing else.
fn usage(
    mut point: Option<Arc<Event>>,
    here: DLDevice,
    request: &Request<'_, '_>,
) -> PyResult<Option<Arc<StreamUsage>>> {
    let wanted = request.wanted_at(here)?;
    if matches!(wanted, Wanted::NoOrder) {
        return Ok(None);
    }
    if let Some(event) = &point {
        let is_done = blocking(|| event.is_done());
        if is_done.map_err(|error| explained(error.into(), here))? {
            point = None;
        }
    }
    let ready = match wanted {
        Wanted::Stream(stream) => {
            let stream = stream::check_device(stream, here)?;
            if let Some(point) = point {
                order::wait(&stream, &point)?;
            }
            Ready::After(stream)
        }
        // Pinned memory has no streams: whoever reads it does not wait either.
        _ if !stream::has_streams(here) => {
            if let Some(point) = point {
                blocking(|| point.synchronize()).map_err(Error::from)?;
            }
            return Ok(None);
        }
        // Also where nothing is awaited: the ends of later uses are noted here.
        _ => point.map_or(Ready::Now, Ready::Point),
    };
    Ok(Some(request.usage(ready, None)))
}

/// The error of a driver that does not know the event.
fn explained(error: Error, here: DLDevice) -> PyErr {
    match error {
        Error::Driver(error) if error.is_handle_gone() => refused(&format!(
            "on {here}, and its sync_event is no event, or no longer one: {error}"
        )),
        error => error.into(),
    }
}
