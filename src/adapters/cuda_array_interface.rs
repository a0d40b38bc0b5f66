//! `__cuda_array_interface__`, versions 0 to 3: an object's memory on a CUDA device, and the stream to wait for.

#![forbid(unsafe_code)]

use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;

use super::interface::Interface;
use crate::abi::*;
use crate::copy::request::Request;
use crate::cpython::interpreter::PythonOwner;
use crate::cpython::once::intern;
use crate::driver;
use crate::stream::namer::TENSORS;
use crate::stream::usage::{Library, Producer};
use crate::stream::{self, Namer, Stream};
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::managed::read_only;
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::device;
use crate::types::error::{Error, type_name};

/// Imports an object that has the interface, ordered as requested; the tensor holds the object.
pub(super) fn snapshot(
    x: &Bound<'_, PyAny>,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let Some(interface) = Interface::of(x, intern!(x.py(), "__cuda_array_interface__"))? else {
        return Ok(None);
    };
    interface.check_version(0..=3, "0 to 3")?;
    let (dtype, shape, strides) = interface.elements()?;
    let (address, flag): (usize, Bound<'_, PyAny>) =
        interface.required("data", "(address, read-only)")?;
    let handle = stream::interface::handle(x, interface.get("stream")?.as_ref())?;
    let given = request.device.filter(|&there| is_cuda(there));
    let (data, flags) = (
        with_exposed_provenance_mut(address),
        read_only(flag.is_truthy()?),
    );
    let mut meta = Meta::on_cpu(data, dtype, flags);
    meta.device = given.unwrap_or(FIRST);
    let mut checked = Checked::new(meta, &shape, strides.as_deref())?.addressable()?;
    let mut ahead = None;
    // Without elements there is no device to look up and no stream to wait for.
    if checked.size > 0 {
        checked.meta.device = device_of(x, address, given)?;
        ahead = handle.map(|handle| Stream::new(handle, checked.meta.device, None));
    }
    let here = checked.meta.device;
    let wanted = request.wanted_at(here)?;
    let usage = match ahead {
        Some(then) => request.order(wanted, produced(x, then))?,
        None => request.order_nothing(wanted, here)?,
    };
    let owner = PythonOwner::new(x.clone().unbind());
    Ok(Some(checked.with_usage(Source::Python(owner), Some(usage))))
}

const FIRST: DLDevice = device::of(kDLCUDA, 0);

fn is_cuda(device: DLDevice) -> bool {
    matches!(device.device_type, kDLCUDA | kDLCUDAManaged)
}

/// The device of the memory at `address`, which the interface does not state. Without a driver, the one that is
/// `given` by the caller decides.
fn device_of(x: &Bound<'_, PyAny>, address: usize, given: Option<DLDevice>) -> PyResult<DLDevice> {
    const CUDA_ERROR_INVALID_VALUE: i32 = 1;
    let refused = |why: String| {
        PyBufferError::new_err(format!(
            "__cuda_array_interface__ of {} has data {address:#x}, {why}",
            type_name(&x.get_type())
        ))
    };
    match driver::of(FIRST).and_then(|driver| driver.device_of(address)) {
        Ok(device_id) if device_id >= 0 => Ok(DLDevice { device_id, ..FIRST }),
        Err(error) if error.is_absent() => match given {
            Some(there) => Ok(there),
            None => Err(refused(format!(
                "whose device only a driver can tell: {error}; pass device="
            ))),
        },
        Err(error) if error.code() != Some(CUDA_ERROR_INVALID_VALUE) => {
            Err(Error::from(error).into())
        }
        Ok(_) | Err(_) => Err(refused(
            "which is not memory that the driver knows".to_owned(),
        )),
    }
}

/// `x` as the library to ask for its stream.
fn library(x: &Bound<'_, PyAny>) -> Library {
    Library::Interface(Arc::new(PythonOwner::new(x.clone().unbind())))
}

/// The producer of `x`, which works on `then`.
fn produced(x: &Bound<'_, PyAny>, then: Stream) -> Producer {
    let library = library(x);
    stream::note(TENSORS, then.device(), Namer::of(&library));
    Producer { library, then }
}

/// The producer of `x`, an object on `device`, if it names a stream; exceptions it raises instead are ignored.
pub(crate) fn producer(x: &Bound<'_, PyAny>, device: DLDevice) -> PyResult<Option<Producer>> {
    Ok(named(x, device)?.map(|then| produced(x, then)))
}

/// `x` as the library to ask for its stream, and the handle of that, if it names one.
pub(crate) fn asked(
    x: &Bound<'_, PyAny>,
    device: Option<DLDevice>,
) -> PyResult<Option<(Library, i64)>> {
    let named = named(x, device.unwrap_or(FIRST))?;
    Ok(named.map(|stream| (library(x), stream.handle())))
}

/// The stream that `x`, on `device`, names, if any.
fn named(x: &Bound<'_, PyAny>, device: DLDevice) -> PyResult<Option<Stream>> {
    if !is_cuda(device) {
        return Ok(None);
    }
    // PyO3 must count the attachment where an exception is dropped.
    Python::attach(|py| match stream::interface::stream(x, device) {
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        named => named,
    })
}
