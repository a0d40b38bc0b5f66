//! Data types: the accepted ones, their names, and `dlx.DType`.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString, PyTuple, PyType};

use crate::abi::*;
use crate::types::error::{Error, bad_integers};

/// `uint8`, the dtype of raw bytes.
pub(crate) const BYTE: DLDataType = scalar(kDLUInt, 8);

/// A type of one lane.
pub(crate) const fn scalar(code: DLDataTypeCode, bits: u8) -> DLDataType {
    let lanes = 1;
    DLDataType { code, bits, lanes }
}

/// Each code's name and widths. A dtype's name includes the width unless the code has only one.
const CODES: [(DLDataTypeCode, &str, &[u8]); 18] = [
    (kDLInt, "int", &[1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]),
    (kDLUInt, "uint", &[1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]),
    (kDLFloat, "float", &[16, 32, 64]),
    (kDLOpaqueHandle, "handle", &[8, 16, 32, 64]),
    (kDLBfloat, "bfloat", &[16]),
    (kDLComplex, "complex", &[32, 64, 128]),
    (kDLBool, "bool", &[8]),
    (kDLFloat8_e3m4, "float8_e3m4", &[8]),
    (kDLFloat8_e4m3, "float8_e4m3", &[8]),
    (kDLFloat8_e4m3b11fnuz, "float8_e4m3b11fnuz", &[8]),
    (kDLFloat8_e4m3fn, "float8_e4m3fn", &[8]),
    (kDLFloat8_e4m3fnuz, "float8_e4m3fnuz", &[8]),
    (kDLFloat8_e5m2, "float8_e5m2", &[8]),
    (kDLFloat8_e5m2fnuz, "float8_e5m2fnuz", &[8]),
    (kDLFloat8_e8m0fnu, "float8_e8m0fnu", &[8]),
    (kDLFloat6_e2m3fn, "float6_e2m3fn", &[6]),
    (kDLFloat6_e3m2fn, "float6_e3m2fn", &[6]),
    (kDLFloat4_e2m1fn, "float4_e2m1fn", &[4]),
];

/// Bits of one element, over all lanes.
#[inline(always)]
pub(crate) fn bits(dtype: DLDataType) -> u32 {
    u32::from(dtype.bits) * u32::from(dtype.lanes)
}

/// Refuses codes, widths and lane counts that DLPack 1.3 does not define (R31, R102 to R106).
#[inline(always)]
pub(crate) fn check(dtype: DLDataType) -> Result<(), Error> {
    let DLDataType { code, bits, lanes } = dtype;
    let widths = ACCEPTED.get(usize::from(code.0));
    match widths.and_then(|widths| widths.get(usize::from(bits))) {
        Some(true) if lanes != 0 => Ok(()),
        _ => Err(refused(dtype)),
    }
}

/// For each code and bit width, whether [`CODES`] has it.
static ACCEPTED: [[bool; 129]; CODES.len()] = {
    let mut accepted = [[false; 129]; CODES.len()];
    let mut code = 0;
    while code < CODES.len() {
        let widths = CODES[code].2;
        let mut index = 0;
        while index < widths.len() {
            accepted[code][widths[index] as usize] = true;
            index += 1;
        }
        code += 1;
    }
    accepted
};

#[cold]
#[inline(never)]
fn refused(DLDataType { code, bits, .. }: DLDataType) -> Error {
    let Some((_, name, widths)) = CODES.get(usize::from(code.0)) else {
        return Error::refused(format!(
            "dtype code {} is not defined by DLPack 1.3 (0 to 17)",
            code.0
        ));
    };
    if widths.contains(&bits) {
        Error::refused("dtype has 0 lanes; expected at least 1")
    } else {
        Error::refused(format!(
            "dtype code {} ({name}) has {bits} bits; expected one of {widths:?}",
            code.0
        ))
    }
}

/// The usual name: `float32`, `bfloat16`, `float8_e4m3fn`, `float32x4`.
pub(crate) fn name(dtype: DLDataType) -> impl fmt::Display {
    struct Name(DLDataType);
    impl fmt::Display for Name {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let DLDataType { code, bits, lanes } = self.0;
            match CODES.get(usize::from(code.0)) {
                Some((code, name, _)) if code.0 < kDLBool.0 => write!(f, "{name}{bits}")?,
                Some((_, name, _)) => f.write_str(name)?,
                None => write!(f, "code{}_{bits}", code.0)?,
            }
            if lanes == 1 {
                Ok(())
            } else {
                write!(f, "x{lanes}")
            }
        }
    }
    Name(dtype)
}

/// Parses a dtype's [`name`].
fn parse(text: &str) -> Option<DLDataType> {
    CODES.iter().find_map(|&(code, name, widths)| {
        let rest = text.strip_prefix(name)?;
        let (width, lanes) = match rest.split_once('x') {
            Some((width, lanes)) => (width, canonical(lanes).filter(|&lanes| lanes > 1)?),
            None => (rest, 1),
        };
        let bits = if code.0 < kDLBool.0 {
            canonical(width).filter(|bits| widths.contains(bits))?
        } else {
            *widths.first().filter(|_| width.is_empty())?
        };
        Some(DLDataType { code, bits, lanes })
    })
}

/// The dtype of a literal, for four common names: Python interns those.
#[inline(always)]
fn literal(spec: &Bound<'_, PyAny>) -> Option<DLDataType> {
    let py = spec.py();
    let (code, bits) = if spec.is(intern!(py, "float32")) {
        (kDLFloat, 32)
    } else if spec.is(intern!(py, "bfloat16")) {
        (kDLBfloat, 16)
    } else if spec.is(intern!(py, "float16")) {
        (kDLFloat, 16)
    } else if spec.is(intern!(py, "int64")) {
        (kDLInt, 64)
    } else {
        return None;
    };
    Some(scalar(code, bits))
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
    let is_uint16 = match spec.getattr_opt("name")? {
        Some(name) => name.eq("UINT16")?,
        None => false,
    };
    Ok(if is_uint16 { "uint16".into() } else { printed })
}

/// Parses an integer in canonical form: no sign, no leading zeros.
pub(crate) fn canonical<T: FromStr>(text: &str) -> Option<T> {
    let is_canonical = text == "0" || matches!(text.as_bytes(), [b'1'..=b'9', ..]);
    text.parse().ok().filter(|_| is_canonical)
}

/// The type of one element: a DLPack code, the bits of a lane, and the lanes of an element.
///
/// Takes a name (``"float32"``, ``"bfloat16"``, ``"float8_e4m3fn"``, ``"float32x4"``), a triple ``(code, bits, lanes)``,
/// or the dtype object of NumPy, ml_dtypes, torch, MLX, Paddle, TensorFlow or array-api-strict. Equal to these objects and
/// to its name, and hashes as that. Source: ``DLDataType`` in dlpack.h 1.3.
#[pyclass(frozen, module = "dlx")]
pub struct DType(pub(crate) DLDataType);

impl DType {
    /// The dtype given by `spec`: anything that `DType(...)` accepts.
    pub(crate) fn of(spec: &Bound<'_, PyAny>) -> PyResult<DLDataType> {
        if let Some(dtype) = literal(spec) {
            return Ok(dtype);
        }
        // The usual spelling needs none of what follows.
        if let Ok(text) = spec.cast_exact::<PyString>()
            && let Some(dtype) = parse(&text.to_cow()?)
        {
            return Ok(dtype);
        }
        if let Ok(dtype) = spec.cast::<Self>() {
            return Ok(dtype.get().0);
        }
        if let Ok(triple) = spec.cast::<PyTuple>() {
            let (code, bits, lanes) = triple.extract().map_err(|error: PyErr| {
                let message =
                    format!("{triple} is not a dtype; expected a triple (code, bits, lanes)");
                bad_integers(spec.py(), &error, message)
            })?;
            let code = DLDataTypeCode(code);
            let dtype = DLDataType { code, bits, lanes };
            check(dtype).map_err(|error| PyValueError::new_err(error.message()))?;
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
            printed => printed,
        };
        parse(bare(&text)).ok_or_else(|| {
            let message = format!(
                "{text:?} is not a dtype of DLPack; expected a name such as 'float32', 'bfloat16' or \
                 'float8_e4m3fn', a triple (code, bits, lanes), or a dtype of NumPy, torch, MLX, Paddle or TensorFlow"
            );
            if spec.is_instance_of::<PyString>() {
                PyValueError::new_err(message)
            } else {
                PyTypeError::new_err(message)
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

    /// ``DLDataTypeCode``: 0 int, 1 uint, 2 float, and so on to 17.
    #[getter]
    fn code(&self) -> u8 {
        self.0.code.0
    }

    /// Bits of one lane; for complex the whole number.
    ///
    /// Source: R104.
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
        self.__str__()
    }

    fn __str__(&self) -> String {
        name(self.0).to_string()
    }

    fn __repr__(&self) -> String {
        format!("dlx.DType('{}')", name(self.0))
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.__str__()).hash()
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let equal = if let Ok(other) = other.cast::<Self>() {
            Some(self.0 == other.get().0)
        } else if let Ok(text) = other.cast::<PyString>() {
            Some(text.to_cow()? == self.__str__())
        } else if is_named_dtype(other)? {
            Self::of(other).ok().map(|other| self.0 == other)
        } else {
            None
        };
        Ok(equality(other.py(), equal, op))
    }

    /// For `pickle`: the name.
    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyType>, (String,)) {
        (slf.get_type().unbind(), (slf.get().__str__(),))
    }
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

/// The result of `==` or `!=`; `NotImplemented` for orderings, and if equality is unknown.
pub(crate) fn equality(py: Python<'_>, equal: Option<bool>, op: CompareOp) -> Py<PyAny> {
    let answer = match (equal, op) {
        (Some(equal), CompareOp::Eq) => equal,
        (Some(equal), CompareOp::Ne) => !equal,
        _ => return py.NotImplemented(),
    };
    PyBool::new(py, answer).to_owned().into_any().unbind()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_at_their_own_index() {
        for (index, (code, ..)) in CODES.iter().enumerate() {
            assert_eq!(usize::from(code.0), index);
        }
    }

    #[test]
    fn every_name_parses_back_to_its_dtype() {
        for (code, _, widths) in CODES {
            for &bits in widths {
                for lanes in [1, 2, 4] {
                    let dtype = DLDataType { code, bits, lanes };
                    assert_eq!(parse(&name(dtype).to_string()), Some(dtype));
                }
            }
        }
    }
}
