//! A call of a launched function with tensors that have to be held, ordered or checked: a loan, as that of a block.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyString, PyTuple};

use super::Launched;
use crate::abi::DLDevice;
use crate::api::from_dlpack::is_of_tensors;
use crate::api::loan::Loan;
use crate::api::writing;
use crate::cpython::boundary::counted;
use crate::cpython::call::{call_with, vectorcall};
use crate::cpython::lookup::lacks;
use crate::cpython::once::intern;
use crate::cpython::vector::Arguments;
use crate::import::ladder::is_plain;
use crate::stream;
use crate::tensor::object::Tensor;
use crate::types::device;
use crate::types::error::{is_urgent, type_name};

/// One call.
struct Call<'a, 'py> {
    /// What the function gets, after a place that it may use.
    taken: Vec<Bound<'py, PyAny>>,
    /// The tensors of the loan: which argument each is, which parameter, and where.
    lent: Vec<(usize, usize, DLDevice)>,
    loan: Loan,
    arguments: Arguments<'a, 'py>,
}

impl Launched {
    /// Takes the arguments, and makes the stream of the call wait for the tensors; returns the
    /// names of the arguments. `at` is the argument that is the stream.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        call: &mut Call<'_, 'py>,
        at: Option<usize>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let wanted = match (at, &self.stream) {
            (Some(at), _) => Some(call.arguments.values[at].to_owned()),
            (None, Some(on)) if on.bind(py).is_callable() => Some(call_with(on.bind(py), &[])?),
            (None, on) => on.as_ref().map(|on| on.bind(py).clone()),
        };
        let wanted = wanted.filter(|wanted| !wanted.is_none());
        for index in 0..call.arguments.values.len() {
            let x = call.arguments.values[index];
            let is_passed_on = at == Some(index) || self.is_receiver(&call.arguments, index);
            if is_passed_on || is_plain(&x) || !is_lent(&x)? {
                if !is_passed_on && let Some(what) = self.no_tensor(&call.arguments, index)? {
                    let error = PyTypeError::new_err(format!("it is {what}; pass a tensor"));
                    return Err(self.noted(py, &call.arguments, index, error));
                }
                call.taken.push(x.to_owned());
                continue;
            }
            let parameter = self.parameter(&call.arguments, index)?;
            let written = self.parameters.written[parameter].then_some("the tensor");
            let accepted = self.accepted.as_deref().map(|of| (of, parameter));
            let lent = call.loan.lend(&x, wanted.as_ref(), written, accepted);
            let device = lent.map_err(|error| self.noted(py, &call.arguments, index, error))?;
            call.taken.push(x.to_owned());
            call.lent.push((index, parameter, device));
        }
        if !call.lent.is_empty() || wanted.is_some() {
            self.order(py, call, wanted.as_ref())?;
        }
        let names = call.arguments.names.as_deref();
        if self.parameters.stream.is_none() {
            return Ok(names.cloned());
        }
        let stream = call.loan.stream().map_or(0, stream::Stream::handle);
        self.with_stream(py, &mut call.taken, names, at, stream)
    }

    /// What a value is that is passed in place of a tensor, which C code would take for an address.
    fn no_tensor(&self, arguments: &Arguments<'_, '_>, index: usize) -> PyResult<Option<String>> {
        let x = arguments.values[index];
        if self.is_missing(arguments, index)? {
            return Ok(Some("None, and is written to".to_owned()));
        }
        if !self.parameters.tensors[self.parameter(arguments, index)?] {
            return Ok(None);
        }
        if x.hasattr(intern!(x.py(), "__array_struct__"))? {
            return Ok(Some("a scalar of NumPy".to_owned()));
        }
        // Numbers and pointers of ctypes have no dimensions.
        let has_elements = match PyMemoryView::from(&x) {
            Ok(view) => view.getattr(intern!(x.py(), "ndim"))?.is_truthy()?,
            Err(error) if is_urgent(x.py(), &error) => return Err(error),
            Err(_) => false,
        };
        let is_memory = has_elements || x.is_instance_of::<PyString>();
        Ok(is_memory.then(|| format!("an instance of {}", type_name(&x.get_type()))))
    }

    /// The error, with a note that names the argument.
    #[cold]
    #[inline(never)]
    pub(super) fn noted(
        &self,
        py: Python<'_>,
        arguments: &Arguments<'_, '_>,
        index: usize,
        error: PyErr,
    ) -> PyErr {
        let (positional, names) = (arguments.positional, arguments.names.as_deref());
        let noted = (error.value(py), index, positional, names);
        self.note.bind(py).call1(noted).err().unwrap_or(error)
    }

    /// Refuses a call of which nothing says on which stream it launches.
    fn check_streams(&self, call: &Call<'_, '_>, is_wanted: bool) -> PyResult<()> {
        let has_stream = call.loan.stream().is_some();
        if has_stream && !is_wanted && self.parameters.stream.is_none() {
            return Err(PyBufferError::new_err(
                "nothing says which stream the function launches on; give it a parameter stream, or pass stream= to \
                 dlx.launcher",
            ));
        }
        if !has_stream && self.parameters.stream.is_some() {
            return Err(PyValueError::new_err(
                "stream=-1 orders nothing and names no stream to launch on; pass a stream",
            ));
        }
        Ok(())
    }

    /// Refuses tensors of several devices.
    fn refuse_mixed(&self, py: Python<'_>, call: &Call<'_, '_>) -> PyResult<()> {
        let has_streams = |&&(.., device): &&(usize, usize, DLDevice)| stream::has_streams(device);
        let first = call.lent.iter().find(has_streams).map(|lent| lent.2);
        let Some(lead) = call.loan.stream().map(stream::Stream::device).or(first) else {
            return Ok(());
        };
        let mut others = call.lent.iter().filter(|lent| lent.2 != lead);
        let Some(&(index, _, other)) = others.find(|lent| !device::is_of_any(lent.2)) else {
            return Ok(());
        };
        let error = PyBufferError::new_err(format!(
            "the tensor is on {other}, and another one on {lead}: a kernel takes tensors of one device; pass \
             dlx.from_dlpack(x, device='{lead}'), or devices='any' to dlx.launcher if it takes both"
        ));
        Err(self.noted(py, &call.arguments, index, error))
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
        if call.loan.needs_no_stream() {
            stream::wanted(wanted, device::CPU)?;
        } else {
            if self.one_device {
                self.refuse_mixed(py, call)?;
            }
            self.check_streams(call, wanted.is_some())?;
        }
        call.loan.join(py)?;
        if let Some(check) = &self.check {
            let mut given = call.taken.clone();
            for (place, &(index, ..)) in call.lent.iter().enumerate() {
                if let Some(view) = call.loan.view(place) {
                    given[index + 1] = view.bind(py).clone().into_any();
                }
            }
            vectorcall(check.bind(py), &mut given, call.arguments.names.as_deref())?;
        }
        for (place, &(index, ..)) in call.lent.iter().enumerate() {
            let Some(view) = call.loan.view(place) else {
                continue;
            };
            let view = view.bind(py);
            call.taken[index + 1] = match &self.made {
                _ if self.has_addresses => {
                    address(view).map_err(|error| self.noted(py, &call.arguments, index, error))?
                }
                Some(made) => call_with(made.bind(py), &[view.as_any()])?,
                None => view.clone().into_any(),
            };
        }
        Ok(())
    }

    /// Calls the function, with its arguments lent; `taken` has the place before them.
    #[inline(never)]
    pub(super) fn call_lending<'py>(
        &self,
        arguments: Arguments<'_, 'py>,
        taken: Vec<Bound<'py, PyAny>>,
        at: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // PyO3 does not count the attachment of an entry (S20).
        let py = taken[0].py();
        counted(py, || {
            let mut call = Call {
                taken,
                lent: Vec::new(),
                loan: Loan::of(arguments.values.len()),
                arguments,
            };
            let begun = self.begin(py, &mut call, at);
            let has_run = begun.is_ok();
            let result = begun.and_then(|names| {
                vectorcall(self.function.bind(py), &mut call.taken, names.as_ref())
            });
            let ended = self.end(py, call, has_run);
            match has_run {
                true => both(py, result, ended),
                false => result,
            }
        })
    }

    /// Ends the loan: the streams of the tensors wait for that of the call, and libraries learn what was written to.
    fn end<'py>(&self, py: Python<'py>, call: Call<'_, 'py>, has_run: bool) -> PyResult<()> {
        let mut told = Ok(());
        for (place, &(index, parameter, _)) in call.lent.iter().enumerate() {
            if has_run && self.parameters.written[parameter] {
                let x = &call.arguments.values[index];
                told = told.and(writing::tell(x, call.loan.lent(place)));
            }
        }
        call.loan.end(py).and(told)
    }
}

/// What the function has returned or raised, unless the end of the loan has failed.
pub(super) fn both<'py>(
    py: Python<'py>,
    result: PyResult<Bound<'py, PyAny>>,
    ended: PyResult<()>,
) -> PyResult<Bound<'py, PyAny>> {
    match (result, ended) {
        (Err(raised), Err(error)) => {
            error.value(py).setattr("__context__", raised.value(py))?;
            Err(error)
        }
        (Ok(_), Err(error)) => Err(error),
        (result, Ok(())) => result,
    }
}

/// The address of the first element, or the handle of the buffer object that begins with it.
fn address<'py>(view: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let meta = view.get().described().meta();
    if meta.byte_offset != 0 {
        let error = "the tensor begins inside of a buffer object, where there is no address; pass one that begins with it";
        return Err(PyBufferError::new_err(error));
    }
    Ok(meta.data.addr().into_pyobject(view.py())?.into_any())
}

/// Whether `x`, which is no number or string, is a tensor.
fn is_lent(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (class, interface) = (x.get_type(), intern!(x.py(), "__cuda_array_interface__"));
    Ok(is_of_tensors(x)? || !lacks(&class, &[interface]) && class.hasattr(interface)?)
}
