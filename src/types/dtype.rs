//! Data types: the accepted ones, their names, and `dlx.DType`.

#![forbid(unsafe_code)]

mod object;

use std::fmt;
use std::str::FromStr;

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::PyBool;

pub(crate) use object::{DType, numpy_dtype};

use crate::abi::*;
use crate::types::error::Error;

/// `uint8`, the dtype of raw bytes.
pub(crate) const BYTE: DLDataType = scalar(kDLUInt, 8);

/// How Python's protocols spell native byte order.
pub(crate) const NATIVE: u8 = if cfg!(target_endian = "little") {
    b'<'
} else {
    b'>'
};

/// A type of one lane.
pub(crate) const fn scalar(code: DLDataTypeCode, bits: u8) -> DLDataType {
    let lanes = 1;
    DLDataType { code, bits, lanes }
}

/// Each code's name and widths. A dtype's name includes the width unless the code has only one.
const CODES: [(DLDataTypeCode, &str, &[u8]); 19] = [
    (kDLInt, "int", &[1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]),
    (kDLUInt, "uint", &[1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]),
    (kDLFloat, "float", &[16, 32, 64]),
    (kDLOpaqueHandle, "handle", &[8, 16, 32, 64]),
    (kDLBfloat, "bfloat16", &[16]),
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
    // Of a later DLPack, which defines the widths. Those without a name are called by their number.
    (DLDataTypeCode(18), "bcomplex", &[]),
];

/// Bits of one element, over all lanes.
#[inline(always)]
pub(crate) fn bits(dtype: DLDataType) -> u32 {
    u32::from(dtype.bits) * u32::from(dtype.lanes)
}

/// Whether only a later DLPack than 1.3 defines the code. dlx carries such elements and reads none: nobody has said how
/// they lie in memory.
#[inline(always)]
pub(crate) fn is_later(dtype: DLDataType) -> bool {
    dtype.code.0 > kDLFloat4_e2m1fn.0
}

/// Refuses to read elements, or to make memory for them, if [`is_later`] holds.
pub(crate) fn known(dtype: DLDataType) -> Result<(), Error> {
    if is_later(dtype) {
        return Err(Error::refused(format!(
            "dtype code {} ({dtype}) is not defined by DLPack 1.3, so dlx hands such elements on as they are: it neither \
             copies nor reads them",
            dtype.code.0
        )));
    }
    Ok(())
}

/// Refuses widths and lane counts that DLPack 1.3 does not define for the code, and those of later codes that no element
/// has (R31, R102 to R106).
#[inline(always)]
pub(crate) fn check(dtype: DLDataType) -> Result<(), Error> {
    let DLDataType { code, bits, lanes } = dtype;
    let widths = ACCEPTED.get(usize::from(code.0));
    match widths.and_then(|widths| widths.get(usize::from(bits))) {
        Some(true) if lanes != 0 => Ok(()),
        _ => check_later(dtype),
    }
}

/// As [`check`], of what DLPack 1.3 does not define.
#[cold]
#[inline(never)]
fn check_later(dtype: DLDataType) -> Result<(), Error> {
    let DLDataType { code, bits, lanes } = dtype;
    Err(match CODES.get(usize::from(code.0)) {
        Some((_, name, widths)) if !is_later(dtype) && !widths.contains(&bits) => {
            Error::refused(format!(
                "dtype code {} ({name}) has {bits} bits; expected one of {widths:?}",
                code.0
            ))
        }
        _ if bits == 0 => Error::refused(format!("dtype code {} has 0 bits", code.0)),
        _ if lanes == 0 => Error::refused("dtype has 0 lanes; expected at least 1"),
        _ => return Ok(()),
    })
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

/// Its usual name: `float32`, `bfloat16`, `float8_e4m3fn`, `float32x4`; its numbers if the code has no such width.
impl fmt::Display for DLDataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DLDataType { code, bits, lanes } = *self;
        match CODES.get(usize::from(code.0)) {
            Some((_, name, [only])) if *only == bits => f.write_str(name)?,
            Some((_, name, [] | [_, _, ..])) => write!(f, "{name}{bits}")?,
            _ => write!(f, "code{}_{bits}", code.0)?,
        }
        if lanes == 1 {
            Ok(())
        } else {
            write!(f, "x{lanes}")
        }
    }
}

/// Parses a dtype's name.
fn parse(text: &str) -> Option<DLDataType> {
    let named = CODES
        .iter()
        .find_map(|&(code, name, widths)| of_code(code, widths, text.strip_prefix(name)?));
    named.or_else(|| {
        let (code, rest) = text.strip_prefix("code")?.split_once('_')?;
        let code = canonical(code).filter(|&code| usize::from(code) >= CODES.len())?;
        of_code(DLDataTypeCode(code), &[], rest)
    })
}

/// The dtype of a code whose name ends with `rest`: the width, unless the code has only one, and the lanes.
fn of_code(code: DLDataTypeCode, widths: &[u8], rest: &str) -> Option<DLDataType> {
    let (width, lanes) = match rest.split_once('x') {
        Some((width, lanes)) => (width, canonical(lanes).filter(|&lanes| lanes > 1)?),
        None => (rest, 1),
    };
    let bits = match widths {
        [bits] => width.is_empty().then_some(*bits)?,
        _ => canonical(width)?,
    };
    let dtype = DLDataType { code, bits, lanes };
    check(dtype).is_ok().then_some(dtype)
}

/// Parses an integer in canonical form: no sign, no leading zeros.
pub(crate) fn canonical<T: FromStr>(text: &str) -> Option<T> {
    let is_canonical = text == "0" || matches!(text.as_bytes(), [b'1'..=b'9', ..]);
    text.parse().ok().filter(|_| is_canonical)
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
    fn a_width_that_the_code_does_not_have_is_not_hidden() {
        let dtype = scalar(kDLBfloat, 8);
        assert_eq!(dtype.to_string(), "code4_8");
        assert_eq!(parse("code4_8"), None);
    }

    #[test]
    fn every_name_parses_back_to_its_dtype() {
        for (code, _, widths) in CODES {
            for &bits in widths {
                for lanes in [1, 2, 4] {
                    let dtype = DLDataType { code, bits, lanes };
                    assert_eq!(parse(&dtype.to_string()), Some(dtype));
                }
            }
        }
    }
}
