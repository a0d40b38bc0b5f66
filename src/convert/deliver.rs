//! Hands a tensor to another library: as a NumPy array, through its table, or through its Python importer.
//!
//! NumPy takes every strided layout and the read-only flag. Other libraries may not, so dlx offers them the memory,
//! verifies the result, and falls back to a compact copy (`CopyRefused` if `copy=False`). Some end the process for
//! negative strides, or crash on elements that are not aligned to their size:
//!
//! ```text
//! to_table:     if share_readonly: clear READ_ONLY
//!               if strides are >= 0, elements aligned, and not READ_ONLY: return import(tensor)
//!               if READ_ONLY is the only misfit: result = import(tensor); return it if it reports itself read-only
//!               return import(compact copy)
//!
//! to_function:  if misaligned: tensor = compact copy
//!               if READ_ONLY, and share_readonly or without elements: clear READ_ONLY
//!               result = importer(tensor)
//!               if refused and MAYBE_READ_ONLY: result = importer(tensor with READ_ONLY), a versioned capsule
//!               if refused and (READ_ONLY or not row-major), or the result forgot READ_ONLY and is no copy:
//!                   result = importer(compact copy)
//!               refuse a result of another dtype
//!
//! both:         refuse a result of another class and, if copy=False, at another address
//! ```

#![forbid(unsafe_code)]

use std::borrow::Cow;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::numpy;
use crate::convert::importer::Importer;
use crate::convert::result::{Given, is_protected, is_readonly, is_refusal};
use crate::convert::source::{Options, is_fresh, noted, tensor_of};
use crate::convert::target::Target;
use crate::copy::by_driver::{self, On};
use crate::cpython::call::call_with;
use crate::cpython::modules::loaded;
use crate::cpython::once::intern;
use crate::exchange::Table;
use crate::import::{cache, table};
use crate::stream::{self, Stream};
use crate::tensor::capsule;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::tensor::trace;
use crate::types::error::{caused, copy_refused, first_line, is_urgent, type_name};
use crate::types::{device, layout};

/// Converts to a `numpy.ndarray` whose base holds the tensor.
pub(super) fn to_numpy<'py>(
    x: &Bound<'py, PyAny>,
    class: &Bound<'py, PyAny>,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    // On the CPU the table of torch alone tells everything.
    let direct = match asked.is_nothing().then(|| cache::table(x)).flatten() {
        Some((table, Some(guards))) => table::fast_on_cpu(x, table, guards)?,
        _ => None,
    };
    let tensor = match direct {
        Some(snapshot) => Tensor::new(py, snapshot)?,
        None => tensor_of(x, asked, true, |device| stream::current(py, device))?,
    };
    let tensor = noted(tensor, x, class);
    let device = tensor.get().snapshot()?.meta().device;
    if !device::is_readable(device) {
        return Err(PyBufferError::new_err(format!(
            "the tensor is on {device}, but numpy.ndarray requires memory on cpu; pass device='cpu'"
        )));
    }
    numpy::of_tensor(tensor)
}

/// Views an array as one of the target, a subclass, which may refuse it (`np.matrix`).
pub(super) fn viewed<'py>(
    array: &Bound<'py, PyAny>,
    target: &Target<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let view = array.call_method1(intern!(array.py(), "view"), (&target.class,));
    view.or_else(|error| {
        let snapshot = numpy::snapshot(array)?;
        Err(Given::of(snapshot.dl_tensor()).refused(target, error))
    })
}

/// Imports a NumPy array through the target's table, without a snapshot; `None` if it does not fit as it is.
pub(super) fn array_to_table<'py>(
    x: &Bound<'py, PyAny>,
    target: &Target<'py>,
    table: &Table,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    // Which notes a tensor.
    if trace::is_on() {
        return Ok(None);
    }
    let fits = |tensor: &DLTensor, flags, shape: &[i64], strides: &[i64]| {
        misfit(tensor, flags, shape, strides).is_none()
    };
    let Some((dtype, offer)) = numpy::offer(x, fits)? else {
        return Ok(None);
    };
    let given = Given { address: 0, dtype };
    let made = table.import(&target.class, offer);
    given.accepted(made, target).map(Some)
}

/// Imports `tensor`, which was made of `x`, through the target's table.
pub(super) fn to_table<'py>(
    x: &Bound<'py, PyAny>,
    tensor: Bound<'py, Tensor>,
    target: &Target<'py>,
    table: &Table,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let snapshot = tensor.get().snapshot()?;
    let device = snapshot.meta().device;
    if device::is_later(device) {
        // It would be used before it is ready: a table does not order, and here neither can dlx.
        return Err(PyBufferError::new_err(format!(
            "the tensor is on {device}, a device of a DLPack after 1.3, of which dlx knows no streams; call the from_dlpack of the library"
        )));
    }
    let (shape, strides) = (snapshot.shape(), snapshot.strides());
    let Some(why) = misfit(snapshot.dl_tensor(), snapshot.meta().flags, shape, strides) else {
        return by_table(snapshot, is_fresh(x, asked), target, table, asked);
    };
    if why == FORGETS && asked.share_readonly {
        return by_table(&snapshot.writable()?, false, target, table, asked);
    }
    if why == FORGETS {
        let made = by_table(snapshot, false, target, table, asked)?;
        if is_readonly(&made)? {
            return Ok(made);
        }
    }
    let on = if stream::has_streams(device) {
        // The copy runs on the stream on which the library will use it.
        On::Stream {
            stream: Stream::of_table(table.stream_of(py, device)?, device),
            lent: true,
        }
    } else {
        On::Current
    };
    let copied = copied(x, asked, snapshot, on, target, why)?;
    by_table(&copied, true, target, table, asked)
}

/// Imports a tensor that fits through the target's table.
fn by_table<'py>(
    snapshot: &Snapshot,
    fresh: bool,
    target: &Target<'py>,
    table: &Table,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    let given = Given::of(snapshot.dl_tensor());
    let made = table.import(&target.class, snapshot.offer(fresh)?);
    let made = given.accepted(made, target)?;
    if asked.copy == Some(false) {
        given.check_shared(&made, target)?;
    }
    Ok(made)
}

const FORGETS: &str = "would ignore that the tensor is read-only";
const MISALIGNED: &str = "requires memory that is aligned to its elements";

/// Why a library may not handle the tensor: it may refuse it, crash on it, or forget the flag.
#[inline(always)]
fn misfit(tensor: &DLTensor, flags: u64, shape: &[i64], strides: &[i64]) -> Option<&'static str> {
    let is_backward = |(&extent, &stride): (&i64, &i64)| extent > 1 && stride < 0;
    if shape.iter().zip(strides).any(is_backward) {
        Some("does not accept negative strides")
    } else if is_misaligned(tensor) {
        Some(MISALIGNED)
    } else if flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0 && !shape.contains(&0) {
        Some(FORGETS)
    } else {
        None
    }
}

/// Whether the first element is not aligned to its size, as compiled code expects.
fn is_misaligned(tensor: &DLTensor) -> bool {
    let address = (tensor.data.addr() as u64).wrapping_add(tensor.byte_offset);
    // There, nobody has said whether `data` is an address.
    !device::is_later(tensor.device) && !address.is_multiple_of(layout::alignment(tensor.dtype))
}

/// Makes a compact copy of `snapshot`, the tensor of `x`, for the reason `why`; `CopyRefused` if `copy=False`.
fn copied(
    x: &Bound<'_, PyAny>,
    asked: &Options,
    snapshot: &Snapshot,
    on: On,
    target: &Target<'_>,
    why: &str,
) -> PyResult<Snapshot> {
    let py = x.py();
    let reason = format!("{} {why}", target.name());
    if asked.copy == Some(false) {
        let is_told = snapshot.has(DLPACK_FLAG_BITMASK_READ_ONLY) && why.contains("read-only");
        let share = match is_told {
            true => "share_readonly=True to share it all the same (a memmap: mode='c'), or ",
            false => "",
        };
        let message = format!("copy=False, but {reason}; pass {share}copy=True for a compact copy");
        return Err(copy_refused(py, message));
    }
    let here = snapshot.meta().device;
    let copied = by_driver::copied(py, snapshot, here, on).map_err(|error| {
        if is_urgent(py, &error) {
            return error;
        }
        let message = format!("{reason}: {error}");
        caused(py, PyBufferError::new_err(message), error)
    })?;
    log(x, copied.nbytes(), &reason)?;
    Ok(copied)
}

/// Notes a copy of `x` in the log `dlx`, at DEBUG. Nobody listens before `logging` is imported.
pub(super) fn log(x: &Bound<'_, PyAny>, nbytes: i64, why: &str) -> PyResult<()> {
    if let Some(logging) = loaded(intern!(x.py(), "logging"))? {
        let logger = logging.call_method1("getLogger", ("dlx",))?;
        let from = type_name(&x.get_type());
        let text = "%d bytes of %s are copied: %s";
        logger.call_method1("debug", (text, nbytes, from, why))?;
    }
    Ok(())
}

/// Imports `tensor`, which was made of `x`, through the importer of the target's library.
pub(super) fn to_function<'py>(
    x: &Bound<'py, PyAny>,
    mut tensor: Bound<'py, Tensor>,
    target: &Target<'py>,
    importer: &Importer,
    asked: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    let py = target.class.py();
    let function = importer.function.bind(py);
    let mut snapshot = tensor.get().snapshot()?.clone();
    if is_misaligned(snapshot.dl_tensor()) {
        snapshot = copied(x, asked, &snapshot, On::Current, target, MISALIGNED)?;
        tensor = Tensor::new(py, snapshot.clone())?;
    }
    let mut readonly = snapshot.has(DLPACK_FLAG_BITMASK_READ_ONLY);
    // Without elements there is nothing to write, so the flag does not matter.
    if readonly && (asked.share_readonly || snapshot.size() == 0) {
        tensor = Tensor::new(py, snapshot.writable()?)?;
        readonly = false;
    }
    let given = Given::of(snapshot.dl_tensor());
    let mut made = call_with(function, &[tensor.as_any()]);
    if made.as_ref().is_err_and(|error| is_refusal(py, error)) && snapshot.has(MAYBE_READ_ONLY) {
        // It may refuse unversioned capsules. A versioned one must set the flag or not: READ_ONLY is safe.
        let told = Tensor::new(py, snapshot.readonly()?)?;
        if let Ok(again) = call_with(function, &[told.as_any()]) {
            (made, readonly) = (Ok(again), true);
        }
    }
    let why = match &made {
        // Ask each result: how a library imports one tensor says nothing about the next.
        Ok(made) if readonly && !is_protected(made, &snapshot, (importer, &target.class))? => {
            Some(Cow::Borrowed(FORGETS))
        }
        Err(error) if is_refusal(py, error) && (readonly || !snapshot.is_row_major()) => {
            let text = first_line(py, error);
            // Here the library has called `__dlpack__`, and it cannot be told.
            let text = text
                .trim_end_matches(capsule::ASK_OTHERWISE)
                .trim_end_matches(['.', ' ', ';']);
            Some(format!("does not accept the tensor as it is: {text}").into())
        }
        _ => None,
    };
    if let Some(why) = why {
        let copied = copied(x, asked, &snapshot, On::Current, target, &why)?;
        made = call_with(function, &[Tensor::new(py, copied)?.as_any()]);
    }
    let made = given.accepted(made, target)?;
    given.check_dtype(&made, importer, target)?;
    if asked.copy == Some(false) && snapshot.size() > 0 {
        given.check_shared(&made, target)?;
    }
    Ok(made)
}
