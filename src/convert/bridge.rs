//! The short way of a function that `dlx.bridge` made, for arguments of types that it has seen.
//!
//! `python/dlx/_bridged.py` goes on where this way ends: at containers, new types, and what is written in place.

#![forbid(unsafe_code)]

use std::sync::OnceLock;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::api::from_dlpack::is_plain;
use crate::api::lent::lend;
use crate::convert::function::convert;
use crate::stream;
use crate::types::device;
use crate::types::dtype;

/// What is remembered of the first types that a function meets, by identity: metaclasses have a say in hashes and in
/// what is equal. What finds no place is asked each time.
#[pyclass(frozen, module = "dlx._core")]
pub(crate) struct Types([OnceLock<(Py<PyType>, Py<PyAny>)>; PLACES]);

const PLACES: usize = 32;

#[pymethods]
impl Types {
    #[new]
    fn new() -> Self {
        Self([const { OnceLock::new() }; PLACES])
    }

    /// What is remembered of ``cls``, or None.
    fn get(&self, cls: &Bound<'_, PyType>) -> Option<Py<PyAny>> {
        Some(self.find(cls)?.clone_ref(cls.py()))
    }

    /// Remembers it.
    fn add(&self, cls: &Bound<'_, PyType>, value: Py<PyAny>) {
        let mut pair = (cls.clone().unbind(), value);
        for place in &self.0 {
            match place.set(pair) {
                Ok(()) => return,
                Err(back) => pair = back,
            }
            // Another thread may have been faster.
            if place.get().is_some_and(|(there, _)| there.is(cls)) {
                return;
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for (class, value) in self.0.iter().map_while(OnceLock::get) {
            visit.call(class)?;
            visit.call(value)?;
        }
        Ok(())
    }
}

impl Types {
    #[inline]
    fn find(&self, cls: &Bound<'_, PyType>) -> Option<&Py<PyAny>> {
        let mut known = self.0.iter().map_while(OnceLock::get);
        known
            .find(|(there, _)| there.is(cls))
            .map(|(_, value)| value)
    }
}

/// Where the elements of a tensor are, and what they are: address, shape, strides, dtype and device.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn placed<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = x.py();
    let no_order = stream::NO_SYNC.into_pyobject(py)?.into_any();
    let snapshot = lend(x, None, Some(&no_order))?.snapshot;
    let meta = snapshot.meta();
    let dimensions = (
        PyTuple::new(py, snapshot.shape())?,
        PyTuple::new(py, snapshot.strides())?,
    );
    (
        meta.data.addr(),
        dimensions.0,
        dimensions.1,
        dtype::name(meta.dtype).to_string(),
        device::name(meta.device).to_string(),
    )
        .into_pyobject(py)
}

/// One kind of tensor, ``to``, for the results of a call with arguments of one type, or for those arguments.
///
/// ``known`` says by exact type which objects are converted to become one. ``foreign`` says it of the arguments.
#[pyclass(frozen, subclass, module = "dlx._core")]
pub(crate) struct Kind {
    #[pyo3(get)]
    to: Py<PyAny>,
    #[pyo3(get)]
    known: Py<Types>,
    foreign: bool,
}

#[pymethods]
impl Kind {
    #[new]
    fn new(to: Py<PyAny>, known: Py<Types>, foreign: bool) -> Self {
        Self { to, known, foreign }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.to)?;
        visit.call(&self.known)
    }
}

/// What a function returned, as `kind` says.
fn give<'py>(kind: &Bound<'py, Kind>, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let Kind { to, known, .. } = kind.get();
    match known.get().find(&value.get_type()) {
        Some(foreign) if foreign.is_truthy(py)? => convert(&value, to.bind(py), None, None),
        Some(_) => Ok(value),
        None if is_plain(&value) => Ok(value),
        None => kind.call_method1(intern!(py, "give"), (value,)),
    }
}

/// A function, and how it is called.
///
/// ``to`` is what its arguments become. ``seen`` gives, by their exact type, the `Kind` that results become, unless
/// ``result`` names one. ``receivers`` positional arguments are left alone, and ``out``
/// is the position of what is written in place. ``arguments`` has the methods that go on.
///
/// It has no attributes of its own: those that it shows are the function's.
#[pyclass(frozen, subclass, module = "dlx._core")]
pub(crate) struct Bridged {
    function: Py<PyAny>,
    to: Py<PyAny>,
    seen: Py<Types>,
    result: Option<Py<Kind>>,
    receivers: usize,
    out: usize,
    arguments: Py<PyAny>,
}

#[pymethods]
impl Bridged {
    #[new]
    fn new(
        function: Py<PyAny>,
        to: Py<PyAny>,
        seen: Py<Types>,
        result: Option<Py<Kind>>,
        receivers: usize,
        out: usize,
        arguments: Py<PyAny>,
    ) -> Self {
        Self {
            function,
            to,
            seen,
            result,
            receivers,
            out,
            arguments,
        }
    }

    /// Call the function with its arguments converted, and convert what it returns.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let (to, seen, arguments) = (self.to.bind(py), self.seen.get(), self.arguments.bind(py));
        let mut kind = self.result.as_ref().map(|kind| kind.bind(py).clone());
        let mut taken = Vec::with_capacity(args.len());
        for (position, x) in args.iter_borrowed().enumerate() {
            if position < self.receivers {
                taken.push(x.to_owned());
                continue;
            }
            if position == self.out {
                break;
            }
            let Some(known) = seen.find(&x.get_type()) else {
                if is_plain(&x) {
                    taken.push(x.to_owned());
                    continue;
                }
                break;
            };
            let known = known.bind(py).cast::<Kind>()?;
            taken.push(if known.get().foreign {
                convert(&x, to, None, None).or_else(|error| {
                    arguments.call_method1(intern!(py, "note"), (error.value(py), position))?;
                    Err(error)
                })?
            } else {
                x.to_owned()
            });
            kind = kind.or_else(|| Some(known.clone()));
        }
        if taken.len() < args.len() || !are_plain(kwargs)? {
            let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
            let taken = PyList::new(py, taken)?;
            return arguments.call_method1(intern!(py, "finish"), (taken, kind, args, kwargs));
        }
        let result = self
            .function
            .bind(py)
            .call(PyTuple::new(py, taken)?, kwargs)?;
        match kind {
            Some(kind) => give(&kind, result),
            None => Ok(result),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.to)?;
        visit.call(&self.seen)?;
        visit.call(&self.result)?;
        visit.call(&self.arguments)
    }
}

/// Whether these are no tensors, for sure, and nothing that is written in place.
fn are_plain(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
    for (name, x) in kwargs.into_iter().flatten() {
        if !is_plain(&x) || name.eq("out")? {
            return Ok(false);
        }
    }
    Ok(true)
}
