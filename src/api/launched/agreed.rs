//! A call for whose tensors nothing has to be held, checked or ordered: the libraries of all of them work on one stream.
//!
//! A library is asked for its stream once before the function and once after it, however many of its tensors there are.
//! Equal handles that libraries name for one device, at one moment and in one thread, are one stream, whichever context is
//! current, and whether or not it captures (R81): the driver need not be asked. If they differ before, the call takes the
//! way of all others; if they differ after, the function has changed the stream, and the new one waits as after a block.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use super::Launched;
use crate::abi::DLDevice;
use crate::adapters::torch;
use crate::cpython::boundary::counted;
use crate::cpython::call::vectorcall;
use crate::cpython::vector::Arguments;
use crate::import::view::RowMajor;
use crate::stream::order::{self, Waits};
use crate::stream::{Stream, WorkStream};
use crate::types::device;

/// The tensors of a call so far.
#[derive(Default)]
pub(super) struct Agreed {
    /// Where they are.
    device: Option<DLDevice>,
    /// The libraries that are to be asked, in a call with few.
    libraries: [Option<WorkStream>; 4],
    /// The bits of the arguments that are written to.
    written: u64,
}

impl Agreed {
    /// Adds an argument; returns whether nothing has to be done for it but to ask its library.
    #[inline(always)]
    pub(super) fn add(&mut self, found: &RowMajor, index: usize, is_written: bool) -> bool {
        let there = *self.device.get_or_insert(found.meta.device);
        if is_written {
            if !found.is_writable || index >= u64::BITS as usize {
                return false;
            }
            self.written |= 1 << index;
        }
        there == found.meta.device && found.work_stream.is_none_or(|of| self.asks(of))
    }

    /// Whether there is room to ask this library.
    #[inline(always)]
    fn asks(&mut self, work_stream: WorkStream) -> bool {
        let is_its = |place: &&mut Option<WorkStream>| place.is_none_or(|of| of.is(work_stream));
        let place = self.libraries.iter_mut().find(is_its);
        place.map(|place| *place = Some(work_stream)).is_some()
    }

    /// Whether the arguments have to be taken again, if the call takes another way.
    pub(super) fn is_begun(&self) -> bool {
        self.written != 0 || self.has_stream()
    }

    /// Whether the tensors are on a device with streams.
    pub(super) fn has_stream(&self) -> bool {
        self.libraries[0].is_some()
    }

    /// The handle that all of the libraries name now, 0 on the CPU; `None` if they differ.
    #[inline(always)]
    pub(super) fn handle(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        let device = self.device.unwrap_or(device::CPU);
        let mut named = None;
        for library in self.libraries.iter().flatten() {
            let handle = Stream::number(library.get(py, device)?, device);
            if *named.get_or_insert(handle) != handle {
                return Ok(None);
            }
        }
        Ok(Some(named.unwrap_or(0)))
    }

    /// Makes what the libraries work on by now wait for the stream `then`, which the function has launched on; an error of
    /// the first question, if it was `asked` in vain, comes after that.
    #[cold]
    #[inline(never)]
    fn leave(&self, py: Python<'_>, then: i64, mut asked: PyResult<()>) -> PyResult<()> {
        let device = self.device.unwrap_or(device::CPU);
        let then = Stream::of_table(then, device);
        let mut back = Waits::default();
        for library in self.libraries.iter().flatten() {
            match library.get(py, device) {
                Ok(handle) => back.add(&Stream::of_table(handle, device)),
                Err(error) => asked = asked.and(Err(error)),
            }
        }
        let (_, joined) = order::leave(&back, &then, None);
        let finished = order::finish(&then);
        asked
            .and(joined.map_err(PyErr::from))
            .and(finished.map_err(PyErr::from))
    }
}

impl Launched {
    /// Calls the function, all of whose arguments have been taken, on the stream `then`.
    #[inline(always)]
    pub(super) fn call_agreed<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'_, 'py>,
        taken: &mut Vec<Bound<'py, PyAny>>,
        agreed: &Agreed,
        then: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function.bind(py);
        let result = match self.parameters.stream {
            None => vectorcall(function, taken, arguments.names),
            Some(_) => {
                let names = self.with_stream(py, taken, arguments.names, None, then)?;
                vectorcall(function, taken, names.as_ref())
            }
        };
        if !agreed.is_begun() {
            return result;
        }
        self.end_agreed(py, arguments, agreed, then, result)
    }

    /// Ends the call: tells torch what was written to, and asks the libraries for their streams again.
    #[inline(never)]
    fn end_agreed<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'_, 'py>,
        agreed: &Agreed,
        then: i64,
        result: PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut told = Ok(());
        let mut written = agreed.written;
        while written != 0 {
            let index = written.trailing_zeros() as usize;
            told = told.and(torch::increment_version(&arguments.values[index]));
            written &= written - 1;
        }
        match agreed.handle(py) {
            Ok(now) if now == Some(then) && told.is_ok() => result,
            now => counted(py, || {
                let left = match now {
                    Ok(now) if now == Some(then) => Ok(()),
                    now => agreed.leave(py, then, now.map(drop)),
                };
                super::lending::both(py, result, left.and(told))
            }),
        }
    }
}
