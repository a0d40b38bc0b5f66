//! The fast entry of `from_dlpack`, which costs less than parsing its arguments: for `from_dlpack(x)`, also with the usual
//! `device=`, `copy=` and `stream=`. Every other call goes on to PyO3's function.

pub(crate) mod dlpack;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use crate::adapters::numpy;
use crate::api::entry::{FastEntry, Made, Name};
use crate::copy::request::{Asked, Request};
use crate::cpython::boundary::counted;
use crate::cpython::once::intern;
use crate::cpython::vector::Arguments;
use crate::import::{cache, ladder, table};
use crate::tensor::object::Tensor;
use crate::types::device;

/// `from_dlpack(x)`, with or without `device`, `copy` and `stream`.
pub(crate) struct FromDlpack;

impl FastEntry for FromDlpack {
    const NAME: (&'static str, Name) = ("from_dlpack", Name::FromDlpack);

    #[inline(always)]
    fn call<'py>(_module: &Bound<'py, PyAny>, arguments: Arguments<'_, 'py>) -> Option<Made> {
        match (arguments.values, arguments.names) {
            ([x], None) => Some(alone(x)),
            ([x, values @ ..], Some(names)) if names.len() == values.len() => {
                as_asked(x, &names, values)
            }
            _ => None,
        }
    }
}

/// What the keywords `device`, `copy` and `stream` ask for, if they are spelled as usual: by interned names, with `"cpu"`, a
/// bool and anything, or None; `None` for any other keywords.
#[inline(always)]
fn requested<'a, 'py>(
    names: &Bound<'py, PyTuple>,
    values: &'a [Borrowed<'a, 'py, PyAny>],
) -> Option<(Request<'static, 'static>, Option<&'a Bound<'py, PyAny>>)> {
    let py = names.py();
    let (mut device, mut copy, mut stream) = (None, None, None);
    for (index, value) in values.iter().enumerate() {
        let name = names.get_borrowed_item(index).ok()?;
        // A name that comes twice is an error.
        if name.is(intern!(py, "copy")) && copy.is_none() {
            copy = Some(truth(value)?);
        } else if name.is(intern!(py, "device")) && device.is_none() {
            device = Some(device::usual(value)?);
        } else if name.is(intern!(py, "stream")) && stream.is_none() {
            stream = Some(Some(&**value).filter(|value| !value.is_none()));
        } else {
            return None;
        }
    }
    let request = Request::of(device.flatten(), copy.flatten());
    Some((request, stream.flatten()))
}

/// The bool, or `None` for None; `None` outside for anything else.
#[inline(always)]
fn truth(value: &Bound<'_, PyAny>) -> Option<Option<bool>> {
    if value.is_none() {
        return Some(None);
    }
    Some(Some(value.cast_exact::<PyBool>().ok()?.is_true()))
}

/// Imports `x`, of which nothing else is asked.
#[inline(always)]
fn alone(x: &Bound<'_, PyAny>) -> Made {
    let py = x.py();
    if let Some(snapshot) = numpy::fast(x) {
        return Tensor::new(py, snapshot).into();
    }
    if let Some(tensor) = Tensor::of(x) {
        // Unless its block has ended.
        return tensor.get().snapshot().map(|_| tensor.clone()).into();
    }
    match cache::table(x) {
        Some((known, kind)) => {
            let snapshot = table::fast::<false>(x, known, kind, &Request::NOTHING);
            let made = snapshot.and_then(|snapshot| Tensor::new(py, snapshot));
            made.into()
        }
        None => by_ladder(x, &Request::NOTHING).into(),
    }
}

/// Imports `x` as the keywords ask; `None` to let PyO3's function try.
#[inline(never)]
fn as_asked<'py>(
    x: &Bound<'py, PyAny>,
    names: &Bound<'py, PyTuple>,
    values: &[Borrowed<'_, 'py, PyAny>],
) -> Option<Made> {
    let py = x.py();
    let (request, stream) = requested(names, values)?;
    let copies = request.copy == Some(true);
    if let Some(stream) = stream {
        let is_other = Tensor::of(x).is_none();
        return is_other.then(|| on_stream(x, &request, stream).into());
    }
    // An array is on the CPU, and no copy.
    let array = (!copies).then(|| numpy::fast_if_array(x)).flatten();
    if let Some(snapshot) = array {
        return Some(Tensor::new(py, snapshot).into());
    }
    match cache::table(x) {
        Some((known, kind)) if !copies => {
            let snapshot = table::fast::<true>(x, known, kind, &request);
            let made = snapshot.and_then(|snapshot| Tensor::holding(py, snapshot));
            Some(made.into())
        }
        None if Tensor::of(x).is_some() => None,
        _ => Some(by_ladder(x, &request).into()),
    }
}

/// Imports for a stream.
#[inline(never)]
fn on_stream<'py>(
    x: &Bound<'py, PyAny>,
    request: &Request<'_, '_>,
    stream: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let asked = Asked::by_argument(stream);
    let stream = Some(&asked);
    by_ladder(x, &Request { stream, ..*request })
}

/// Imports what may run Python code, so PyO3 counts the attachment.
#[inline(never)]
fn by_ladder<'py>(x: &Bound<'py, PyAny>, request: &Request<'_, '_>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    counted(py, || {
        let snapshot = ladder::from_dlpack(x, request)?;
        Ok(Tensor::holding(py, snapshot)?.into_any())
    })
}
