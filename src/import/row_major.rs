//! Views of tensors with row-major elements, as most arguments of kernels are: an address and a dtype say all.

#![forbid(unsafe_code)]

use std::mem::MaybeUninit;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::numpy;
use crate::adapters::torch::{self, Guards};
use crate::exchange::Table;
use crate::exchange::slot::{innermost, is_mixin};
use crate::import::cache::{self, Way};
use crate::import::ladder::is_plain;
use crate::stream::WorkStream;
use crate::tensor::checked::Meta;
use crate::tensor::object::Tensor;
use crate::types::error::unseen;
use crate::types::{device, dtype};

/// A tensor with row-major elements on the CPU or a CUDA device.
pub(crate) struct RowMajor {
    pub(crate) address: usize,
    pub(crate) dtype: DLDataType,
    pub(crate) device: DLDevice,
    /// Which stream its library works on now, if the device has streams.
    pub(crate) work_stream: Option<WorkStream>,
    /// Whether it is known to be writable, as torch's are that record no gradients: a view of other libraries does not tell.
    pub(crate) is_writable: bool,
}

impl RowMajor {
    #[inline(always)]
    fn of(meta: &Meta, work_stream: Option<WorkStream>, is_writable: bool) -> Self {
        Self {
            address: meta.data.addr(),
            dtype: meta.dtype,
            device: meta.device,
            work_stream,
            is_writable,
        }
    }
}

/// One that dlx holds, or an object of a mixin class exports.
pub(crate) struct Held<'py> {
    pub(crate) found: RowMajor,
    /// The stream that it is ready on, beside that of its library.
    pub(crate) ready: Option<i64>,
    /// What has been exported.
    pub(crate) inner: Option<Bound<'py, PyAny>>,
}

/// As [`row_major`], of a tensor of dlx; and the stream that it is ready on.
fn of_tensor(tensor: &Tensor) -> Option<(RowMajor, Option<i64>)> {
    let snapshot = tensor.current()?;
    let meta = snapshot.meta();
    let is_lent = meta.flags & !DLPACK_FLAG_BITMASK_READ_ONLY == 0
        && meta.byte_offset == 0
        && snapshot.is_row_major();
    let (ready, work_stream) = match snapshot.has_streams() {
        _ if !is_lent => return None,
        true => snapshot
            .one_stream()
            .map(|(on, library)| (Some(on), library))?,
        false if meta.device == device::CPU => (None, None),
        false => return None,
    };
    // Its library may have to learn that it was written to.
    Some((RowMajor::of(&meta, work_stream, false), ready))
}

/// As [`row_major`], of a tensor of dlx, or an object of a mixin class, of which nothing is asked if it `is_written`.
///
/// # Errors
///
/// Those of the mixin class.
pub(crate) fn held<'py>(
    x: &Bound<'py, PyAny>,
    is_written: impl FnOnce() -> PyResult<bool>,
) -> PyResult<Option<Held<'py>>> {
    let inner = match Tensor::of(x) {
        Some(_) => None,
        None if !is_mixin(&x.get_type()) || is_written()? => return Ok(None),
        None => Some(innermost(x)?.0),
    };
    let x = inner.as_ref().unwrap_or(x);
    let held = match Tensor::of(x) {
        Some(tensor) => of_tensor(tensor.get()),
        None => row_major(x)?.map(|found| (found, None)),
    };
    Ok(held.map(|(found, ready)| Held {
        found,
        ready,
        inner,
    }))
}

/// What [`lend`](crate::import::lend::lend) would lend of a tensor with row-major elements, which the caller holds; `None` for
/// all others, where it might refuse, and where its library names no stream.
///
/// # Errors
///
/// Those of the library, but for `BufferError`.
#[inline(always)]
pub(crate) fn row_major(x: &Bound<'_, PyAny>) -> PyResult<Option<RowMajor>> {
    let found = match cache::table(x) {
        Some((table, guards)) => row_major_of_table(x, table, guards),
        None => row_major_of_other(x),
    };
    match found {
        Err(error) if error.is_instance_of::<PyBufferError>(x.py()) => {
            // `lend` may export it.
            unseen(error);
            Ok(None)
        }
        found => found,
    }
}

/// As [`row_major`], of an array of NumPy, or of a type that is not known to have a table. A view has no flags, and only the C
/// code of a static type is believed to have no others than its DLPack: of other types, an export is asked.
#[inline(never)]
fn row_major_of_other(x: &Bound<'_, PyAny>) -> PyResult<Option<RowMajor>> {
    // A kernel cannot tell that narrow elements are padded to bytes.
    if let Some(found) = numpy::row_major(x)
        && found.flags & !DLPACK_FLAG_BITMASK_READ_ONLY == 0
    {
        return Ok(Some(RowMajor::of(&found, None, found.flags == 0)));
    }
    if is_plain(x) {
        return Ok(None);
    }
    let mut room = None;
    let Way::Table(table, guards) = cache::way_uncounted(&mut room, x)? else {
        return Ok(None);
    };
    let found = row_major_of_table(x, table, guards.as_ref())?;
    if found.is_some() && table.export(x, false)?.read()?.1 != 0 {
        return Ok(None);
    }
    Ok(found)
}

#[inline(always)]
fn row_major_of_table(
    x: &Bound<'_, PyAny>,
    table: &Table,
    guards: Option<&Guards>,
) -> PyResult<Option<RowMajor>> {
    let mut room = MaybeUninit::uninit();
    let view = table.view(x, &mut room);
    let view = view.map_err(|error| torch::explain(x, error))?;
    let Some((meta, last)) = view.and_then(|view| view.row_major()) else {
        return Ok(None);
    };
    let (is_lent, is_writable) = match guards {
        Some(guards) => {
            let is_writable = guards.check_values(x, meta.dtype)?;
            (guards.holds_view(x, &meta, last.into()), is_writable)
        }
        None => {
            let is_known = meta.dtype.bits >= 8 && dtype::check(meta.dtype).is_ok();
            (table.tells_all_by_view() && is_known, false)
        }
    };
    if !is_lent {
        return Ok(None);
    }
    if meta.device == device::CPU {
        return Ok(Some(RowMajor::of(&meta, None, is_writable)));
    }
    let named = table.work_stream;
    Ok(named.map(|named| RowMajor::of(&meta, Some(named), is_writable)))
}
