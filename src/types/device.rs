//! Devices: the known types, their names and their memory.

#![forbid(unsafe_code)]

mod object;

use std::fmt;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

pub(crate) use object::Device;

use crate::abi::*;
use crate::cpython::modules::python;
use crate::cpython::once::{Once, intern};
use crate::types::dtype::canonical;
use crate::types::error::Error;

/// What reads the devices of other libraries.
const DEVICES: &str = "dlx._libraries.devices";

/// A device type; its name as in a device's string form, in upper case the member of `dlx.DeviceType`; and whether `data` is
/// an address that a byte offset can be added to, rather than a buffer handle.
type Kind = (DLDeviceType, &'static str, bool);

const KINDS: [Kind; 19] = [
    (kDLCPU, "cpu", true),
    (kDLCUDA, "cuda", true),
    (kDLCUDAHost, "cuda_host", true),
    (kDLOpenCL, "opencl", false),
    (kDLVulkan, "vulkan", false),
    (kDLMetal, "metal", false),
    (kDLVPI, "vpi", false),
    (kDLROCM, "rocm", true),
    (kDLROCMHost, "rocm_host", true),
    (kDLExtDev, "ext_dev", false),
    (kDLCUDAManaged, "cuda_managed", true),
    (kDLOneAPI, "oneapi", true),
    (kDLWebGPU, "webgpu", false),
    (kDLHexagon, "hexagon", false),
    (kDLMAIA, "maia", false),
    (kDLTrn, "trn", false),
    // Of a later DLPack.
    (DLDeviceType(19), "tpu", false),
    (DLDeviceType(20), "tpu_host", false),
    (DLDeviceType(21), "ascend", false),
];

/// The CPU.
pub(crate) const CPU: DLDevice = of(kDLCPU, 0);

/// The device of this type and id.
pub(crate) const fn of(device_type: DLDeviceType, device_id: i32) -> DLDevice {
    DLDevice {
        device_type,
        device_id,
    }
}

fn kind_named(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|(_, own, _)| *own == name)
}

fn kind_of(device_type: DLDeviceType) -> Option<&'static Kind> {
    KINDS.iter().find(|(own, ..)| *own == device_type)
}

/// The same device with the id that `dlpack.h` prescribes: there is one CPU (R66).
pub(crate) fn normal(device: DLDevice) -> DLDevice {
    match device.device_type {
        kDLCPU => CPU,
        _ => device,
    }
}

/// Whether only a later DLPack than 1.3 defines the device type. dlx carries tensors that are there: nobody has said
/// whether `data` is an address, or what orders the work on it.
#[inline(always)]
pub(crate) fn is_later(device: DLDevice) -> bool {
    device.device_type.0 > kDLTrn.0
}

/// Refuses device types that no DLPack defines, and negative ids (R31).
#[inline(always)]
pub(crate) fn check(device: DLDevice) -> Result<(), Error> {
    let is_known = kind_of(device.device_type).is_some() || is_later(device);
    if is_known && device.device_id >= 0 {
        return Ok(());
    }
    Err(Error::refused_apart(move || match device.device_id {
        id @ ..0 => format!("device id {id} is negative; expected 0 or above"),
        _ => format!(
            "device type {} is not defined by DLPack 1.3",
            device.device_type.0
        ),
    }))
}

/// The device of a consumer's `dl_device`, for a tensor on `here`.
///
/// # Errors
///
/// `BufferError` if the pair is not a device (R52).
pub(crate) fn of_pair(pair: (i64, i64), here: DLDevice) -> Result<DLDevice, Error> {
    let [kind, id] = [pair.0, pair.1].map(|number| i32::try_from(number).ok());
    match kind.zip(id).map(|(kind, id)| of(DLDeviceType(kind), id)) {
        // Naming the tensor's own device is always accepted.
        Some(device) if device == here || check(device).is_ok() => Ok(device),
        _ => Err(Error::refused(format!(
            "dl_device is {pair:?}, which is not a device; the tensor is on {here}"
        ))),
    }
}

/// Whether `data` is an address that a byte offset can be added to.
pub(crate) fn has_addresses(device: DLDevice) -> bool {
    device.device_type == kDLCPU
        || kind_of(device.device_type).is_some_and(|(.., address)| *address)
}

/// Whether the CPU can read the memory at its address: host memory, pinned or not.
pub(crate) fn is_readable(device: DLDevice) -> bool {
    matches!(device.device_type, kDLCPU | kDLCUDAHost | kDLROCMHost)
}

/// Whether kernels of every GPU can use the memory: pinned host memory, and managed memory.
pub(crate) fn is_of_any(device: DLDevice) -> bool {
    matches!(
        device.device_type,
        kDLCUDAHost | kDLROCMHost | kDLCUDAManaged
    )
}

/// Its string form: `cpu`, `cuda:0`; `40:0` for a type without a name.
impl fmt::Display for DLDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.device_id;
        match kind_of(self.device_type) {
            _ if *self == CPU => f.write_str("cpu"),
            Some((_, name, _)) => write!(f, "{name}:{id}"),
            None => write!(f, "{}:{id}", self.device_type.0),
        }
    }
}

/// Parses a device's string form; the id is optional.
fn parse(text: &str) -> Option<DLDevice> {
    let (name, id) = text.split_once(':').unwrap_or((text, "0"));
    let number = || canonical(name).map(DLDeviceType);
    let device_type = match kind_named(name) {
        Some((device_type, ..)) => *device_type,
        None => number().filter(|&number| kind_of(number).is_none())?,
    };
    let device = of(device_type, canonical(id)?);
    check(device).is_ok().then_some(device)
}

/// The device that `spec` usually is: the interned name of the CPU, or None; `None` outside for anything else.
#[inline(always)]
pub(crate) fn usual(spec: &Bound<'_, PyAny>) -> Option<Option<DLDevice>> {
    if spec.is(intern!(spec.py(), "cpu")) {
        Some(Some(CPU))
    } else {
        spec.is_none().then_some(None)
    }
}

/// The member of `dlx.DeviceType`.
fn device_type_member<'py>(
    py: Python<'py>,
    device_type: DLDeviceType,
) -> PyResult<Bound<'py, PyAny>> {
    static ENUM: Once<Py<PyType>> = Once::new();
    let class = ENUM.import(py, "dlx._device_type", "DeviceType")?;
    class.call1((device_type.0,))
}

/// `(DeviceType, id)`, the result of `__dlpack_device__` (R64).
pub(crate) fn to_tuple<'py>(py: Python<'py>, device: DLDevice) -> PyResult<Bound<'py, PyTuple>> {
    static CPU_TUPLE: Once<Py<PyTuple>> = Once::new();
    let make = || {
        let member = device_type_member(py, device.device_type)?;
        Ok::<_, PyErr>((member, device.device_id).into_pyobject(py)?.unbind())
    };
    if device == CPU {
        Ok(CPU_TUPLE.get_or_try_init(py, make)?.bind(py).clone())
    } else {
        Ok(make()?.into_bound(py))
    }
}

fn names() -> Vec<&'static str> {
    KINDS.iter().map(|(_, name, _)| *name).collect()
}

/// What to pass in place of `spec`, as the end of a message; empty if it names nothing that dlx knows.
#[cold]
fn hint(spec: &Bound<'_, PyAny>, index: bool) -> String {
    let ask = || {
        let said = (spec.str()?, names(), index);
        python(spec.py(), DEVICES, "hint", said)?.extract::<String>()
    };
    ask().unwrap_or_default()
}

/// The device that an object of another library names; `None` if it is none.
///
/// # Errors
///
/// `ValueError` for a device that DLPack lacks, and what the object raises.
#[cold]
fn foreign(spec: &Bound<'_, PyAny>) -> PyResult<Option<DLDevice>> {
    let pair = python(spec.py(), DEVICES, "pair", (spec, names()))?;
    let pair: Option<(i32, i32)> = pair.extract()?;
    pair.map(|(kind, id)| checked(kind, id)).transpose()
}

/// The device of this type and id, or an argument error.
fn checked(device_type: i32, device_id: i32) -> PyResult<DLDevice> {
    let device = of(DLDeviceType(device_type), device_id);
    check(device).map_err(|error| PyValueError::new_err(error.message()))?;
    Ok(device)
}
