//! `dlx.launcher`: the work of a `borrow` in one call around a kernel's function.
//!
//! `python/dlx/_launcher.py` reads the signature of the function and makes the object, once.

#![forbid(unsafe_code)]

mod lending;

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::api::accepted::Accepted;
use crate::api::from_dlpack::is_plain;
use crate::cpython::call::vectorcall;
use crate::cpython::vector::{Arguments, ByVector, Entry, class, entry};
use crate::import::view;

/// A function that launches a kernel; what `dlx.launcher` makes.
///
/// ``names`` has the number of each parameter, and ``last`` is ``("stream",)``. The bytes of ``places`` are how many may be
/// passed by position, how many receivers are left alone, and which one is the stream (`NONE` for none); then, of each
/// parameter, whether its tensors are written to, at the end of all other positional arguments and of all other keywords.
/// ``dtype`` has a dtype for each, or is one for all. All tensors are on ``one_device``. The function gets addresses, or views, or what ``made`` makes of a
/// view. ``on`` is a stream, or a function that tells it. ``note`` adds the name of an argument to an error.
#[pyclass(frozen, subclass, weakref, module = "dlx._core")]
pub(crate) struct Launched {
    entry: Entry,
    function: Py<PyAny>,
    names: Py<PyDict>,
    last: Py<PyTuple>,
    places: Vec<u8>,
    has_addresses: bool,
    accepted: Option<Box<Accepted>>,
    one_device: bool,
    made: Option<Py<PyAny>>,
    on: Option<Py<PyAny>>,
    note: Option<Py<PyAny>>,
}

/// Where the parameters begin in `places`.
const FIRST: usize = 3;
/// No parameter.
const NONE: usize = 255;

/// The number of parameters in `places`, if those that a call looks up are all there.
fn counted(places: &[u8], names: &Bound<'_, PyDict>) -> Option<usize> {
    let [by_position, _, _, parameters @ ..] = places else {
        return None;
    };
    let count = parameters.len();
    let is_there = |number: Bound<'_, PyAny>| number.extract().is_ok_and(|at: usize| at < count);
    (usize::from(*by_position) + 2 <= count && names.values().iter().all(is_there)).then_some(count)
}

/// Return a new class of launched functions, which are called by vector.
#[pyfunction]
pub(crate) fn launched_type(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let sample = Launched {
        entry: entry::<Launched>,
        function: py.None(),
        names: PyDict::new(py).unbind(),
        last: PyTuple::empty(py).unbind(),
        places: Vec::new(),
        has_addresses: false,
        accepted: None,
        one_device: true,
        made: None,
        on: None,
        note: None,
    };
    class(&Bound::new(py, sample)?, c"dlx._core.Launched")
}

impl Launched {
    /// The parameter that gets an argument.
    #[inline(always)]
    fn parameter(&self, arguments: &Arguments<'_, '_>, index: usize) -> PyResult<usize> {
        if index >= arguments.positional() {
            self.named(arguments, index)
        } else if index < usize::from(self.places[0]) {
            Ok(index)
        } else {
            Ok(self.places.len() - FIRST - 2)
        }
    }

    /// The parameter that gets an argument with a name.
    #[inline(never)]
    fn named(&self, arguments: &Arguments<'_, '_>, index: usize) -> PyResult<usize> {
        let (Some(x), Some(names)) = (arguments.values.get(index), arguments.names) else {
            return Ok(index);
        };
        let name = names.get_borrowed_item(index - arguments.positional())?;
        match self.names.bind(x.py()).get_item(name)? {
            Some(number) => number.extract(),
            None => Ok(self.places.len() - FIRST - 1),
        }
    }

    /// Whether tensors of a parameter are written to.
    fn is_written(&self, parameter: usize) -> bool {
        self.places[FIRST + parameter] != 0
    }

    /// The parameter that is the stream.
    fn stream(&self) -> usize {
        self.places[2].into()
    }

    /// Whether an argument is a receiver, which comes by position.
    fn is_receiver(&self, arguments: &Arguments<'_, '_>, index: usize) -> bool {
        index < usize::from(self.places[1]).min(arguments.positional())
    }

    /// Whether a parameter is the stream.
    fn takes_stream(&self) -> bool {
        self.stream() != NONE
    }

    /// Which argument is the stream.
    #[inline(always)]
    fn stream_at(&self, arguments: &Arguments<'_, '_>) -> PyResult<Option<usize>> {
        if !self.takes_stream() {
            return Ok(None);
        }
        let positional = arguments.positional();
        if self.stream() < positional.min(self.places[0].into()) {
            return Ok(Some(self.stream()));
        }
        for index in positional..arguments.values.len() {
            if self.named(arguments, index)? == self.stream() {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Takes one argument, if nothing has to be held, ordered or refused for it.
    #[inline(always)]
    fn take<'py>(
        &self,
        arguments: &Arguments<'_, 'py>,
        index: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let x = arguments.values[index];
        if self.is_receiver(arguments, index) {
            return Ok(Some(x.to_owned()));
        }
        if self.has_addresses
            && let Some(meta) = view::row_major(&x)
        {
            let parameter = self.parameter(arguments, index)?;
            let accepted =
                (self.accepted.as_ref()).is_none_or(|accepted| accepted.has(parameter, meta.dtype));
            return match accepted && !self.is_written(parameter) {
                true => Ok(Some(meta.data.addr().into_pyobject(x.py())?.into_any())),
                false => Ok(None),
            };
        }
        Ok(is_plain(&x).then(|| x.to_owned()))
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
        let stream = stream.into_pyobject(py)?.into_any();
        if let Some(at) = at {
            taken[at + 1] = stream;
            return Ok(names.cloned());
        }
        taken.push(stream);
        let alone = self.last.bind(py);
        Ok(Some(match names {
            None => alone.clone(),
            Some(names) => names
                .as_sequence()
                .concat(alone.as_sequence())?
                .to_tuple()?,
        }))
    }
}

impl ByVector for Launched {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function.bind(py);
        let at = self.stream_at(&arguments)?;
        let mut taken = Vec::with_capacity(arguments.values.len() + 2);
        taken.push(function.clone());
        if at.is_none() && self.on.is_none() {
            for index in 0..arguments.values.len() {
                match self.take(&arguments, index)? {
                    Some(value) => taken.push(value),
                    None => return self.call_lending(arguments, taken, at),
                }
            }
            if !self.takes_stream() {
                return vectorcall(function, &mut taken, arguments.names);
            }
            let names = self.with_stream(py, &mut taken, arguments.names, None, 0)?;
            return vectorcall(function, &mut taken, names.as_ref());
        }
        self.call_lending(arguments, taken, at)
    }
}

#[pymethods]
impl Launched {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "what `dlx.launcher` finds out")]
    fn new(
        py: Python<'_>,
        function: Py<PyAny>,
        names: Py<PyDict>,
        last: Py<PyTuple>,
        places: &[u8],
        dtype: Option<&Bound<'_, PyAny>>,
        contiguous: bool,
        one_device: bool,
        has_addresses: bool,
        made: Option<Py<PyAny>>,
        on: Option<Py<PyAny>>,
        note: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let count = counted(places, names.bind(py))
            .ok_or_else(|| PyValueError::new_err("dlx.launcher makes these objects"))?;
        Ok(Self {
            entry: entry::<Self>,
            accepted: Accepted::of(dtype, contiguous, None, count)?,
            places: places.to_vec(),
            function,
            names,
            last,
            has_addresses,
            one_device,
            made,
            on,
            note,
        })
    }

    #[getter]
    fn __wrapped__(&self) -> &Py<PyAny> {
        &self.function
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.on)?;
        visit.call(&self.made)?;
        visit.call(&self.note)
    }
}
