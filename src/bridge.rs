//! The short way of a function that `dlx.bridge` made, for arguments of types that it has seen.
//!
//! `python/dlx/_bridge.py` goes on where this way ends: at containers, new types, and what is written in place.

#![forbid(unsafe_code)]

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::convert::convert;

/// One kind of tensor, ``to``, for the results of a call with arguments of one type, or for those arguments.
///
/// ``known`` says by exact type which objects are converted to become one. ``foreign`` says it of the arguments.
#[pyclass(frozen, subclass, module = "dlx._core")]
pub(crate) struct Kind {
    #[pyo3(get)]
    to: Py<PyAny>,
    #[pyo3(get)]
    known: Py<PyDict>,
    foreign: bool,
}

#[pymethods]
impl Kind {
    #[new]
    fn new(to: Py<PyAny>, known: Py<PyDict>, foreign: bool) -> Self {
        Self { to, known, foreign }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.to)?;
        visit.call(&self.known)
    }
}

/// What a function returned, as `kind` says.
fn give<'py>(kind: &Bound<'py, Kind>, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let Kind { to, known, .. } = kind.get();
    match known.bind(py).get_item(value.get_type())? {
        Some(foreign) if foreign.is_truthy()? => convert(&value, to.bind(py), None, None),
        Some(_) => Ok(value),
        None => kind.call_method1(intern!(py, "give"), (value,)),
    }
}

/// A function, and how it is called.
///
/// ``to`` is what its arguments become. ``seen`` gives, by their exact type, the `Kind` that results become, unless
/// ``result`` names one; None for what is no tensor. ``receivers`` positional arguments are left alone, and ``out``
/// is the position of what is written in place. ``arguments`` has the methods that go on.
///
/// It has no attributes of its own: those that it shows are the function's.
#[pyclass(frozen, subclass, module = "dlx._core")]
pub(crate) struct Bridged {
    function: Py<PyAny>,
    to: Py<PyAny>,
    seen: Py<PyDict>,
    result: Option<Py<Kind>>,
    receivers: usize,
    out: usize,
    arguments: Py<PyAny>,
}

#[pymethods]
impl Bridged {
    #[new]
    fn new(
        function: Py<PyAny>,
        to: Py<PyAny>,
        seen: Py<PyDict>,
        result: Option<Py<Kind>>,
        receivers: usize,
        out: usize,
        arguments: Py<PyAny>,
    ) -> Self {
        Self {
            function,
            to,
            seen,
            result,
            receivers,
            out,
            arguments,
        }
    }

    /// Call the function with its arguments converted, and convert what it returns.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let (to, seen, arguments) = (
            self.to.bind(py),
            self.seen.bind(py),
            self.arguments.bind(py),
        );
        let mut kind = self.result.as_ref().map(|kind| kind.bind(py).clone());
        let mut taken = Vec::with_capacity(args.len());
        for (position, x) in args.iter_borrowed().enumerate() {
            if position < self.receivers {
                taken.push(x.to_owned());
                continue;
            }
            let known = match position == self.out {
                true => None,
                false => seen.get_item(x.get_type())?,
            };
            let Some(known) = known else {
                break;
            };
            let known = known.cast_into::<Kind>().ok();
            taken.push(match &known {
                Some(known) if known.get().foreign => {
                    let converted = convert(&x, to, None, None);
                    converted.or_else(|error| {
                        arguments.call_method1(intern!(py, "note"), (error.value(py), position))?;
                        Err(error)
                    })?
                }
                _ => x.to_owned(),
            });
            kind = kind.or(known);
        }
        if taken.len() < args.len() || !self.are_plain(kwargs)? {
            let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
            let taken = PyList::new(py, taken)?;
            return arguments.call_method1(intern!(py, "finish"), (taken, kind, args, kwargs));
        }
        let result = self
            .function
            .bind(py)
            .call(PyTuple::new(py, taken)?, kwargs)?;
        match kind {
            Some(kind) => give(&kind, result),
            None => Ok(result),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.to)?;
        visit.call(&self.seen)?;
        visit.call(&self.result)?;
        visit.call(&self.arguments)
    }
}

impl Bridged {
    /// Whether these are no tensors, for sure.
    fn are_plain(&self, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
        let Some(kwargs) = kwargs else {
            return Ok(true);
        };
        let seen = self.seen.bind(kwargs.py());
        for (name, x) in kwargs {
            let known = seen.get_item(x.get_type())?;
            if !known.is_some_and(|known| known.is_none()) || name.eq("out")? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
