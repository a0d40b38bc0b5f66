//! `dlx.Device`.

#![forbid(unsafe_code)]

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple, PyType};

use super::{CPU, checked, device_type_member, foreign, hint, kind_named, names, parse, to_tuple};
use crate::abi::*;
use crate::types::dtype::equality;
use crate::types::error::bad_integers;

/// Where memory lives: a device type and an id.
///
/// Takes a name (``"cpu"``, ``"cuda:0"``), a type and an id, or a pair of both, ``("cuda", 0)`` too, an object with
/// ``__dlpack_device__`` that is no tensor, or a device of torch (with an index), JAX, CuPy or tvm-ffi. Equal to those
/// devices and to its name, as ``str()`` gives it, and hashes as that; ``(type, id)`` is ``device.type, device.id``.
/// Types above 18, of a later DLPack, are ``"tpu"``, ``"tpu_host"``, ``"ascend"``, and numbers as in ``"40:0"``: dlx
/// hands their tensors on, and neither copies nor orders. Source: ``DLDevice`` in dlpack.h 1.3.
///
///     >>> device = dlx.Device("cuda:1")
///     >>> device.id, device == "cuda:1"
///     (1, True)
#[pyclass(frozen, module = "dlx", str = "{0}")]
pub struct Device(pub(crate) DLDevice);

impl Device {
    /// The device given by `spec`: a `Device`, a name, or a pair `(type, id)` whose type may be a name.
    pub(crate) fn of(spec: &Bound<'_, PyAny>) -> PyResult<DLDevice> {
        if let Ok(device) = spec.cast::<Self>() {
            Ok(device.get().0)
        } else if let Ok(text) = spec.cast::<PyString>() {
            let text = text.to_cow()?;
            parse(&text).ok_or_else(|| no_name(spec, "device", true))
        } else if let Ok(pair) = spec.cast::<PyTuple>() {
            let refused = |error: PyErr| {
                let message = format!("{pair} is not a device; expected a pair (type, id)");
                bad_integers(spec.py(), &error, message)
            };
            let (kind, id): (Bound<'_, PyAny>, i32) = pair.extract().map_err(refused)?;
            let Ok(name) = kind.cast::<PyString>() else {
                return checked(kind.extract().map_err(refused)?, id);
            };
            let name = name.to_cow()?;
            let (named, ..) =
                kind_named(&name).ok_or_else(|| no_name(&kind, "device type", false))?;
            checked(named.0, id)
        } else if let Some(device) = foreign(spec)? {
            Ok(device)
        } else {
            Err(PyTypeError::new_err(format!(
                "device must be a dlx.Device, a name such as 'cuda:0', a pair (type, id) or a device of torch, JAX, \
                 CuPy or tvm-ffi, not {}{}",
                spec.get_type().name()?,
                hint(spec, true)
            )))
        }
    }
}

/// The error for `name`, which is not that of a device or device type.
#[cold]
fn no_name(name: &Bound<'_, PyAny>, what: &str, index: bool) -> PyErr {
    let expected = names().join(", ");
    let ids = ["", ", with an id as in 'cuda:0'"][usize::from(index)];
    let hint = hint(name, index);
    PyValueError::new_err(format!(
        "'{name}' is not a {what}{hint}; expected one of {expected}{ids}"
    ))
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (spec, id=None, /))]
    fn new(spec: &Bound<'_, PyAny>, id: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let id = match id {
            Some(id) => id.clone(),
            None if spec.is_instance_of::<PyInt>() => 0_i32.into_pyobject(spec.py())?.into_any(),
            None => return Self::of(spec).map(Self),
        };
        Self::of(PyTuple::new(spec.py(), [spec.clone(), id])?.as_any()).map(Self)
    }

    /// The kind of memory, a `DeviceType`: an integer with a ``name``, ``"CPU"`` or ``"CUDA"``.
    #[getter]
    fn r#type<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        device_type_member(py, self.0.device_type)
    }

    /// Which device of that kind.
    #[getter]
    fn id(&self) -> i32 {
        self.0.device_id
    }

    /// ``(type, id)``, as proposed for the array API.
    fn __dlpack_device__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        to_tuple(py, self.0)
    }

    /// The type of the CPU, which is all of it: for ``tvm_ffi.device``, which takes a name or an int.
    fn __int__(&self) -> PyResult<i32> {
        if self.0 == CPU {
            return Ok(kDLCPU.0);
        }
        Err(PyTypeError::new_err(format!(
            "{} is no int, which would lose its id; pass str(device) or device.id",
            self.0
        )))
    }

    fn __repr__(&self) -> String {
        format!("dlx.Device('{}')", self.0)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.0.to_string()).hash()
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let equal = if let Ok(other) = other.cast::<Self>() {
            Some(self.0 == other.get().0)
        } else if let Ok(text) = other.cast::<PyString>() {
            Some(text.to_cow()? == self.0.to_string())
        } else {
            // One that is none of dlx's is not equal.
            foreign(other).ok().flatten().map(|other| self.0 == other)
        };
        Ok(equality(other.py(), equal, op))
    }

    /// For `pickle`: the type and the id.
    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyType>, (i32, i32)) {
        let device = slf.get().0;
        let id = device.device_id;
        (slf.get_type().unbind(), (device.device_type.0, id))
    }
}
