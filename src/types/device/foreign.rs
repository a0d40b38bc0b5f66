//! The devices of other libraries.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{CPU, checked, hint};
use crate::abi::*;
use crate::cpython::lookup::lacks;
use crate::cpython::modules::{loaded, loaded_class};

/// The device that an object of torch, JAX, CuPy or tvm-ffi stands for, or any other that says so; `None` for the rest.
///
/// # Errors
///
/// `ValueError` for torch's current device of a kind, which has no index, and for kinds that DLPack lacks.
pub(super) fn foreign(spec: &Bound<'_, PyAny>) -> PyResult<Option<DLDevice>> {
    let py = spec.py();
    let is = |module: &str, name: &str| {
        let class = loaded_class(&PyString::new(py, module), &PyString::new(py, name))?;
        Ok::<_, PyErr>(class.is_some_and(|class| spec.is_instance(&class).unwrap_or(false)))
    };
    if is("torch", "device")? {
        let index: Option<i32> = spec.getattr("index")?.extract()?;
        let kind: String = spec.getattr("type")?.extract()?;
        return match (kind.as_str(), index) {
            ("cpu", _) => Ok(Some(CPU)),
            ("cuda", Some(index)) if is_rocm(py)? => checked(kDLROCM.0, index).map(Some),
            ("cuda", Some(index)) => checked(kDLCUDA.0, index).map(Some),
            _ => Err(PyValueError::new_err(format!(
                "{} names no single device that DLPack has; expected torch's cpu, or its cuda with an index{}",
                spec.repr()?,
                hint(spec, true)
            ))),
        };
    }
    if is("jax", "Device")? {
        let platform: String = spec.getattr("platform")?.extract()?;
        let client = spec.getattr("client")?;
        if platform == "cpu" {
            let count: usize = client.call_method0("device_count")?.extract()?;
            return match count {
                1 => Ok(Some(CPU)),
                _ => Err(PyValueError::new_err(format!(
                    "{} is one of {count} devices that JAX makes of the CPU, which DLPack has once; pass device='cpu', \
                     and call jax.device_put(result, device)",
                    spec.repr()?
                ))),
            };
        }
        let index = spec.getattr("local_hardware_id")?.extract()?;
        let version: String = client.getattr("platform_version")?.extract()?;
        return match platform.as_str() {
            "gpu" | "cuda" | "rocm" if version.to_lowercase().contains("rocm") => {
                checked(kDLROCM.0, index).map(Some)
            }
            "gpu" | "cuda" => checked(kDLCUDA.0, index).map(Some),
            _ => Err(PyValueError::new_err(format!(
                "{} is no device that DLPack has; expected one of the platforms cpu and gpu{}",
                spec.repr()?,
                hint(spec, true)
            ))),
        };
    }
    if is("cupy.cuda", "Device")? {
        return checked(kDLCUDA.0, spec.getattr("id")?.extract()?).map(Some);
    }
    if is("tvm_ffi", "Device")? {
        let device_type: i32 = spec.call_method0("dlpack_device_type")?.extract()?;
        return checked(device_type, spec.getattr("index")?.extract()?).map(Some);
    }
    said(spec)
}

/// The device that `spec` says it is by `__dlpack_device__`, as proposed for the array API; `None` without one, and for a
/// tensor, which has `__dlpack__` as well.
fn said(spec: &Bound<'_, PyAny>) -> PyResult<Option<DLDevice>> {
    let (class, py) = (spec.get_type(), spec.py());
    let method = intern!(py, "__dlpack_device__");
    if lacks(&class, &[method]) || !lacks(&class, &[intern!(py, "__dlpack__")]) {
        return Ok(None);
    }
    let Some(method) = spec.getattr_opt(method)? else {
        return Ok(None);
    };
    let (device_type, device_id): (i32, i32) = method.call0()?.extract()?;
    checked(device_type, device_id).map(Some)
}

/// Whether torch, which is loaded, was built for ROCm, whose devices it calls cuda.
fn is_rocm(py: Python<'_>) -> PyResult<bool> {
    let torch = loaded(&PyString::new(py, "torch"))?;
    let hip = torch.map(|torch| torch.getattr("version")?.getattr_opt("hip"));
    Ok(hip.transpose()?.flatten().is_some_and(|hip| !hip.is_none()))
}
