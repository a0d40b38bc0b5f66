//! Whether a tensor may be written to: by its own flags, and where it has none, by the object's other protocols.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;

use crate::abi::{DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY};
use crate::adapters::{self, Counter, numpy, paddle, torch};
use crate::copy::request::Request;
use crate::cpython::lookup::is_static;
use crate::cpython::modules::python;
use crate::exchange::slot::inner_of;
use crate::import::cache;
use crate::import::ladder::from_dlpack;
use crate::import::lend::lend_unordered;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::{Shown, copy_refused, is_urgent, type_name, with_note};
use crate::types::layout;

/// Returns the snapshot of `x` for writing, without `MAYBE_READ_ONLY`.
///
/// # Errors
///
/// `BufferError` if the memory must not be written, or is not known to be writable; it calls the tensor `name`.
pub(crate) fn writable(x: &Bound<'_, PyAny>, snapshot: Snapshot, name: &str) -> PyResult<Snapshot> {
    if let Some(why) = refusal(x, &snapshot)? {
        return Err(PyBufferError::new_err(format!("{name} {why}")));
    }
    if moves(x, &snapshot)? {
        let message = format!(
            "{name} is of {}, which exports other memory each time, so what is written would be lost; pass the memory \
             that it is made of",
            type_name(&x.get_type())
        );
        return Err(copy_refused(x.py(), message));
    }
    Ok(match snapshot.is_protected() {
        true => snapshot.writable()?,
        false => snapshot,
    })
}

/// Whether `x` computes what it exports, as a property or a `__dlpack__` in Python may: then it is elsewhere the next time.
fn moves(x: &Bound<'_, PyAny>, snapshot: &Snapshot) -> PyResult<bool> {
    let inner = inner_of(x)?;
    // A class may have a table by inheritance, and a `__dlpack__` of its own.
    let is_its_own = cache::way_in(&mut None, &inner)?.leads() || is_static(&inner.get_type());
    if snapshot.size() == 0 || is_its_own && (x.is(&inner) || inner_of(x)?.is(&inner)) {
        return Ok(false);
    }
    Ok(lend_unordered(x)?.meta().data != snapshot.meta().data)
}

/// `error`, of what is written to, with a note where what its advice makes may be a copy, which alone holds the result.
#[cold]
pub(crate) fn advised(py: Python<'_>, error: PyErr) -> PyErr {
    let text = Shown(error.value(py)).to_string();
    if error.is_instance_of::<PyBufferError>(py) && text.contains("; pass ") {
        let note = "a copy would keep what is written: let the kernel write to dlx.empty(shape, dtype), and copy that to out";
        return with_note(py, error, note);
    }
    error
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
    let recorded = recorded(x, snapshot)?;
    if recorded.is_some() || !snapshot.has(MAYBE_READ_ONLY) || is_said(x, snapshot)? {
        return Ok(recorded);
    }
    let name = type_name(&x.get_type());
    Ok(Some(format!(
        "may be read-only: nothing that {name} exports says that it is writable; {copy}"
    )))
}

/// The reason why what torch or Paddle records of `x` would not be that of what is written to it; `None` if it records nothing.
fn recorded(x: &Bound<'_, PyAny>, snapshot: &Snapshot) -> PyResult<Option<String>> {
    let may_be = match cache::table(x) {
        Some((_, Some(guards))) => !guards.check_values(x, snapshot.meta().dtype)?,
        _ => !numpy::is_ndarray(x) && (torch::is_tensor(x)? || paddle::counts(x)),
    };
    if !may_be {
        return Ok(None);
    }
    python(x.py(), "dlx._libraries.written", "recorded", (x,))?.extract()
}

/// Whether another protocol of `x` exposes the same memory as writable.
fn is_said(x: &Bound<'_, PyAny>, snapshot: &Snapshot) -> PyResult<bool> {
    let py = x.py();
    if Tensor::of(x).is_some() {
        return Ok(false);
    }
    let meta = snapshot.meta();
    match adapters::unordered(x, Some(meta.device)) {
        Ok(Some(said)) => Ok(!said.is_protected() && said.meta().data == meta.data),
        Err(error) if !error.is_instance_of::<PyException>(py) => Err(error),
        _ => Ok(false),
    }
}

/// Notes that ``x``, of which `written` lent ``lent``, was written to: the library whose memory it is then knows that what a
/// graph has saved of it is gone.
#[pyfunction]
#[pyo3(signature = (x, lent, /))]
pub(crate) fn increment_version(x: &Bound<'_, PyAny>, lent: &Bound<'_, Tensor>) -> PyResult<()> {
    tell(x, Some(lent.get().described()))
}

/// Tells the library of `x` that its memory, which was `lent`, was written to, or that which exported it: what `x` exports by
/// now may be other memory.
pub(crate) fn tell(x: &Bound<'_, PyAny>, lent: Option<&Snapshot>) -> PyResult<()> {
    let py = x.py();
    // A tensor of torch that exports its own memory, and nothing else's.
    if matches!(cache::table(x), Some((_, Some(_)))) {
        return torch::increment_version(x);
    }
    if numpy::is_ndarray(x) {
        return Ok(());
    }
    if paddle::counts(x) {
        return paddle::increment_version(x);
    }
    if let Some(lender) = lent.and_then(|lent| lent.lender(py))
        && told(&lender)?
    {
        return Ok(());
    }
    let counter = lent.map(|lent| adapters::counter(py, lent)).transpose();
    match counter.map(Option::flatten) {
        Ok(Some(counter)) => {
            counter.increment();
            Ok(())
        }
        Ok(None) => told(x).map(drop),
        Err(error) if is_urgent(py, &error) || !told(x)? => Err(error),
        Err(_) => Ok(()),
    }
}

/// Tells the library of `x` that it was written to; returns whether it counts that.
fn told(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    if torch::is_tensor(x)? {
        torch::increment_version(x).map(|()| true)
    } else if paddle::counts(x) {
        paddle::increment_version(x).map(|()| true)
    } else {
        Ok(false)
    }
}

/// The count of the library that exported the memory of `x`, if `x` is none of its own, which is [`told`].
///
/// # Errors
///
/// `BufferError` if that library would not learn of it.
#[cold]
#[inline(never)]
pub(crate) fn counter(x: &Bound<'_, PyAny>, snapshot: &Snapshot) -> PyResult<Option<Counter>> {
    if snapshot.maker().is_none() || torch::is_tensor(x)? || paddle::counts(x) {
        return Ok(None);
    }
    adapters::counter(x.py(), snapshot)
}

/// Return ``x`` for writing, and a `Tensor` over the memory that is written to.
///
/// The first is ``x`` itself, or that `Tensor` if only it can tell that it is writable.
///
/// Raises ``BufferError`` if the memory must not be written, or is not known to be writable.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn written<'py>(
    x: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, Tensor>)> {
    let py = x.py();
    let lent = lend_unordered(x).map_err(|error| advised(py, error))?;
    // Refused where its library would not learn of it.
    counter(x, &lent)?;
    if !lent.has(MAYBE_READ_ONLY) {
        let lent = writable(x, lent, "out")?;
        return Ok((x.clone(), Tensor::holding(py, lent)?));
    }
    // Another export may have other flags, so return the very export that was checked.
    let snapshot = writable(x, from_dlpack(x, &Request::NOTHING)?, "out")?;
    let tensor = Tensor::new(py, snapshot)?;
    Ok((tensor.clone().into_any(), tensor))
}
