//! `dlx.launcher`: the work of a `borrow` in one call around a kernel's function.
//!
//! `python/dlx/_functions/launcher.py` reads the signature of the function and makes the object, once.

#![forbid(unsafe_code)]

mod lending;
mod taken;

use std::mem::offset_of;

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use self::taken::Taken;
use crate::api::accepted::Accepted;
use crate::cpython::once::{Once, intern};
use crate::cpython::vector::{Arguments, ByVector, Entry, class, entry};

/// A function that launches a kernel; what `dlx.launcher` makes.
///
/// ``dtype`` has a dtype for each parameter, or is one for all. All tensors are on ``one_device``. The function gets
/// addresses, or views, or what ``made`` makes of a view. ``stream`` is a stream, or a function that tells it. ``check`` is
/// called as the function, with views, and raises what it refuses. ``note`` adds the name of an argument to an error.
#[pyclass(frozen, subclass, weakref, module = "dlx._core")]
pub(crate) struct Launched {
    entry: Entry,
    function: Py<PyAny>,
    parameters: Parameters,
    has_addresses: bool,
    accepted: Option<Box<Accepted>>,
    one_device: bool,
    made: Option<Py<PyAny>>,
    stream: Option<Py<PyAny>>,
    check: Option<Py<PyAny>>,
    note: Py<PyAny>,
}

/// The parameters of the function, as `dlx._functions.launcher` numbers them: those that may be passed by position, other names, and
/// two for all other positional arguments and all other keywords.
struct Parameters {
    /// The number of each name.
    numbers: Py<PyDict>,
    /// How many may be passed by position.
    by_position: usize,
    /// How many receivers are left alone.
    receivers: usize,
    /// Which one is the stream.
    stream: Option<usize>,
    /// Whether tensors of each are written to.
    written: Vec<bool>,
    /// Whether an option names each: it takes tensors and addresses.
    tensors: Vec<bool>,
    /// Whether those of each may be missing: None is its default.
    optional: Vec<bool>,
}

impl<'py> FromPyObject<'_, 'py> for Parameters {
    type Error = PyErr;

    fn extract(said: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            numbers: said.getattr("numbers")?.extract()?,
            by_position: said.getattr("by_position")?.extract()?,
            receivers: said.getattr("receivers")?.extract()?,
            stream: said.getattr("stream")?.extract()?,
            written: said.getattr("written")?.extract()?,
            tensors: said.getattr("tensors")?.extract()?,
            optional: said.getattr("optional")?.extract()?,
        })
    }
}

impl Parameters {
    /// Whether those that a call looks up are all there.
    fn are_there(&self, py: Python<'_>) -> bool {
        let count = self.written.len();
        let is_there =
            |number: Bound<'_, PyAny>| number.extract().is_ok_and(|at: usize| at < count);
        self.optional.len() == count
            && self.tensors.len() == count
            && self.by_position.saturating_add(2) <= count
            && self.numbers.bind(py).values().iter().all(is_there)
    }
}

/// Return a new class of launched functions, which are called by vector.
#[pyfunction]
pub(crate) fn launched_type(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    class::<Launched>(py, c"dlx._core.Launched")
}

impl Launched {
    /// The parameter that gets an argument.
    #[inline(always)]
    fn parameter(&self, arguments: &Arguments<'_, '_>, index: usize) -> PyResult<usize> {
        if index >= arguments.positional {
            self.named(arguments, index)
        } else if index < self.parameters.by_position {
            Ok(index)
        } else {
            Ok(self.parameters.written.len() - 2)
        }
    }

    /// The parameter that gets an argument with a name.
    #[inline(never)]
    fn named(&self, arguments: &Arguments<'_, '_>, index: usize) -> PyResult<usize> {
        let (Some(x), Some(names)) = (arguments.values.get(index), arguments.names) else {
            return Ok(index);
        };
        let name = names.get_borrowed_item(index - arguments.positional)?;
        match self.parameters.numbers.bind(x.py()).get_item(name)? {
            Some(number) => number.extract(),
            None => Ok(self.parameters.written.len() - 1),
        }
    }

    /// Whether an argument is None in place of a tensor to write to: a kernel would write there.
    #[inline(always)]
    fn is_missing(&self, arguments: &Arguments<'_, '_>, index: usize) -> PyResult<bool> {
        if !arguments.values[index].is_none() {
            return Ok(false);
        }
        let parameter = self.parameter(arguments, index)?;
        Ok(self.parameters.written[parameter] && !self.parameters.optional[parameter])
    }

    /// Whether an argument is a receiver, which comes by position.
    fn is_receiver(&self, arguments: &Arguments<'_, '_>, index: usize) -> bool {
        index < self.parameters.receivers.min(arguments.positional)
    }

    /// Which argument is the stream.
    #[inline(always)]
    fn stream_at(&self, arguments: &Arguments<'_, '_>) -> PyResult<Option<usize>> {
        let Some(stream) = self.parameters.stream else {
            return Ok(None);
        };
        let positional = arguments.positional;
        if stream < positional.min(self.parameters.by_position) {
            return Ok(Some(stream));
        }
        for index in positional..arguments.values.len() {
            if self.named(arguments, index)? == stream {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Adds the stream to what the function gets; returns the names of the arguments.
    #[inline(never)]
    fn with_stream<'py>(
        &self,
        py: Python<'py>,
        taken: &mut Vec<Bound<'py, PyAny>>,
        names: Option<&Bound<'py, PyTuple>>,
        at: Option<usize>,
        stream: i64,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        static ALONE: Once<Py<PyTuple>> = Once::new();
        let stream = stream.into_pyobject(py)?.into_any();
        if let Some(at) = at {
            taken[at + 1] = stream;
            return Ok(names.cloned());
        }
        taken.push(stream);
        let alone = ALONE.get_or_try_init(py, || {
            Ok::<_, PyErr>(PyTuple::new(py, [intern!(py, "stream")])?.unbind())
        });
        let alone = alone?.bind(py);
        let Some(names) = names else {
            return Ok(Some(alone.clone()));
        };
        let all = names.as_sequence().concat(alone.as_sequence())?;
        all.to_tuple().map(Some)
    }
}

impl ByVector for Launched {
    const ENTRY: usize = offset_of!(Self, entry);

    fn call<'py>(
        &self,
        py: Python<'py>,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function.bind(py);
        let at = self.stream_at(&arguments)?;
        let mut values = Vec::with_capacity(arguments.values.len() + 2);
        values.push(function.clone());
        // With these, a call is always a loan.
        if at.is_some() || self.stream.is_some() || self.check.is_some() {
            return self.call_lending(arguments, values, at);
        }
        let mut taken = Taken::new(values);
        for index in 0..arguments.values.len() {
            if !self.take(&arguments, index, &mut taken)? {
                taken.values.truncate(1);
                return self.call_lending(arguments, taken.values, at);
            }
        }
        match self.agreed(py, &taken)? {
            Some(then) => self.call_taken(py, &arguments, taken, then),
            None => {
                taken.values.truncate(1);
                self.call_lending(arguments, taken.values, at)
            }
        }
    }
}

#[pymethods]
impl Launched {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "what `dlx.launcher` finds out")]
    fn new(
        py: Python<'_>,
        function: Py<PyAny>,
        parameters: Parameters,
        dtype: Option<&Bound<'_, PyAny>>,
        contiguous: bool,
        align: Option<i64>,
        one_device: bool,
        has_addresses: bool,
        made: Option<Py<PyAny>>,
        stream: Option<Py<PyAny>>,
        check: Option<Py<PyAny>>,
        note: Py<PyAny>,
    ) -> PyResult<Self> {
        if !parameters.are_there(py) {
            return Err(PyValueError::new_err("dlx.launcher makes these objects"));
        }
        let count = parameters.written.len();
        Ok(Self {
            entry: entry::<Self>,
            accepted: Accepted::of(dtype, contiguous, align, count)?,
            function,
            parameters,
            has_addresses,
            one_device,
            made,
            stream,
            check,
            note,
        })
    }

    #[getter]
    fn __wrapped__(&self) -> &Py<PyAny> {
        &self.function
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.stream)?;
        visit.call(&self.made)?;
        visit.call(&self.check)?;
        visit.call(&self.note)
    }
}
