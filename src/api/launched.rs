//! `dlx.launcher`: the work of a `borrow` in one call around a kernel's function.
//!
//! `python/dlx/_launcher.py` reads the signature of the function and makes the object, once.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};

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
/// ``parameters`` has the name of each parameter, and whether its tensors are written to: first those that may be passed
/// by position, ``positional`` of them, and last one for all other positional arguments and one for all other keywords.
/// ``dtype`` has a dtype for each, or is one for all. ``stream`` is which of them is the stream, and
/// ``receivers`` how many are left alone. ``on`` is a stream, or a function that tells it.
#[pyclass(frozen, subclass, dict, weakref, module = "dlx._core")]
pub(crate) struct Launched {
    entry: Entry,
    function: Py<PyAny>,
    on: Option<Py<PyAny>>,
    parameters: Vec<(Py<PyString>, bool)>,
    positional: usize,
    receivers: usize,
    stream: Option<usize>,
    give: Give,
    accepted: Option<Box<Accepted>>,
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
        let parameters: [(&str, bool); 0] = [];
        let sample = py.get_type::<Launched>().call1((py.None(), parameters))?;
        class::<Launched>(sample.cast()?, c"dlx._core.Launched").map(Bound::unbind)
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
            Ok(self.parameters.len() - 2)
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
        let others = self.parameters.len() - 2;
        let known = &self.parameters[..others];
        if let Some(index) = known.iter().position(|(known, _)| known.is(&*name)) {
            return Ok(index);
        }
        for (index, (known, _)) in known.iter().enumerate() {
            if name.eq(known)? {
                return Ok(index);
            }
        }
        Ok(others + 1)
    }

    /// Which argument is the stream.
    #[inline(always)]
    fn stream_at(&self, arguments: &Arguments<'_, '_>) -> PyResult<Option<usize>> {
        let Some(stream) = self.stream else {
            return Ok(None);
        };
        let positional = arguments.positional();
        if stream < positional.min(self.positional) {
            return Ok(Some(stream));
        }
        for index in positional..arguments.values.len() {
            if self.named(arguments, index)? == stream {
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
            return match accepted && !self.parameters[parameter].1 {
                true => Ok(Some(meta.data.addr().into_pyobject(x.py())?.into_any())),
                false => Ok(None),
            };
        }
        Ok(is_plain(&x).then(|| x.to_owned()))
    }

    /// Lends an argument, if it is a tensor.
    fn lend<'py>(
        &self,
        call: &mut Call<'_, 'py>,
        index: usize,
        wanted: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let x = &*call.arguments.values[index];
        if !is_lent(x)? {
            call.taken.push(x.clone());
            return Ok(());
        }
        let parameter = self.parameter(&call.arguments, index)?;
        let written = self.parameters[parameter].1.then_some("the tensor");
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
            if at == Some(index) {
                call.taken.push(call.arguments.values[index].to_owned());
            } else if let Some(value) = self.take(&call.arguments, index)? {
                call.taken.push(value);
            } else if let Err(error) = self.lend(call, index, wanted.as_ref()) {
                return Err(self.noted(py, call, error, index));
            }
        }
        if !call.lent.is_empty() || wanted.is_some() {
            self.order(py, call, wanted.as_ref())?;
        }
        let stream = call.loan.stream().map_or(0, stream::Stream::handle);
        self.with_stream(py, &mut call.taken, call.arguments.names, at, stream)
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
        } else if has_stream && wanted.is_none() && self.stream.is_none() {
            return Err(PyBufferError::new_err(format!(
                "nothing says which stream {} launches on; give it a parameter stream, or pass on= to dlx.launcher",
                self.name(py)
            )));
        } else if !has_stream && self.stream.is_some() {
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

    /// Adds the stream to what the function gets, if it takes one; returns the names of the arguments.
    #[inline(always)]
    fn with_stream<'py>(
        &self,
        py: Python<'py>,
        taken: &mut Vec<Bound<'py, PyAny>>,
        names: Option<&Bound<'py, PyTuple>>,
        at: Option<usize>,
        stream: i64,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        static ALONE: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
        let names = names.cloned();
        if self.stream.is_none() {
            return Ok(names);
        }
        let stream = stream.into_pyobject(py)?.into_any();
        if let Some(at) = at {
            taken[at + 1] = stream;
            return Ok(names);
        }
        taken.push(stream);
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
            if has_run && self.parameters[parameter].1 {
                ended = ended.and(writing::increment_version(&call.arguments.values[index]));
            }
        }
        ended
    }

    /// The name of the function.
    #[cold]
    fn name(&self, py: Python<'_>) -> String {
        let function = self.function.bind(py);
        let name = function.getattr(intern!(py, "__qualname__"));
        name.unwrap_or_else(|_| function.clone()).to_string()
    }

    /// `error`, with a note that names the argument which caused it.
    #[cold]
    fn noted<'py>(
        &self,
        py: Python<'py>,
        call: &Call<'_, 'py>,
        error: PyErr,
        index: usize,
    ) -> PyErr {
        let note = || {
            let positional = call.arguments.positional();
            let name = match call.arguments.names {
                Some(names) if index >= positional => names.get_item(index - positional)?,
                _ if index < self.positional => {
                    self.parameters[index].0.bind(py).clone().into_any()
                }
                _ => index.into_pyobject(py)?.into_any(),
            };
            let note = format!("argument {name} of {}", self.name(py));
            (error.value(py)).call_method1(intern!(py, "add_note"), (note,))
        };
        match note() {
            Ok(_) => error,
            Err(other) => other,
        }
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
    #[pyo3(signature = (function, parameters, positional=0, receivers=0, stream=None, give="tensor", dtype=None, contiguous=false, on=None))]
    #[allow(
        clippy::too_many_arguments,
        reason = "what `dlx.launcher` finds out of a function"
    )]
    fn new(
        function: Py<PyAny>,
        parameters: Vec<(Py<PyString>, bool)>,
        positional: usize,
        receivers: usize,
        stream: Option<usize>,
        give: &str,
        dtype: Option<&Bound<'_, PyAny>>,
        contiguous: bool,
        on: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let accepted = Accepted::of(dtype, contiguous, None, parameters.len())?;
        let give = match give {
            "address" => Give::Address,
            "pointer" => Give::Pointer,
            "tensor" => Give::Tensor,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "give is '{give}'; expected 'address', 'pointer' or 'tensor'"
                )));
            }
        };
        Ok(Self {
            entry: entry::<Self>,
            function,
            on,
            parameters,
            positional,
            receivers,
            stream,
            give,
            accepted,
        })
    }

    /// A method of ``instance``.
    fn __get__<'py>(
        slf: Bound<'py, Self>,
        instance: Bound<'py, PyAny>,
        _owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if instance.is_none() {
            return Ok(slf.into_any());
        }
        let py = slf.py();
        let bind = (py.import("types")?).getattr(intern!(py, "MethodType"))?;
        bind.call1((slf, instance))
    }

    /// From 3.14 on ``functools.update_wrapper`` copies no annotations: they are lazy.
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match name {
            "__annotations__" => self.function.bind(py).getattr(name),
            _ => Err(PyAttributeError::new_err(format!(
                "a launched function has no attribute '{name}'"
            ))),
        }
    }

    /// By reference, like functions.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.getattr(intern!(slf.py(), "__qualname__"))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<dlx.launcher of {}>", self.name(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.on)
    }
}
