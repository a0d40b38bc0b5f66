//! The short way of a function that `dlx.bridge` made: all arguments of types that it has seen, none written in place.
//!
//! `python/dlx/_bridge.py` is the long one, and says what the tuples hold that it gives to this.

#![forbid(unsafe_code)]

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::convert;

/// Call the function of ``bridged``, a ``_Bridged``, with its arguments converted, and convert what it returns.
#[pyfunction]
#[pyo3(signature = (bridged, args, kwargs, /))]
pub(crate) fn call_bridged<'py>(
    bridged: &Bound<'py, PyTuple>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let Some((taken, kind)) = take(bridged, args, kwargs)? else {
        return bridged.call_method1(intern!(py, "call"), (args, kwargs));
    };
    let function = bridged.get_borrowed_item(0)?;
    let result = match kwargs.is_empty() {
        true => function.call1(taken),
        false => function.call(taken, Some(kwargs)),
    }?;
    match kind {
        Some(kind) => give(&kind, result),
        None => Ok(result),
    }
}

/// The positional arguments, converted, and the kind of the result, if all can be told by their types alone.
#[allow(clippy::type_complexity, reason = "what is called with, and what comes of it")]
fn take<'py>(
    bridged: &Bound<'py, PyTuple>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Option<(Bound<'py, PyTuple>, Option<Bound<'py, PyTuple>>)>> {
    let py = args.py();
    let item = |index| bridged.get_borrowed_item(index);
    let (into, kinds, result) = (item(1)?, item(2)?, item(3)?);
    let (receivers, out): (usize, usize) = (item(4)?.extract()?, item(5)?.extract()?);
    let into = into.cast::<PyTuple>()?;
    let (to, known) = (into.get_borrowed_item(0)?, into.get_borrowed_item(1)?);
    let (known, kinds) = (known.cast::<PyDict>()?, kinds.cast::<PyDict>()?);
    if args.len() > out.min(MANY) {
        return Ok(None);
    }
    let mut foreign = 0u64;
    for (position, x) in args.iter_borrowed().enumerate().skip(receivers) {
        match known.get_item(x.get_type())? {
            Some(found) => foreign |= u64::from(found.is_truthy()?) << position,
            None => return Ok(None),
        }
    }
    for (name, x) in kwargs {
        // Tensors among them are rare, and `out` is written in place.
        let plain = !kinds.contains(x.get_type())? && known.contains(x.get_type())?;
        if !plain || name.eq("out")? {
            return Ok(None);
        }
    }
    let mut kind = (!result.is_none()).then(|| result.to_owned());
    let mut taken = Vec::with_capacity(args.len());
    for (position, x) in args.iter_borrowed().enumerate() {
        if kind.is_none() && position >= receivers {
            kind = kinds.get_item(x.get_type())?;
        }
        taken.push(match foreign >> position & 1 {
            0 => x.to_owned(),
            _ => convert(&x, &to, None, None).or_else(|error| {
                let position = (error.value(py), position);
                bridged.call_method1(intern!(py, "note"), position)?;
                Err(error)
            })?,
        });
    }
    let kind = kind.map(Bound::cast_into).transpose()?;
    Ok(Some((PyTuple::new(py, taken)?, kind)))
}

/// More arguments than this take the long way.
const MANY: usize = 64;

/// What a function returned, as what `kind`, a ``_Kind``, says.
fn give<'py>(kind: &Bound<'py, PyTuple>, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let known = kind.get_borrowed_item(1)?;
    match known.cast::<PyDict>()?.get_item(value.get_type())? {
        Some(foreign) if foreign.is_truthy()? => {
            convert(&value, &kind.get_borrowed_item(0)?, None, None)
        }
        Some(_) => Ok(value),
        None => kind.call_method1(intern!(value.py(), "give"), (value,)),
    }
}
