//! What a kernel accepts: the dtype, layout and alignment that `borrow` and `launcher` check before they lend anything.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::abi::{
    DLDataType, DLDataTypeCode, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, kDLComplex,
};
use crate::tensor::memory::ALIGNMENT;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::dtype::{self, DType};
use crate::types::error::Error;
use crate::types::layout;

/// What is accepted of each tensor of a block.
pub(super) struct Accepted {
    each: Vec<Each>,
    contiguous: bool,
    /// In bytes; `None` stands for that of the named dtype.
    align: Option<usize>,
}

/// What is accepted of one tensor.
struct Each {
    /// `None` stands for any.
    dtype: Option<DLDataType>,
    /// In bytes; a kernel reads elements of a named dtype as its C type.
    alignment: usize,
}

/// Where no tensor is accepted: this code, and as many bits as the place of the reason.
const NO_TENSOR: DLDataTypeCode = DLDataTypeCode(u8::MAX);
const REASONS: [&str; 2] = [
    "the function takes a number there; pass x.item()",
    "a list in dtype, shape or size ends before it; list one for each tensor by position, None for any, or name them in \
     a dict",
];

impl Accepted {
    /// The options of `borrow` for `count` tensors; `None` if all tensors are accepted.
    pub(super) fn of(
        dtype: Option<&Bound<'_, PyAny>>,
        contiguous: bool,
        align: Option<i64>,
        count: usize,
    ) -> PyResult<Option<Box<Self>>> {
        if dtype.is_none() && !contiguous && align.is_none() {
            return Ok(None);
        }
        let align = align.map(|align| usize::try_from(align).unwrap_or(0));
        if align.is_some_and(|align| !align.is_power_of_two()) {
            return Err(PyValueError::new_err(
                "align takes a number of bytes that is a power of two",
            ));
        }
        let each = |dtype: Option<DLDataType>| Each {
            dtype,
            alignment: align.unwrap_or(dtype.map_or(1, |dtype| layout::alignment(dtype) as usize)),
        };
        Ok(Some(Box::new(Self {
            each: dtypes(dtype, count)?.into_iter().map(each).collect(),
            contiguous,
            align,
        })))
    }

    /// Whether row-major elements of `dtype` at this address are accepted of the tensor at `index`.
    pub(super) fn has(&self, index: usize, dtype: DLDataType, address: usize) -> bool {
        let each = &self.each[index];
        address & (each.alignment - 1) == 0 && each.dtype.is_none_or(|accepted| accepted == dtype)
    }

    /// Refuses the tensor at `index` if the kernel does not accept it.
    pub(super) fn check(
        &self,
        index: usize,
        snapshot: &Snapshot,
        is_out: bool,
    ) -> Result<(), Error> {
        let meta = snapshot.meta();
        // A copy of what is written would keep the result to itself.
        let own = "let the kernel write to dlx.empty(shape, dtype), and copy that to out";
        let remedy = |read: &str| String::from(if is_out { own } else { read });
        let Each { dtype, alignment } = self.each[index];
        if let Some(none) = dtype.filter(|dtype| dtype.code == NO_TENSOR) {
            let why = REASONS[usize::from(none.bits)];
            return Err(Error::refused(format!("it is a tensor, and {why}")));
        }
        if let Some(accepted) = dtype
            && accepted != meta.dtype
        {
            let cast = match meta.dtype.code == kDLComplex && accepted.code != kDLComplex {
                true => "pass the real part, or a kernel for complex numbers".to_owned(),
                false => {
                    format!("cast it in its library, or by dlx.convert(x, to, dtype='{accepted}')")
                }
            };
            return Err(Error::refused(format!(
                "the tensor is of {}, and dtype accepts {accepted}; {}",
                meta.dtype,
                remedy(&cast),
            )));
        }
        if dtype.is_some() && snapshot.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) {
            return Err(Error::refused(format!(
                "each element of {} is padded to a byte, and dtype accepts packed ones",
                meta.dtype
            )));
        }
        if self.contiguous && !snapshot.is_row_major() {
            return Err(Error::refused(format!(
                "the tensor has shape {:?} and strides {:?}, and contiguous=True accepts row-major elements without \
                 gaps; {}",
                snapshot.shape(),
                snapshot.strides(),
                remedy(
                    "dlx.from_dlpack(x, copy=True) makes them that, of x.detach() if x requires grad"
                )
            )));
        }
        let address = match device::has_addresses(meta.device) {
            true => meta.data.addr(),
            // A handle has no alignment of its own.
            false => meta.byte_offset as usize,
        };
        if address & (alignment - 1) != 0 {
            let copy = remedy("dlx.from_dlpack(x, copy=True) is aligned to 256 bytes");
            let multiple = match self.align {
                None => "its element size".to_owned(),
                Some(align) => format!("align={align}"),
            };
            let remedy = match self.align {
                None => format!("{copy}, and align=1 accepts all"),
                Some(align) if align <= ALIGNMENT => copy,
                // No copy of dlx helps.
                Some(_) => "expected memory that its library has aligned so".to_owned(),
            };
            return Err(Error::refused(format!(
                "the tensor is at address {address:#x}, which is no multiple of {multiple}; {remedy}",
            )));
        }
        Ok(())
    }
}

/// The dtypes that `count` tensors may have.
fn dtypes(dtype: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<Vec<Option<DLDataType>>> {
    let one = |dtype: Bound<'_, PyAny>| {
        let reasons = [dtype.py().NotImplemented(), dtype.py().Ellipsis()];
        if let Some(at) = reasons.iter().position(|reason| dtype.is(reason)) {
            return Ok(Some(dtype::scalar(NO_TENSOR, at as u8)));
        }
        let named = (!dtype.is_none()).then_some(dtype);
        named.map(|dtype| DType::of(&dtype)).transpose()
    };
    match dtype.map(|dtype| dtype.cast::<PyList>()) {
        Some(Ok(each)) if each.len() != count => Err(PyValueError::new_err(format!(
            "dtype lists {} dtypes for {count} tensors; expected one for each, out included",
            each.len()
        ))),
        Some(Ok(each)) => each.iter().map(one).collect(),
        Some(Err(_)) | None => Ok(vec![dtype.map(DType::of).transpose()?; count]),
    }
}
