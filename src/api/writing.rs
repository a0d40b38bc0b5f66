//! Whether a tensor may be written to: by its own flags, and where it has none, by the object's other protocols.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;

use crate::abi::{DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY};
use crate::adapters::{Counter, numpy, paddle, torch};
use crate::api::lent::lend_unordered;
use crate::copy::request::Request;
use crate::exchange::slot::inner_of;
use crate::import::ladder::from_dlpack;
use crate::stream::usage::Release;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::type_name;
use crate::types::layout;
use crate::{adapters, stream};

/// Returns the snapshot of `x` for writing, without `MAYBE_READ_ONLY`.
///
/// # Errors
///
/// `BufferError` if the memory must not be written, or is not known to be writable; it calls the tensor `name`.
pub(crate) fn writable(x: &Bound<'_, PyAny>, snapshot: Snapshot, name: &str) -> PyResult<Snapshot> {
    if let Some(why) = refusal(x, &snapshot)? {
        return Err(PyBufferError::new_err(format!("{name} {why}")));
    }
    if snapshot.is_protected() {
        Ok(snapshot.writable()?)
    } else {
        Ok(snapshot)
    }
}

/// The reason why the tensor of `x` must not be written; `None` if it may.
pub(crate) fn refusal(x: &Bound<'_, PyAny>, snapshot: &Snapshot) -> PyResult<Option<String>> {
    let copy =
        "dlx.from_dlpack(x, copy=True) makes a writable copy, which alone then holds the result";
    if snapshot.has(DLPACK_FLAG_BITMASK_READ_ONLY) {
        return Ok(Some(match adapters::immutable(&inner_of(x)?)? {
            Some(class) => format!("is a {class}, which is immutable; {copy}"),
            None => "is read-only; pass a writable tensor".to_owned(),
        }));
    }
    if snapshot.has(DLPACK_FLAG_BITMASK_IS_COPIED) && Tensor::of(&inner_of(x)?).is_none() {
        let why = "is exported as a copy, so what is written would be lost; pass the memory that it is made of";
        return Ok(Some(why.to_owned()));
    }
    let (size, shape, strides) = (snapshot.size(), snapshot.shape(), snapshot.strides());
    if size > 0 && !snapshot.is_row_major() && layout::repeats(size, shape, strides) {
        return Ok(Some(format!(
            "has shape {shape:?} and strides {strides:?}, which place several elements at one address; pass a \
             tensor whose elements do not overlap"
        )));
    }
    let x = &inner_of(x)?;
    if !snapshot.has(MAYBE_READ_ONLY) || is_said(x, snapshot)? {
        return Ok(None);
    }
    let name = type_name(&x.get_type());
    Ok(Some(format!(
        "may be read-only: nothing that {name} exports says that it is writable; {copy}"
    )))
}

/// Whether another protocol of `x` exposes the same memory as writable.
fn is_said(x: &Bound<'_, PyAny>, snapshot: &Snapshot) -> PyResult<bool> {
    let py = x.py();
    if Tensor::of(x).is_some() {
        return Ok(false);
    }
    let no_order = stream::NO_SYNC.into_pyobject(py)?.into_any();
    let request = Request {
        device: Some(snapshot.meta().device),
        stream: Some(&no_order),
        release: Release::None,
        ..Request::NOTHING
    };
    match adapters::snapshot(x, &request) {
        Ok(Some(said)) => Ok(!said.is_protected() && said.meta().data == snapshot.meta().data),
        Err(error) if !error.is_instance_of::<PyException>(py) => Err(error),
        _ => Ok(false),
    }
}

/// Notes that ``x``, or the object that it exports, was written to: its library then knows that what a graph has saved of
/// it is gone.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn increment_version(x: &Bound<'_, PyAny>) -> PyResult<()> {
    if told(x)? || numpy::is_ndarray(x) {
        return Ok(());
    }
    count(x.py(), &lend_unordered(x)?)
}

/// Tells the library of `x` that its memory, which was `lent`, was written to, or that which exported it.
#[inline(always)]
pub(crate) fn tell<'a>(
    x: &Bound<'_, PyAny>,
    lent: impl FnOnce() -> Option<&'a Snapshot>,
) -> PyResult<()> {
    if told(x)? {
        return Ok(());
    }
    match lent().filter(|lent| lent.may_have_maker()) {
        Some(lent) => count(x.py(), lent),
        None => Ok(()),
    }
}

/// Counts that memory was written to, if the library that exported it does.
#[cold]
#[inline(never)]
fn count(py: Python<'_>, snapshot: &Snapshot) -> PyResult<()> {
    let counter = adapters::counter(py, snapshot)?;
    counter.iter().for_each(Counter::increment);
    Ok(())
}

/// Tells the library of `x`, or of the object that it exports, that it was written to; returns whether it counts that.
fn told(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let x = &inner_of(x)?;
    if torch::is_tensor(x)? {
        torch::increment_version(x)?;
    } else if paddle::counts(x) {
        paddle::increment_version(x)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// The count of the library that exported the memory of `x`, if `x` is none of its own, which is [`told`].
///
/// # Errors
///
/// `BufferError` if that library would not learn of it.
#[cold]
#[inline(never)]
pub(crate) fn counter(x: &Bound<'_, PyAny>, snapshot: &Snapshot) -> PyResult<Option<Counter>> {
    if snapshot.maker().is_none() {
        return Ok(None);
    }
    let x = &inner_of(x)?;
    if torch::is_tensor(x)? || paddle::counts(x) {
        return Ok(None);
    }
    adapters::counter(x.py(), snapshot)
}

/// Return ``x`` for writing: itself, or a `Tensor` over its memory if only that can tell that it is writable.
///
/// Raises ``BufferError`` if the memory must not be written, or is not known to be writable.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn written<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let lent = lend_unordered(x)?;
    // Refused where its library would not learn of it.
    counter(x, &lent)?;
    if !lent.has(MAYBE_READ_ONLY) {
        writable(x, lent, "out")?;
        return Ok(x.clone());
    }
    // Another export may have other flags, so return the very export that was checked.
    let snapshot = writable(x, from_dlpack(x, &Request::NOTHING)?, "out")?;
    Ok(Tensor::new(x.py(), snapshot)?.into_any())
}
