//! A call all of whose arguments are passed as they are, or by their addresses: nothing has to be held, checked or ordered
//! for them.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use super::Launched;
use super::lending::both;
use crate::adapters::torch;
use crate::api::agreed::Agreed;
use crate::cpython::boundary::counted;
use crate::cpython::call::vectorcall;
use crate::cpython::vector::Arguments;
use crate::import::ladder::is_plain;
use crate::import::row_major::{RowMajor, row_major};
use crate::stream::order;

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

    /// Adds a tensor to those that are ordered; returns whether it need not wait.
    #[inline(always)]
    fn order(&mut self, found: &RowMajor<'_>) -> bool {
        let (device, agreed) = (found.device, &mut self.agreed);
        let is_ready = found.ready.is_none_or(|on| agreed.add_ready(device, on));
        match found.work_stream {
            Some(work_stream) => is_ready && agreed.add(device, work_stream),
            None => {
                self.is_on_cpu |= found.ready.is_none();
                is_ready
            }
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
        let is_written = || Ok(self.is_written(self.parameter(arguments, index)?));
        let noted = |error| Python::attach(|py| self.noted(py, arguments, index, error));
        if self.has_addresses
            && let Some(found) = row_major(&x, &is_written).map_err(noted)?
        {
            let parameter = self.parameter(arguments, index)?;
            let accepted = self.accepted.as_ref();
            if accepted.is_some_and(|accepted| !accepted.has(parameter, found.dtype)) {
                return Ok(false);
            }
            if !taken.order(&found) {
                return Ok(false);
            }
            if self.is_written(parameter) {
                if !found.is_writable || index >= u64::BITS as usize {
                    return Ok(false);
                }
                taken.written |= 1 << index;
            }
            let address = found.address.into_pyobject(x.py())?;
            taken.values.push(address.into_any());
            taken.held.extend(found.held);
            return Ok(true);
        }
        let is_plain = is_plain(&x);
        if is_plain {
            taken.values.push(x.to_owned());
        }
        Ok(is_plain)
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
        let result = match self.parameters.stream {
            None => vectorcall(function, values, arguments.names),
            Some(_) => {
                let names = self.with_stream(py, values, arguments.names, None, then)?;
                vectorcall(function, values, names.as_ref())
            }
        };
        match taken.written != 0 || taken.agreed.has_stream() {
            true => end(py, arguments, &taken, then, result),
            false => result,
        }
    }
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
        let left = match is_same {
            Ok(true) => Ok(()),
            asked => {
                let finished = order::finish(&agreed.stream(then));
                asked.and(finished.map_err(PyErr::from))
            }
        };
        both(py, result, left.and(told))
    })
}
