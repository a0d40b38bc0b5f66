//! `dlx.launcher`: the work of a `borrow` in one call around a kernel's function.
//!
//! `python/dlx/_launcher.py` reads the signature of the function and makes the object, once.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::api::accepted::Accepted;
use crate::api::from_dlpack::{is_plain, is_tensor};
use crate::api::lent::glance;
use crate::api::loan::Loan;
use crate::api::pointer::{Pointer, address};
use crate::api::writing;
use crate::cpython::call::vectorcall;
use crate::cpython::lookup::lacks;
use crate::cpython::vector::{Arguments, ByVector, Entry, class, entry};
use crate::exchange::Table;
use crate::stream;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;

/// What the function gets in place of a tensor.
#[derive(Clone, Copy, PartialEq)]
enum Give {
    Address,
    Pointer,
    Tensor,
}

/// A function that launches a kernel; what `dlx.launcher` makes.
///
/// ``names`` are those of the parameters, and a byte of ``written`` tells of each whether its tensors are written to: first
/// those that may be passed by position, and last one for all other positional arguments and one for all other keywords.
/// ``dtype`` has a dtype for each, or is one for all. ``places`` are the number of parameters that may be passed by
/// position, the number of receivers, which are left alone, and the parameter that is the stream, or one beyond all.
/// ``on`` is a stream, or a function that tells it. ``note`` adds the name of an argument to an error.
#[pyclass(frozen, subclass, dict, weakref, module = "dlx._core")]
pub(crate) struct Launched {
    entry: Entry,
    function: Py<PyAny>,
    names: Py<PyTuple>,
    written: Vec<u8>,
    positional: usize,
    receivers: usize,
    stream: usize,
    give: Give,
    accepted: Option<Box<Accepted>>,
    on: Option<Py<PyAny>>,
    note: Py<PyAny>,
}

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

/// Return the class of launched functions, which are called by vector; made when it is first asked for.
#[pyfunction]
pub(crate) fn launched_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = CLASS.get_or_try_init(py, || {
        let sample = Launched {
            entry: entry::<Launched>,
            function: py.None(),
            names: PyTuple::empty(py).unbind(),
            written: Vec::new(),
            positional: 0,
            receivers: 0,
            stream: 0,
            give: Give::Tensor,
            accepted: None,
            on: None,
            note: py.None(),
        };
        let sample = Bound::new(py, sample)?;
        class(&sample, c"dlx._core.Launched").map(Bound::unbind)
    })?;
    Ok(made.bind(py))
}

impl Launched {
    /// The parameter that gets an argument.
    #[inline(always)]
    fn parameter(&self, arguments: &Arguments<'_, '_>, index: usize) -> PyResult<usize> {
        if index >= arguments.positional() {
            self.named(arguments, index)
        } else if index < self.positional {
            Ok(index)
        } else {
            Ok(self.written.len() - 2)
        }
    }

    /// The parameter that gets an argument with a name.
    #[inline(never)]
    fn named(&self, arguments: &Arguments<'_, '_>, index: usize) -> PyResult<usize> {
        let Some(names) = arguments.names else {
            return Ok(index);
        };
        let name = names.get_borrowed_item(index - arguments.positional())?;
        // The last two stand for all others.
        let others = self.written.len() - 2;
        let known = self.names.bind(name.py());
        for index in 0..others {
            if known.get_borrowed_item(index)?.is(&*name) {
                return Ok(index);
            }
        }
        for index in 0..others {
            if known.get_borrowed_item(index)?.eq(&name)? {
                return Ok(index);
            }
        }
        Ok(others + 1)
    }

    /// Whether one of the parameters is the stream.
    fn takes_stream(&self) -> bool {
        self.stream < self.written.len()
    }

    /// Which argument is the stream.
    #[inline(always)]
    fn stream_at(&self, arguments: &Arguments<'_, '_>) -> PyResult<Option<usize>> {
        if !self.takes_stream() {
            return Ok(None);
        }
        let positional = arguments.positional();
        if self.stream < positional.min(self.positional) {
            return Ok(Some(self.stream));
        }
        for index in positional..arguments.values.len() {
            if self.named(arguments, index)? == self.stream {
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
        if index < self.receivers {
            return Ok(Some(x.to_owned()));
        }
        if self.give == Give::Address
            && let Some(meta) = glance(&x)
        {
            let parameter = self.parameter(arguments, index)?;
            let accepted =
                (self.accepted.as_ref()).is_none_or(|accepted| accepted.has(parameter, meta.dtype));
            return match accepted && self.written[parameter] == 0 {
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
        let written = (self.written[parameter] != 0).then_some("the tensor");
        let accepted = self
            .accepted
            .as_deref()
            .map(|accepted| (accepted, parameter));
        let mut value = x.clone();
        if self.give == Give::Address {
            let place = call.lent.len();
            if let Some(snapshot) = call.loan.take(x, place, wanted, written, accepted)? {
                value = address(&snapshot)?.into_pyobject(x.py())?.into_any();
                call.held.push(snapshot);
            }
        } else {
            call.loan.lend(x, wanted, written, accepted)?;
        }
        call.taken.push(value);
        call.lent.push((index, parameter));
        Ok(())
    }

    /// Takes the arguments that have not been taken, and makes the stream of the call wait for the tensors; returns the names
    /// of the arguments. `at` is the argument that is the stream.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call<'_, 'py>,
        at: Option<usize>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let wanted = match (at, &self.on) {
            (Some(at), _) => Some(call.arguments.values[at].to_owned()),
            (None, Some(on)) if on.bind(py).is_callable() => Some(on.bind(py).call0()?),
            (None, on) => on.as_ref().map(|on| on.bind(py).clone()),
        };
        let wanted = wanted.filter(|wanted| !wanted.is_none());
        for index in call.taken.len() - 1..call.arguments.values.len() {
            let x = call.arguments.values[index];
            if at == Some(index) || index < self.receivers || is_plain(&x) || !is_lent(&x)? {
                call.taken.push(x.to_owned());
            } else if let Err(error) = self.lend(call, index, wanted.as_ref()) {
                let names = call.arguments.names;
                let arguments = (error.value(py), index, call.arguments.positional(), names);
                self.note.bind(py).call1(arguments)?;
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

    /// Makes the stream of the call wait for the tensors that were lent, and puts those into their places that had to wait
    /// for this.
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
        if self.give == Give::Address {
            call.loan.order(py)?;
            for (place, snapshot) in call.loan.ordered() {
                let (index, _) = call.lent[place];
                call.taken[index + 1] = address(snapshot)?.into_pyobject(py)?.into_any();
            }
            return Ok(());
        }
        call.loan.join(py)?;
        for (place, &(index, _)) in call.lent.iter().enumerate() {
            if let Some(view) = call.loan.view(py, place) {
                call.taken[index + 1] = match self.give {
                    Give::Pointer => Pointer::new(view)?.into_any(),
                    _ => view.into_any(),
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
        static ALONE: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
        let make = || Ok::<_, PyErr>(PyTuple::new(py, [intern!(py, "stream")])?.unbind());
        let alone = ALONE.get_or_try_init(py, make)?.bind(py);
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
        Python::attach(|_| {
            let views = match self.give {
                Give::Address => 0,
                _ => arguments.values.len(),
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
                    let context = intern!(py, "__context__");
                    error.value(py).setattr(context, raised.value(py))?;
                    Err(error)
                }
                (Ok(_), Err(error)) => Err(error),
                (result, _) => result,
            }
        })
    }

    /// Ends the loan: the streams of the tensors wait for that of the call, and torch learns what was written to.
    fn end<'py>(&self, py: Python<'py>, call: Call<'_, 'py>, has_run: bool) -> PyResult<()> {
        let mut ended = call.loan.end(py);
        for (index, parameter) in call.lent {
            if has_run && self.written[parameter] != 0 {
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
    fn new(
        function: Py<PyAny>,
        names: Py<PyTuple>,
        written: &[u8],
        places: (usize, usize, usize),
        give: usize,
        accepts: (Option<Bound<'_, PyAny>>, bool),
        on: Option<Py<PyAny>>,
        note: Py<PyAny>,
    ) -> PyResult<Self> {
        let (dtype, contiguous) = accepts;
        let accepted = Accepted::of(dtype.as_ref(), contiguous, None, written.len())?;
        let (positional, receivers, stream) = places;
        Ok(Self {
            entry: entry::<Self>,
            function,
            names,
            written: written.to_vec(),
            positional,
            receivers,
            stream,
            give: [Give::Address, Give::Pointer, Give::Tensor][give],
            accepted,
            on,
            note,
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.on)?;
        visit.call(&self.note)
    }
}
