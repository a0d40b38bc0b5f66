//! The dtypes of NumPy by number, and those of ml_dtypes by name.

#![forbid(unsafe_code)]

use std::ffi::{c_int, c_long, c_longlong};
use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::abi::*;
use crate::cpython::once::intern;
use crate::types::dtype::{self, DType, NATIVE, scalar};
use crate::types::error::Error;

/// NumPy's own dtypes by `type_num`, and the names of those that DLPack lacks.
const BUILTIN: [Result<DLDataType, &str>; 24] = [
    Ok(scalar(kDLBool, 8)),
    Ok(scalar(kDLInt, 8)),
    Ok(scalar(kDLUInt, 8)),
    Ok(scalar(kDLInt, 16)),
    Ok(scalar(kDLUInt, 16)),
    Ok(scalar(kDLInt, 32)),
    Ok(scalar(kDLUInt, 32)),
    Ok(scalar(kDLInt, c_long::BITS as u8)),
    Ok(scalar(kDLUInt, c_long::BITS as u8)),
    Ok(scalar(kDLInt, c_longlong::BITS as u8)),
    Ok(scalar(kDLUInt, c_longlong::BITS as u8)),
    Ok(scalar(kDLFloat, 32)),
    Ok(scalar(kDLFloat, 64)),
    Err("longdouble"),
    Ok(scalar(kDLComplex, 64)),
    Ok(scalar(kDLComplex, 128)),
    Err("clongdouble"),
    Err("object"),
    Err("bytes"),
    Err("str"),
    Err("void"),
    Err("datetime64"),
    Err("timedelta64"),
    Ok(scalar(kDLFloat, 16)),
];

/// First number of the dtypes that packages register, in order of registration and for the life of the process.
const NPY_USERDEF: c_int = 256;

/// `NPY_OBJECT` to `NPY_TIMEDELTA`, and `NPY_VSTRING`.
pub(super) fn is_no_number(type_num: c_int) -> bool {
    matches!(type_num, 17..=22 | 2056)
}

/// Whether an array is in native byte order, if order applies.
fn is_native(byteorder: u8) -> bool {
    matches!(byteorder, b'=' | b'|' | NATIVE)
}

/// The dtype of an array by the `type_num` and `byteorder` of its descriptor.
pub(super) fn of(
    descr: Borrowed<'_, '_, PyAny>,
    type_num: c_int,
    byteorder: u8,
) -> PyResult<DLDataType> {
    let number = usize::try_from(type_num).ok();
    let dtype = match number.and_then(|number| BUILTIN.get(number)) {
        Some(&Ok(dtype)) => dtype,
        Some(&Err(name)) => return Err(unknown(name)),
        None => registered(&descr.to_owned(), type_num)?,
    };
    if !is_native(byteorder) {
        let message = format!(
            "the NumPy array has elements of type {dtype} in byte order '{}'; expected native byte order; \
             pass x.astype(x.dtype.newbyteorder('='))",
            char::from(byteorder)
        );
        return Err(Error::refused(message).into());
    }
    Ok(dtype)
}

/// The same for NumPy's own dtypes in native byte order, `None` for any other.
#[inline(always)]
pub(super) fn fast(type_num: c_int, byteorder: u8) -> Option<DLDataType> {
    let known = BUILTIN.get(usize::try_from(type_num).ok()?)?;
    known.ok().filter(|_| is_native(byteorder))
}

/// The `type_num` of NumPy's own dtype for these elements.
pub(super) fn number(dtype: DLDataType) -> Option<c_int> {
    let DLDataType { code, bits, lanes } = dtype;
    let of_code = NUMBERS.get(usize::from(code.0)).filter(|_| lanes == 1)?;
    let number = of_code.get(bits.trailing_zeros() as usize)?;
    number.filter(|_| bits.is_power_of_two())
}

/// Those numbers by code and log2 of the bits; the first where C has two names for a type.
const NUMBERS: [[Option<c_int>; 8]; 7] = {
    let mut numbers = [[None; 8]; 7];
    let mut number = BUILTIN.len();
    while number > 0 {
        number -= 1;
        if let Ok(DLDataType { code, bits, .. }) = BUILTIN[number] {
            numbers[code.0 as usize][bits.trailing_zeros() as usize] = Some(number as c_int);
        }
    }
    numbers
};

/// A dtype of ml_dtypes, looked up by name once and by number from then on.
fn registered(descr: &Bound<'_, PyAny>, type_num: c_int) -> PyResult<DLDataType> {
    static KNOWN: [OnceLock<DLDataType>; 64] = [const { OnceLock::new() }; 64];
    let slot = type_num.checked_sub(NPY_USERDEF);
    let slot = slot.and_then(|index| KNOWN.get(usize::try_from(index).ok()?));
    if let Some(&dtype) = slot.and_then(OnceLock::get) {
        return Ok(dtype);
    }
    // PyO3 drops references below, so it must count the attachment.
    let found = Python::try_attach(|py| {
        let module = descr
            .getattr(intern!(py, "type"))?
            .getattr(intern!(py, "__module__"))?;
        let item: u32 = descr.getattr(intern!(py, "itemsize"))?.extract()?;
        match DType::of(descr) {
            Ok(dtype) if module.eq("ml_dtypes")? && item == dtype::bits(dtype).div_ceil(8) => {
                Ok(dtype)
            }
            _ => Err(unknown(&descr.str()?.to_string())),
        }
    });
    let dtype = found.unwrap_or_else(|| Err(unknown("unknown")))?;
    Ok(slot.map_or(dtype, |slot| *slot.get_or_init(|| dtype)))
}

/// The error for a dtype that DLPack lacks.
#[cold]
fn unknown(name: &str) -> PyErr {
    let advice = match name {
        "datetime64" | "timedelta64" => {
            "; pass x.astype('int64'), which counts their unit, the least int64 for NaT"
        }
        "longdouble" => "; pass x.astype('float64')",
        "clongdouble" => "; pass x.astype('complex128')",
        "object" => "; pass x.astype(dtype), if all are numbers",
        "str" | "bytes" => "; pass numpy.unique(x, return_inverse=True)[1], a number for each",
        "void" => "; pass a field, x['name'], or x.view(dtype) if all are of one dtype",
        _ => "",
    };
    Error::refused(format!(
        "the NumPy array has elements of type {name}; expected bool, integers, float16 to float64, \
         complex64, complex128 or a type of ml_dtypes{advice}"
    ))
    .into()
}
