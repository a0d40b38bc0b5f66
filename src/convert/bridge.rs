//! The fast path of a function made by `dlx.bridge`, for arguments of types that it has seen.
//!
//! `python/dlx/_functions/bridged.py` is the slow path, for containers, new types, and `out`.

#![forbid(unsafe_code)]

mod kind;

use std::mem::offset_of;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::adapters::torch;
use crate::api::from_dlpack::is_no_tensor;
use crate::convert::function::{as_asked, convert_detached};
use crate::convert::source::Options;
use crate::cpython::boundary::counted;
use crate::cpython::call::vectorcall;
use crate::cpython::lookup::is_subtype;
use crate::cpython::once::intern;
use crate::cpython::vector::{Arguments, ByVector, Entry, class, entry};
use crate::import::ladder::is_plain;
use crate::import::lend::lend_unordered;

pub(crate) use kind::{Kind, Types};

/// Return the address, shape, strides (in elements), dtype and device of a tensor of any library.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn placed<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = x.py();
    let snapshot = lend_unordered(x)?;
    let meta = snapshot.meta();
    (
        meta.data.addr(),
        PyTuple::new(py, snapshot.shape())?,
        PyTuple::new(py, snapshot.strides())?,
        meta.dtype.to_string(),
        meta.device.to_string(),
    )
        .into_pyobject(py)
}

/// A bridged function.
///
/// Arguments are converted to ``to``. ``seen`` maps the exact type of an argument to the `Kind` that results become,
/// unless ``result`` names one. The first ``receivers`` positional arguments are left alone, and ``out`` is the
/// position of the argument that is written in place. ``how`` is the pair of ``detach``, with which tensors that record
/// gradients are detached before they are converted, and ``share_readonly``. ``arguments`` has the methods of the slow
/// path. The object has the attributes in ``attributes``.
#[pyclass(frozen, subclass, weakref, module = "dlx._core")]
pub(crate) struct Bridged {
    entry: Entry,
    function: Py<PyAny>,
    to: Py<PyType>,
    seen: Py<Types>,
    result: Option<Py<Kind>>,
    receivers: usize,
    out: usize,
    detach: bool,
    options: Options,
    arguments: Py<PyAny>,
    attributes: Py<PyDict>,
}

/// Return a new class of bridged functions, which are called by vector.
#[pyfunction]
pub(crate) fn bridged_type(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    class::<Bridged>(py, c"dlx._core.Bridged")
}

#[pymethods]
impl Bridged {
    /// ``places`` is the pair of ``receivers`` and ``out``.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "what `dlx.bridge` finds out")]
    fn new(
        function: Py<PyAny>,
        to: Py<PyType>,
        seen: Py<Types>,
        result: Option<Py<Kind>>,
        places: (usize, usize),
        how: (bool, bool),
        arguments: Py<PyAny>,
        attributes: Py<PyDict>,
    ) -> Self {
        let (receivers, out) = places;
        let (detach, share_readonly) = how;
        Self {
            entry: entry::<Self>,
            function,
            to,
            seen,
            result,
            receivers,
            out,
            detach,
            options: Options {
                share_readonly,
                ..Options::default()
            },
            arguments,
            attributes,
        }
    }

    #[getter]
    fn __dict__(&self) -> &Py<PyDict> {
        &self.attributes
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.to)?;
        visit.call(&self.seen)?;
        visit.call(&self.result)?;
        visit.call(&self.arguments)?;
        visit.call(&self.attributes)
    }
}

impl ByVector for Bridged {
    const ENTRY: usize = offset_of!(Self, entry);

    /// Calls the function with converted arguments, and converts what it returns.
    fn call<'py>(
        &self,
        py: Python<'py>,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // PyO3 does not count the attachment of an entry (S20).
        counted(py, || self.called(py, arguments))
    }
}

impl Bridged {
    #[inline(always)]
    fn called<'py>(
        &self,
        py: Python<'py>,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (function, to, seen) = (self.function.bind(py), self.to.bind(py), self.seen.get());
        let mut kind = self.result.as_ref().map(|kind| kind.bind(py));
        let mut like: Option<&Bound<'py, PyAny>> = None;
        let (by_position, by_name) = arguments.values.split_at(arguments.positional);
        // The first place is that of the function's own use.
        let mut taken = Vec::with_capacity(arguments.values.len() + 1);
        taken.push(function.clone());
        for (position, x) in by_position.iter().enumerate() {
            let x: &Bound<'py, PyAny> = x;
            if position < self.receivers {
                taken.push(x.clone());
                continue;
            }
            if position == self.out {
                break;
            }
            let class = x.get_type_ptr();
            let Some(Some(known)) = seen.0.get(class) else {
                if is_plain(x) {
                    taken.push(x.clone());
                    continue;
                }
                break;
            };
            let known = known.bind(py);
            let own = known.get();
            // The class may have got other bases.
            if !is_subtype(class, own.to.bind(py)) {
                break;
            }
            let is_own =
                class == to.as_type_ptr() || is_subtype(class, to) && !torch::only_exports(x)?;
            taken.push(if is_own {
                x.clone()
            } else {
                match self.converted(x, to) {
                    Ok(converted) => converted,
                    // Its class is known by instances that were tensors.
                    Err(error) if is_no_tensor(x, &error)? => break,
                    Err(error) => {
                        let at = position.into_pyobject(py)?.into_any().unbind();
                        return self.noted(error, at, py);
                    }
                }
            });
            let kind = kind.get_or_insert(known);
            if like.is_none() && own.to.is(&kind.get().to) && own.likes(x)? {
                like = Some(x);
            }
        }
        if taken.len() <= by_position.len() || !are_plain(&arguments)? {
            return self.finish(taken, kind, like, &arguments);
        }
        taken.extend(by_name.iter().map(|&x| x.to_owned()));
        let result = vectorcall(function, &mut taken, arguments.names.as_deref())?;
        match kind {
            Some(kind) => self.give(kind, like, result),
            None => Ok(result),
        }
    }

    /// Calls the function with the other arguments converted by the slow path.
    #[cold]
    #[inline(never)]
    fn finish<'py>(
        &self,
        mut taken: Vec<Bound<'py, PyAny>>,
        kind: Option<&Bound<'py, Kind>>,
        like: Option<&Bound<'py, PyAny>>,
        arguments: &Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = taken.remove(0).py();
        let (by_position, by_name) = arguments.values.split_at(arguments.positional);
        let named = PyDict::new(py);
        let names = arguments.names.as_deref().into_iter().flatten();
        for (name, x) in names.zip(by_name) {
            named.set_item(name, x)?;
        }
        let (taken, all) = (PyList::new(py, taken)?, PyTuple::new(py, by_position)?);
        let (slow, given) = (self.arguments.bind(py), (taken, kind, like, all, named));
        slow.call_method1(intern!(py, "finish"), given)
    }

    /// Converts an argument or a result.
    fn converted<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        to: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.detach {
            convert_detached(x, to, &self.options)
        } else {
            as_asked(x, to, &self.options)
        }
    }

    /// Converts what the function returned to `kind`, like the argument `like` if there is one.
    fn give<'py>(
        &self,
        kind: &Bound<'py, Kind>,
        like: Option<&Bound<'py, PyAny>>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        let Kind { to, known, .. } = kind.get();
        let to = to.bind(py);
        match known.get().0.get(value.get_type_ptr()) {
            Some(_) if is_subtype(value.get_type_ptr(), to) => Ok(value),
            Some(_) => {
                let to = like.unwrap_or(to.as_any());
                match self.converted(&value, to) {
                    Err(error) if is_no_tensor(&value, &error)? => Ok(value),
                    made => made.or_else(|error| self.noted(error, py.None(), py)),
                }
            }
            None if is_plain(&value) => Ok(value),
            None => {
                let (slow, name) = (self.arguments.bind(py), intern!(py, "convert_result"));
                slow.call_method1(name, (kind, like, value))
            }
        }
    }

    /// `error`, with a note that names the argument at a position, or the result.
    #[cold]
    fn noted<T>(&self, error: PyErr, at: Py<PyAny>, py: Python<'_>) -> PyResult<T> {
        let arguments = self.arguments.bind(py);
        arguments.call_method1(intern!(py, "note"), (error.value(py), at))?;
        Err(error)
    }
}

/// Whether no keyword is ``out`` and every value is of a common non-tensor type.
fn are_plain(arguments: &Arguments<'_, '_>) -> PyResult<bool> {
    let Some(names) = &arguments.names else {
        return Ok(true);
    };
    let by_name = &arguments.values[arguments.positional..];
    for (name, x) in names.iter_borrowed().zip(by_name) {
        if !is_plain(x) || name.eq("out")? {
            return Ok(false);
        }
    }
    Ok(true)
}
