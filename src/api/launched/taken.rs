//! A call all of whose arguments are passed as they are, or by their addresses: nothing has to be held, checked or ordered
//! for them.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use super::Launched;
use super::lending::both;
use crate::adapters::torch;
use crate::api::agreed::Agreed;
use crate::api::from_dlpack::is_plain;
use crate::cpython::boundary::counted;
use crate::cpython::call::vectorcall;
use crate::cpython::vector::Arguments;
use crate::import::view;

/// The arguments of a call so far.
pub(super) struct Taken<'py> {
    /// What the function gets, after a place that it may use.
    pub(super) values: Vec<Bound<'py, PyAny>>,
    agreed: Agreed,
    /// The bits of those that are written to.
    written: u64,
}

impl<'py> Taken<'py> {
    /// No arguments yet; `values` has room for all.
    pub(super) fn new(values: Vec<Bound<'py, PyAny>>) -> Self {
        Self {
            values,
            agreed: Agreed::default(),
            written: 0,
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
        if self.is_receiver(arguments, index) || is_plain(&x) {
            taken.values.push(x.to_owned());
            return Ok(true);
        }
        if !self.has_addresses {
            return Ok(false);
        }
        let Some(found) = view::row_major(&x)? else {
            return Ok(false);
        };
        let (meta, parameter) = (found.meta, self.parameter(arguments, index)?);
        if (self.accepted.as_ref()).is_some_and(|accepted| !accepted.has(parameter, meta.dtype))
            || !taken.agreed.add(meta.device, found.work_stream)
        {
            return Ok(false);
        }
        if self.is_written(parameter) {
            if !found.is_writable || index >= u64::BITS as usize {
                return Ok(false);
            }
            taken.written |= 1 << index;
        }
        let address = meta.data.addr().into_pyobject(x.py())?;
        taken.values.push(address.into_any());
        Ok(true)
    }

    /// The stream to launch on, if all libraries agree; 0 without one.
    #[inline(always)]
    pub(super) fn agreed(&self, py: Python<'_>, taken: &Taken<'_>) -> PyResult<Option<i64>> {
        // Of a function without a parameter for the stream, nothing says which one it launches on.
        match taken.agreed.has_stream() && self.parameters.stream.is_none() {
            true => Ok(None),
            false => taken.agreed.handle(py),
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
    match taken.agreed.handle(py) {
        Ok(now) if now == Some(then) && told.is_ok() => result,
        now => counted(py, || {
            let left = match now {
                Ok(now) if now == Some(then) => Ok(()),
                now => taken.agreed.leave(py, then, now.map(drop)),
            };
            both(py, result, left.and(told))
        }),
    }
}
