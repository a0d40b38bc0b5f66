//! `dlx.launcher`: the work of a `borrow` in one call around a kernel's function.
//!
//! `python/dlx/_launcher.py` reads the signature of the function and makes the object, once.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::api::accepted::Accepted;
use crate::api::from_dlpack::{is_plain, is_tensor};
use crate::api::lent::glance;
use crate::api::loan::Loan;
use crate::api::writing;
use crate::cpython::call::{call_with, vectorcall};
use crate::cpython::lookup::lacks;
use crate::cpython::vector::{Arguments, ByVector, Entry, class, entry};
use crate::exchange::Table;
use crate::stream;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;

/// A function that launches a kernel; what `dlx.launcher` makes.
///
/// ``names`` has the number of each parameter, and ``last`` is ``("stream",)``. The bytes of ``places`` are how many may be
/// passed by position, how many receivers are left alone, and which one is the stream (`NONE` for none); then, of each
/// parameter, whether its tensors are written to, at the end of all other positional arguments and of all other keywords.
/// ``dtype`` has a dtype for each, or is one for all. The function gets addresses, or views, or what ``made`` makes of a
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
    made: Option<Py<PyAny>>,
    on: Option<Py<PyAny>>,
    note: Option<Py<PyAny>>,
}

/// Where the parameters begin in `places`.
const FIRST: usize = 3;
/// No parameter.
const NONE: usize = 255;

/// One call.
struct Call<'a, 'py> {
    /// What the function gets, after a place that it may use.
    taken: Vec<Bound<'py, PyAny>>,
    /// The tensors that the loan knows: which argument each is, and which parameter.
    lent: Vec<(usize, usize)>,
    loan: Loan,
    /// Memory of tensors on the CPU.
    held: Vec<Snapshot>,
    arguments: Arguments<'a, 'py>,
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
            && let Some(meta) = glance(&x)
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

    /// Lends the tensor that is an argument.
    fn lend<'py>(
        &self,
        call: &mut Call<'_, 'py>,
        index: usize,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let x = &*call.arguments.values[index];
        let parameter = self.parameter(&call.arguments, index)?;
        let written = self.is_written(parameter).then_some("the tensor");
        let accepted = self
            .accepted
            .as_deref()
            .map(|accepted| (accepted, parameter));
        let mut value = x.clone();
        if self.has_addresses {
            let place = call.lent.len();
            if let Some(snapshot) = call.loan.take(x, place, wanted, written, accepted)? {
                value = address(x.py(), &snapshot)?;
                call.held.push(snapshot);
            }
        } else {
            call.loan.lend(x, wanted, written, accepted)?;
        }
        call.taken.push(value);
        call.lent.push((index, parameter));
        Ok(())
    }

    /// Takes the arguments that have not been taken, and makes the stream of the call wait for the tensors; returns the
    /// names of the arguments. `at` is the argument that is the stream.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call<'_, 'py>,
        at: Option<usize>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let wanted = match (at, &self.on) {
            (Some(at), _) => Some(call.arguments.values[at].to_owned()),
            (None, Some(on)) if on.bind(py).is_callable() => Some(call_with(on.bind(py), &[])?),
            (None, on) => on.as_ref().map(|on| on.bind(py).clone()),
        };
        let wanted = wanted.filter(|wanted| !wanted.is_none());
        for index in call.taken.len() - 1..call.arguments.values.len() {
            let x = call.arguments.values[index];
            let is_passed_on = at == Some(index) || self.is_receiver(&call.arguments, index);
            if is_passed_on || is_plain(&x) || !is_lent(&x)? {
                call.taken.push(x.to_owned());
            } else if let Err(error) = self.lend(call, index, wanted.as_ref()) {
                let names = call.arguments.names;
                let arguments = (error.value(py), index, call.arguments.positional(), names);
                if let Some(note) = &self.note {
                    note.bind(py).call1(arguments)?;
                }
                return Err(error);
            }
        }
        if !call.lent.is_empty() || wanted.is_some() {
            self.order(py, call, wanted.as_ref())?;
        }
        let names = call.arguments.names;
        if !self.takes_stream() {
            return Ok(names.cloned());
        }
        let stream = call.loan.stream().map_or(0, stream::Stream::handle);
        self.with_stream(py, &mut call.taken, names, at, stream)
    }

    /// Makes the stream of the call wait for the tensors that were lent, and puts those into their places that had to
    /// wait for this.
    #[inline(never)]
    fn order<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call<'_, 'py>,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let has_stream = call.loan.stream().is_some();
        if call.loan.needs_no_stream() {
            stream::wanted(wanted, device::CPU)?;
        } else if has_stream && wanted.is_none() && !self.takes_stream() {
            return Err(PyBufferError::new_err(
                "nothing says which stream the function launches on; give it a parameter stream, or pass on= to \
                 dlx.launcher",
            ));
        } else if !has_stream && self.takes_stream() {
            return Err(PyValueError::new_err(
                "stream=-1 orders nothing and names no stream to launch on; pass a stream",
            ));
        }
        if self.has_addresses {
            call.loan.order(py)?;
            for (place, snapshot) in call.loan.ordered() {
                let (index, _) = call.lent[place];
                call.taken[index + 1] = address(py, snapshot)?;
            }
            return Ok(());
        }
        call.loan.join(py)?;
        for (place, &(index, _)) in call.lent.iter().enumerate() {
            if let Some(view) = call.loan.view(py, place) {
                call.taken[index + 1] = match &self.made {
                    Some(made) => call_with(made.bind(py), &[view.as_any()])?,
                    None => view.into_any(),
                };
            }
        }
        Ok(())
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

    /// Calls the function, whose first arguments have been taken, with the others lent.
    #[inline(never)]
    fn call_lending<'py>(
        &self,
        arguments: Arguments<'_, 'py>,
        taken: Vec<Bound<'py, PyAny>>,
        at: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // PyO3 does not count the attachment of an entry (S20).
        let py = taken[0].py();
        let made = Python::try_attach(|_| {
            let views = match self.has_addresses {
                true => 0,
                false => arguments.values.len(),
            };
            let mut call = Call {
                taken,
                lent: Vec::new(),
                loan: Loan::of(views),
                held: Vec::new(),
                arguments,
            };
            let begun = self.begin(py, &mut call, at);
            let has_run = begun.is_ok();
            let result = begun.and_then(|names| {
                vectorcall(self.function.bind(py), &mut call.taken, names.as_ref())
            });
            let ended = self.end(py, call, has_run);
            match (result, ended) {
                (Err(raised), Err(error)) if has_run => {
                    error.value(py).setattr("__context__", raised.value(py))?;
                    Err(error)
                }
                (Ok(_), Err(error)) => Err(error),
                (result, _) => result,
            }
        });
        made.unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is exiting")))
    }

    /// Ends the loan: the streams of the tensors wait for that of the call, and torch learns what was written to.
    fn end<'py>(&self, py: Python<'py>, call: Call<'_, 'py>, has_run: bool) -> PyResult<()> {
        let mut ended = call.loan.end(py);
        for (index, parameter) in call.lent {
            if has_run && self.is_written(parameter) {
                ended = ended.and(writing::increment_version(&call.arguments.values[index]));
            }
        }
        ended
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

/// The address of the first element, or the handle of the buffer object that begins with it.
fn address<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyAny>> {
    let meta = snapshot.meta();
    if meta.byte_offset != 0 {
        let error = "the tensor begins inside of a buffer object, where there is no address; pass one that begins with it";
        return Err(PyBufferError::new_err(error));
    }
    Ok(meta.data.addr().into_pyobject(py)?.into_any())
}

/// Whether `x`, which is no number or string, is a tensor.
fn is_lent(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (py, class) = (x.py(), x.get_type());
    let interface = intern!(py, "__cuda_array_interface__");
    if Table::is_absent(&class) && lacks(&class, &[intern!(py, "__dlpack__"), interface]) {
        return Ok(false);
    }
    Ok(is_tensor(x)? || class.hasattr(interface)?)
}

#[pymethods]
impl Launched {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "what `dlx.launcher` finds out")]
    fn new(
        function: Py<PyAny>,
        names: Py<PyDict>,
        last: Py<PyTuple>,
        places: &[u8],
        dtype: Option<&Bound<'_, PyAny>>,
        contiguous: bool,
        has_addresses: bool,
        made: Option<Py<PyAny>>,
        on: Option<Py<PyAny>>,
        note: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            entry: entry::<Self>,
            accepted: Accepted::of(dtype, contiguous, None, places.len() - FIRST)?,
            places: places.to_vec(),
            function,
            names,
            last,
            has_addresses,
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
