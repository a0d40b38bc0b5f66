//! `dlx.DType`.

#![forbid(unsafe_code)]

use std::borrow::Cow;

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use super::{bits, check, equality, parse, scalar};
use crate::abi::*;
use crate::cpython::lookup::lacks;
use crate::cpython::once::intern;
use crate::types::error::{bad_integers, caused};

/// The type of one element: a DLPack code, the bits of a lane, and the lanes of an element.
///
/// Takes a name (``"float32"``, ``"bfloat16"``, ``"float8_e4m3fn"``, ``"float32x4"``), a triple ``(code, bits, lanes)``,
/// an object with ``__dlpack_data_type__``, or the dtype object of NumPy, ml_dtypes, torch, MLX, Paddle, TensorFlow or
/// array-api-strict; where NumPy is installed also what it takes for one of these (``float``, ``"f4"``). Equal to these
/// objects and to its name. It hashes as the name, so a dict finds it by the name and not by those objects. Codes above
/// 17, of a later DLPack, have names such as ``"bcomplex32"`` and ``"code40_16"``: dlx hands their elements on and reads
/// none. Source: ``DLDataType`` in dlpack.h 1.3.
///
///     >>> dtype = dlx.DType("bfloat16")
///     >>> dtype.bits, dtype == "bfloat16"
///     (16, True)
#[pyclass(frozen, module = "dlx", str = "{0}")]
pub struct DType(pub(crate) DLDataType);

impl DType {
    /// The dtype given by `spec`: anything that `DType(...)` accepts.
    pub(crate) fn of(spec: &Bound<'_, PyAny>) -> PyResult<DLDataType> {
        if let Some(dtype) = literal(spec) {
            return Ok(dtype);
        }
        if let Ok(dtype) = spec.cast::<Self>() {
            return Ok(dtype.get().0);
        }
        if let Ok(triple) = spec.cast::<PyTuple>() {
            return of_triple(triple);
        }
        if let Some(dtype) = said(spec)? {
            return Ok(dtype);
        }
        // Scalar types have the name as their `__name__` (`np.float32`, `warp.float32`), dtype objects print it
        // (`np.dtype("float32")`, `torch.float32`); NumPy prints a non-native byte order differently.
        let text = match (spec.cast::<PyType>(), spec.cast::<PyString>()) {
            (Ok(class), _) => class.name()?,
            // A subclass may print otherwise.
            (_, Ok(text)) => text.clone(),
            _ => spec.str()?,
        };
        let text = match text.to_cow()? {
            printed if printed == "paddle.bfloat16" => of_paddle(spec, printed)?,
            printed if printed == "torch.float4_e2m1fn_x2" => "float4_e2m1fnx2".into(),
            printed => printed,
        };
        parse(bare(&text)).or_else(|| of_numpy(spec)).ok_or_else(|| {
            let message = format!(
                "{text:?} is not a dtype of DLPack; expected a name such as 'float32', 'bfloat16' or \
                 'float8_e4m3fn', a triple (code, bits, lanes), or a dtype of NumPy, torch, MLX, Paddle or TensorFlow"
            );
            match spec.is_instance_of::<PyString>() {
                true => PyValueError::new_err(message),
                false => PyTypeError::new_err(message),
            }
        })
    }
}

#[pymethods]
impl DType {
    #[new]
    #[pyo3(signature = (spec, /))]
    fn new(spec: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of(spec).map(Self)
    }

    /// ``DLDataTypeCode``: 0 int, 1 uint, 2 float, and so on to 17; above, one of a later DLPack.
    #[getter]
    fn code(&self) -> u8 {
        self.0.code.0
    }

    /// Bits of one lane; for complex the whole number.
    ///
    /// Source: dlpack.h.
    #[getter]
    fn bits(&self) -> u8 {
        self.0.bits
    }

    /// Values in one element; 1 unless the type is a vector.
    #[getter]
    fn lanes(&self) -> u16 {
        self.0.lanes
    }

    /// Bytes of one element, rounded up where it is smaller than a byte.
    #[getter]
    fn itemsize(&self) -> u32 {
        bits(self.0).div_ceil(8)
    }

    /// The name, as ``str()`` gives it.
    #[getter]
    fn name(&self) -> String {
        self.0.to_string()
    }

    /// The dtype of NumPy, or of ml_dtypes: ``np.dtype(t.dtype)`` asks for it, from NumPy 2.4 on.
    ///
    /// Raises ``AttributeError`` where neither has one.
    #[getter]
    fn __numpy_dtype__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy_dtype(py, self.0)
    }

    /// ``(code, bits, lanes)``, as proposed for the array API.
    fn __dlpack_data_type__(&self) -> (u8, u8, u16) {
        (self.0.code.0, self.0.bits, self.0.lanes)
    }

    fn __repr__(&self) -> String {
        format!("dlx.DType('{}')", self.0)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.0.to_string()).hash()
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let equal = if let Ok(other) = other.cast::<Self>() {
            Some(self.0 == other.get().0)
        } else if let Ok(text) = other.cast::<PyString>() {
            Some(text.to_cow()? == self.0.to_string())
        } else if is_named_dtype(other)? {
            Self::of(other).ok().map(|other| self.0 == other)
        } else {
            None
        };
        Ok(equality(other.py(), equal, op))
    }

    /// For `pickle`: the name.
    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyType>, (String,)) {
        (slf.get_type().unbind(), (slf.get().0.to_string(),))
    }
}

/// The dtype object of NumPy, or of ml_dtypes.
///
/// # Errors
///
/// `AttributeError` where neither has one.
pub(crate) fn numpy_dtype(py: Python<'_>, dtype: DLDataType) -> PyResult<Bound<'_, PyAny>> {
    let name = dtype.to_string();
    let named = || py.import("numpy")?.call_method1("dtype", (&name,));
    // With ml_dtypes, NumPy knows more names.
    let found = named().or_else(|_| py.import("ml_dtypes").and_then(|_| named()));
    let absent = || PyAttributeError::new_err(format!("NumPy has no dtype {name}"));
    found.map_err(|error| caused(py, absent(), error))
}

/// The dtype of a literal, for common names: Python interns those.
#[inline(always)]
fn literal(spec: &Bound<'_, PyAny>) -> Option<DLDataType> {
    let py = spec.py();
    match () {
        () if spec.is(intern!(py, "float32")) => Some(scalar(kDLFloat, 32)),
        () if spec.is(intern!(py, "bfloat16")) => Some(scalar(kDLBfloat, 16)),
        () if spec.is(intern!(py, "float16")) => Some(scalar(kDLFloat, 16)),
        () => None,
    }
}

/// Strips the decoration that libraries print around the name of a dtype.
fn bare(text: &str) -> &str {
    let of_tensorflow = || text.strip_prefix("<dtype: '")?.strip_suffix("'>");
    ["torch.", "mlx.core.", "paddle.", "array_api_strict."]
        .iter()
        .find_map(|module| text.strip_prefix(module))
        .or_else(of_tensorflow)
        .unwrap_or(text)
}

/// What Paddle's dtype is that prints as bfloat16: its uint16 does, too, and only its name tells.
#[cold]
fn of_paddle<'a>(spec: &Bound<'_, PyAny>, printed: Cow<'a, str>) -> PyResult<Cow<'a, str>> {
    let name = spec.getattr_opt("name")?;
    let is_uint16 = name.map_or(Ok(false), |name| name.eq("UINT16"))?;
    Ok(if is_uint16 { "uint16".into() } else { printed })
}

/// The dtype that `spec` says it is by `__dlpack_data_type__`, proposed for the array API; `None` without one.
fn said(spec: &Bound<'_, PyAny>) -> PyResult<Option<DLDataType>> {
    let method = intern!(spec.py(), "__dlpack_data_type__");
    if lacks(&spec.get_type(), &[method]) {
        return Ok(None);
    }
    let method = spec.getattr_opt(method)?;
    (method.map(|method| of_triple(method.call0()?.cast()?))).transpose()
}

/// The dtype of a triple `(code, bits, lanes)`.
fn of_triple(triple: &Bound<'_, PyTuple>) -> PyResult<DLDataType> {
    let (code, bits, lanes) = triple.extract().map_err(|error: PyErr| {
        let message = format!("{triple} is not a dtype; expected a triple (code, bits, lanes)");
        bad_integers(triple.py(), &error, message)
    })?;
    let code = DLDataTypeCode(code);
    let dtype = DLDataType { code, bits, lanes };
    check(dtype).map_err(|error| PyValueError::new_err(error.message()))?;
    Ok(dtype)
}

/// The dtype that NumPy takes a type or a string for: `float`, `"f4"`, `"half"`. It prints another byte order, too.
#[cold]
fn of_numpy(spec: &Bound<'_, PyAny>) -> Option<DLDataType> {
    let is_spelling = spec.is_instance_of::<PyString>() || spec.is_instance_of::<PyType>();
    let numpy = spec.py().import("numpy").ok().filter(|_| is_spelling)?;
    let dtype = numpy.call_method1("dtype", (spec,)).ok()?;
    parse(&dtype.str().ok()?.to_cow().ok()?)
}

/// Whether this is a scalar type, or a dtype by the name of its class: what else prints like one is none.
fn is_named_dtype(spec: &Bound<'_, PyAny>) -> PyResult<bool> {
    if spec.is_instance_of::<PyType>() {
        return Ok(true);
    }
    let class = spec.get_type();
    let name = class.name()?;
    let name = name.to_cow()?.to_lowercase();
    Ok(name.contains("dtype") || name.contains("datatype"))
}
