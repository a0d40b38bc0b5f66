//! A call all of whose arguments are passed as they are, or by their addresses: nothing has to be held, checked or ordered
//! for them.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::Launched;
use super::lending::both;
use crate::adapters::torch;
use crate::api::agreed::Agreed;
use crate::cpython::boundary::counted;
use crate::cpython::call::vectorcall;
use crate::cpython::vector::Arguments;
use crate::import::ladder::is_plain;
use crate::import::row_major::{RowMajor, held, row_major};
use crate::types::device;

/// The arguments of a call so far.
pub(super) struct Taken<'py> {
    /// What the function gets, after a place that it may use.
    pub(super) values: Vec<Bound<'py, PyAny>>,
    /// Who names the streams of those on a device that has some.
    agreed: Agreed,
    /// Whether one is on the CPU.
    is_on_cpu: bool,
    /// The bits of those that are written to.
    written: u64,
    /// What objects of mixin classes have exported.
    held: Vec<Bound<'py, PyAny>>,
}

impl<'py> Taken<'py> {
    /// No arguments yet; `values` has room for all.
    pub(super) fn new(values: Vec<Bound<'py, PyAny>>) -> Self {
        Self {
            values,
            agreed: Agreed::NONE,
            is_on_cpu: false,
            written: 0,
            held: Vec::new(),
        }
    }
}

impl Launched {
    /// Takes one argument; returns whether it could.
    #[inline(always)]
    pub(super) fn take<'py>(
        &self,
        arguments: &Arguments<'_, 'py>,
        index: usize,
        taken: &mut Taken<'py>,
    ) -> PyResult<bool> {
        let x = arguments.values[index];
        if self.is_receiver(arguments, index) {
            taken.values.push(x.to_owned());
            return Ok(true);
        }
        if self.has_addresses
            && let Some(found) = row_major(&x)?
        {
            return self.take_found(arguments, index, taken, &found);
        }
        let is_plain = is_plain(&x);
        if is_plain {
            if self.is_missing(arguments, index)?
                || is_memory(&x) && self.parameters.tensors[self.parameter(arguments, index)?]
            {
                return Ok(false);
            }
            taken.values.push(x.to_owned());
        }
        Ok(is_plain || self.has_addresses && self.take_held(arguments, index, taken)?)
    }

    /// Takes a tensor of dlx, or what an object of a mixin class exports; returns whether it could.
    #[inline(never)]
    fn take_held<'py>(
        &self,
        arguments: &Arguments<'_, 'py>,
        index: usize,
        taken: &mut Taken<'py>,
    ) -> PyResult<bool> {
        let x = arguments.values[index];
        let is_written = || Ok(self.parameters.written[self.parameter(arguments, index)?]);
        // This runs Python code.
        let held = Python::attach(|py| {
            held(&x, is_written).map_err(|error| self.noted(py, arguments, index, error))
        });
        let Some(held) = held? else {
            return Ok(false);
        };
        if (held.ready).is_some_and(|on| !taken.agreed.add_ready(held.found.device, on)) {
            return Ok(false);
        }
        taken.held.extend(held.inner);
        self.take_found(arguments, index, taken, &held.found)
    }

    /// Takes the address of a tensor; returns whether it could.
    #[inline(always)]
    fn take_found<'py>(
        &self,
        arguments: &Arguments<'_, 'py>,
        index: usize,
        taken: &mut Taken<'py>,
        found: &RowMajor,
    ) -> PyResult<bool> {
        let parameter = self.parameter(arguments, index)?;
        let accepted = self.accepted.as_ref();
        if accepted.is_some_and(|accepted| !accepted.has(parameter, found.dtype, found.address)) {
            return Ok(false);
        }
        match found.work_stream {
            None => taken.is_on_cpu |= found.device == device::CPU,
            Some(work_stream) if !taken.agreed.add(found.device, work_stream) => {
                return Ok(false);
            }
            Some(_) => {}
        }
        if self.parameters.written[parameter] {
            if !found.is_writable || index >= u64::BITS as usize {
                return Ok(false);
            }
            taken.written |= 1 << index;
        }
        let address = found.address.into_pyobject(arguments.values[index].py())?;
        taken.values.push(address.into_any());
        Ok(true)
    }

    /// The stream to launch on, 0 without one; `None` if the libraries differ, or the devices.
    #[inline(always)]
    pub(super) fn agreed(&self, py: Python<'_>, taken: &Taken<'_>) -> PyResult<Option<i64>> {
        // Of a function without a parameter for the stream, nothing says which one it launches on.
        match self.parameters.stream {
            _ if !taken.agreed.has_stream() => Ok(Some(0)),
            Some(_) if !taken.is_on_cpu => taken.agreed.handle(py),
            _ => Ok(None),
        }
    }

    /// Calls the function, all of whose arguments have been taken, on the stream `then`.
    #[inline(always)]
    pub(super) fn call_taken<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'_, 'py>,
        mut taken: Taken<'py>,
        then: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (function, values) = (self.function.bind(py), &mut taken.values);
        let names = arguments.names.as_deref();
        let result = match self.parameters.stream {
            None => vectorcall(function, values, names),
            Some(_) => {
                let names = self.with_stream(py, values, names, None, then)?;
                vectorcall(function, values, names.as_ref())
            }
        };
        match taken.written != 0 || taken.agreed.has_stream() {
            true => end(py, arguments, &taken, then, result),
            false => result,
        }
    }
}

/// Whether C code takes `x`, a plain value, for an address.
fn is_memory(x: &Bound<'_, PyAny>) -> bool {
    x.is_exact_instance_of::<PyBytes>() || x.is_exact_instance_of::<PyString>()
}

/// Ends the call: tells torch what was written to, and asks the libraries for their streams again.
#[inline(never)]
fn end<'py>(
    py: Python<'py>,
    arguments: &Arguments<'_, 'py>,
    taken: &Taken<'py>,
    then: i64,
    result: PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut told = Ok(());
    let mut written = taken.written;
    while written != 0 {
        let index = written.trailing_zeros() as usize;
        told = told.and(torch::increment_version(&arguments.values[index]));
        written &= written - 1;
    }
    let agreed = &taken.agreed;
    let is_same = match agreed.has_stream() {
        true => agreed.handle(py).map(|now| now == Some(then)),
        false => Ok(true),
    };
    if told.is_ok() && matches!(is_same, Ok(true)) {
        return result;
    }
    counted(py, || {
        let left = Agreed::end(is_same, || agreed.stream(then));
        both(py, result, left.and(told))
    })
}
