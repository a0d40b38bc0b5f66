//! Views of tensors with row-major elements, as most arguments of kernels are: an address and a dtype say all.

#![forbid(unsafe_code)]

use std::mem::MaybeUninit;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::numpy;
use crate::adapters::torch::Guards;
use crate::exchange::Table;
use crate::exchange::slot::innermost;
use crate::import::cache::{self, Way};
use crate::import::ladder::is_plain;
use crate::stream::WorkStream;
use crate::tensor::checked::Meta;
use crate::tensor::object::Tensor;
use crate::types::error::unseen;
use crate::types::{device, dtype};

/// A tensor with row-major elements on the CPU or a CUDA device.
pub(crate) struct RowMajor<'py> {
    pub(crate) address: usize,
    pub(crate) dtype: DLDataType,
    pub(crate) device: DLDevice,
    /// Which stream its library works on now, if the device has streams, and it is not dlx's alone.
    pub(crate) work_stream: Option<WorkStream>,
    /// The stream that it is ready on, if it is dlx's.
    pub(crate) ready: Option<i64>,
    /// What an object of a mixin class has exported.
    pub(crate) held: Option<Bound<'py, PyAny>>,
    /// Whether it is known to be writable, as all of torch's are: a view of other libraries does not tell.
    pub(crate) is_writable: bool,
}

impl RowMajor<'_> {
    #[inline(always)]
    fn of(meta: &Meta, work_stream: Option<WorkStream>, is_writable: bool) -> Self {
        Self {
            address: meta.data.addr(),
            dtype: meta.dtype,
            device: meta.device,
            work_stream,
            ready: None,
            held: None,
            is_writable,
        }
    }

    fn of_tensor(tensor: &Tensor) -> Option<Self> {
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
        Some(Self {
            ready,
            ..Self::of(&meta, work_stream, false)
        })
    }
}

type Found<'py> = PyResult<Option<RowMajor<'py>>>;

/// What [`lend`](crate::import::view::lend) would lend of a tensor with row-major elements, which the caller holds; `None` for all others, where it
/// might refuse, and where its library names no stream. Nothing is asked of an object of a mixin class that `is_written`.
///
/// # Errors
///
/// Those of the library, but for `BufferError`; all of a mixin class.
#[inline(always)]
pub(crate) fn row_major<'py>(
    x: &Bound<'py, PyAny>,
    is_written: &dyn Fn() -> PyResult<bool>,
) -> Found<'py> {
    match cache::table(x) {
        Some((table, guards)) => unless_refused(x.py(), row_major_of_table(x, table, guards)),
        None => row_major_of_other(x, is_written),
    }
}

#[inline(always)]
fn unless_refused<'py>(py: Python<'py>, found: Found<'py>) -> Found<'py> {
    found.or_else(|error| match error.is_instance_of::<PyBufferError>(py) {
        true => {
            // `lend` may export it.
            unseen(error);
            Ok(None)
        }
        false => Err(error),
    })
}

/// As [`row_major`], of an array of NumPy, or of a type that is not known to have a table.
#[inline(never)]
fn row_major_of_other<'py>(
    x: &Bound<'py, PyAny>,
    is_written: &dyn Fn() -> PyResult<bool>,
) -> Found<'py> {
    if is_plain(x) {
        return Ok(None);
    }
    match cache::way_uncounted(&mut None, x)? {
        Way::Table(table, guards) => {
            // A view has no flags, and only the C code of a static type is believed to have no others than its DLPack.
            let told = |found: Option<RowMajor<'py>>| match found {
                Some(_) if table.export_to_kernel(x)?.read()?.1 != 0 => Ok(None),
                found => Ok(found),
            };
            let found = row_major_of_table(x, table, guards.as_ref()).and_then(told);
            unless_refused(x.py(), found)
        }
        Way::Numpy => {
            let found = numpy::row_major(x);
            Ok(found.map(|meta| RowMajor::of(&meta, None, meta.flags == 0)))
        }
        Way::Tensor => {
            let tensor = x.cast::<Tensor>().ok();
            Ok(tensor.and_then(|tensor| RowMajor::of_tensor(tensor.get())))
        }
        Way::Mixin if !is_written()? => {
            // This runs Python code.
            let (inner, _) = Python::attach(|_| innermost(x))?;
            let found = row_major(&inner, &|| Ok(false))?;
            Ok(found.map(|found| RowMajor {
                held: Some(inner),
                is_writable: false,
                ..found
            }))
        }
        _ => Ok(None),
    }
}

#[inline(always)]
fn row_major_of_table<'py>(
    x: &Bound<'py, PyAny>,
    table: &Table,
    guards: Option<&Guards>,
) -> Found<'py> {
    let mut room = MaybeUninit::uninit();
    let view = table.view(x, &mut room)?;
    let Some((meta, last)) = view.and_then(|view| view.row_major()) else {
        return Ok(None);
    };
    let is_lent = match guards {
        Some(guards) => {
            guards.check_values(x, meta.dtype)?;
            guards.holds_view(x, &meta, last)
        }
        None => {
            table.tells_all_by_view() && meta.dtype.bits >= 8 && dtype::check(meta.dtype).is_ok()
        }
    };
    if !is_lent {
        return Ok(None);
    }
    let is_writable = guards.is_some();
    if meta.device == device::CPU {
        return Ok(Some(RowMajor::of(&meta, None, is_writable)));
    }
    let named = table.work_stream;
    Ok(named.map(|named| RowMajor::of(&meta, Some(named), is_writable)))
}
