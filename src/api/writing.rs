//! Whether a tensor may be written to: what it says itself, and where it cannot say, its object by other protocols.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;

use crate::abi::DLPACK_FLAG_BITMASK_READ_ONLY;
use crate::adapters;
use crate::api::lent::lend;
use crate::copy::request::Request;
use crate::exchange::slot::{innermost, is_mixin};
use crate::import::cache;
use crate::import::cache::Way;
use crate::import::ladder::from_dlpack;
use crate::stream;
use crate::stream::usage::Release;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::type_name;

/// The tensor of `x`, to be written to.
///
/// # Errors
///
/// `BufferError` for what must not be written, and where nobody says that it may.
pub(crate) fn writable(x: &Bound<'_, PyAny>, snapshot: Snapshot) -> PyResult<Snapshot> {
    if let Some(why) = refusal(x, &snapshot)? {
        return Err(PyBufferError::new_err(format!("out {why}")));
    }
    if snapshot.is_protected() {
        Ok(snapshot.writable()?)
    } else {
        Ok(snapshot)
    }
}

/// Why the tensor of `x` must not be written to, `None` if it may.
pub(crate) fn refusal(x: &Bound<'_, PyAny>, snapshot: &Snapshot) -> PyResult<Option<String>> {
    if snapshot.has(DLPACK_FLAG_BITMASK_READ_ONLY) {
        let why = "is read-only; a tensor that may be written is accepted";
        return Ok(Some(why.to_owned()));
    }
    let (shape, strides) = (snapshot.shape(), snapshot.strides());
    let repeats = |(&extent, &stride): (&i64, &i64)| extent > 1 && stride == 0;
    if snapshot.size() > 0 && shape.iter().zip(strides).any(repeats) {
        return Ok(Some(format!(
            "has shape {shape:?} and strides {strides:?}, by which several elements are one; a tensor whose \
             elements are apart is accepted"
        )));
    }
    let inner;
    let x = if is_mixin(&x.get_type()) {
        inner = innermost(x)?.0;
        &inner
    } else {
        x
    };
    let copy = "dlx.from_dlpack(x, copy=True) makes a copy that may be written";
    if let Some(class) = immutable(x)? {
        return Ok(Some(format!("is a {class}, which is immutable; {copy}")));
    }
    if !snapshot.has(MAYBE_READ_ONLY) || is_said(x, snapshot)? {
        return Ok(None);
    }
    let name = type_name(&x.get_type());
    Ok(Some(format!(
        "may be read-only: nothing that {name} exports says that it may be written; {copy}"
    )))
}

/// The class that a library calls immutable though its exports do not say so, if `x` is an instance.
fn immutable(x: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Some(Way::Tensor | Way::Numpy | Way::Table(_, Some(_))) = cache::remembered(x) {
        return Ok(None);
    }
    let provided = x.py().import("dlx._provided")?;
    provided.call_method1("immutable", (x,))?.extract()
}

/// Whether `x` says by another protocol that this very memory may be written.
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

/// ``x`` for who writes to it: itself, or a `Tensor` over its memory where only that can say that it may be written.
///
/// Raises ``BufferError`` for what must not be written, and where nobody says that it may.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn written<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let no_order = stream::NO_SYNC.into_pyobject(py)?.into_any();
    let lent = lend(x, None, Some(&no_order))?.snapshot;
    if !lent.has(MAYBE_READ_ONLY) {
        writable(x, lent)?;
        return Ok(x.clone());
    }
    // Another export may say something else: what is given is what was asked.
    let snapshot = writable(x, from_dlpack(x, &Request::NOTHING)?)?;
    Ok(Tensor::new(py, snapshot)?.into_any())
}
