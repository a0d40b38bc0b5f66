//! Rung 4: the Python protocol, `__dlpack__` and `__dlpack_device__`.

#![forbid(unsafe_code)]

mod order;
mod usual;

use pyo3::exceptions::{
    PyAttributeError, PyBufferError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyTuple, PyType};

use self::order::{Order, of_request};
pub(crate) use self::usual::usual;
use self::usual::{capsule_of, of_answer};
use crate::abi::*;
use crate::adapters::{oneapi, torch};
use crate::cache::Entry;
use crate::error::type_name;
use crate::method::{attribute, call};
use crate::release::Release;
use crate::relocate::{self, On};
use crate::request::{Request, elsewhere, finish};
use crate::snapshot::Snapshot;
use crate::{capsule, copy, device, stream};

/// The tensor of `__dlpack__`, moved or copied by dlx where the producer refuses to; `None` if `x` has no such method.
pub(crate) fn from_protocol(
    x: &Bound<'_, PyAny>,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let py = x.py();
    let may_copy = match request.copy {
        None => request.device.is_some(),
        Some(copy) => copy,
    };
    let error = match ask(x, kind, entry, request) {
        Err(error) if may_copy && relocate::is_refusal(py, &error, kind.is_some()) => error,
        answer => return answer,
    };
    let Some(here) = device(x)? else {
        return Err(error);
    };
    let there = request.device.unwrap_or(here);
    if !request.moves(here) || relocate::check(here, there).is_err() {
        return Err(error);
    }
    let on = request.on(there)?;
    let stream = match &on {
        _ if !stream::has_streams(here) => None,
        On::Unordered => Some(stream::NO_SYNC),
        On::Stream { stream, .. } if stream.device() == here => Some(stream.handle()),
        _ => Some(stream::current(py, here)?),
    };
    let stream = stream.map(|handle| PyInt::new(py, handle).into_any());
    let as_it_is = Request {
        stream: stream.as_ref(),
        // A copy holds what it reads.
        release: Release::None,
        ..Request::NOTHING
    };
    let Some(source) = ask(x, kind, entry, &as_it_is)? else {
        return Err(error);
    };
    Ok(Some(relocate::copied(py, &source, there, on)?))
}

/// The answer of `__dlpack__`, asked for DLPack 1.3, and for a device, a copy or a stream where that is needed.
pub(crate) fn ask(
    x: &Bound<'_, PyAny>,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let py = x.py();
    if let Some(kind) = kind {
        kind.check_protocol(x)?;
    }
    if request.is_usual()
        && let Some(capsule) = capsule_of(x, entry)?
    {
        let snapshot = capsule::import(&capsule, None)?;
        match entry.is_confirmed(snapshot.memo().device) {
            true => return Ok(Some(snapshot)),
            false => drop(snapshot),
        }
    }
    let Some(method) = attribute(x, intern!(py, "__dlpack__"))? else {
        return Ok(None);
    };
    let Some(here) = device(x)? else {
        return Err(no_protocol(x, "__dlpack_device__"));
    };
    entry.found_on(here);
    let there = request.device.unwrap_or(here);
    let queue = oneapi::queue(x, request.stream, there)?;
    let (stream, order) = match queue {
        Some(_) => (None, Order::Ready(None)),
        None => of_request(x, request, here, there)?,
    };
    // Memory that both can read is not moved; to wait for it is enough.
    let on_host = match oneapi::is_one(here) && there == device::CPU {
        true => oneapi::host_queue(x)?,
        false => None,
    };
    let wanted = if on_host.is_some() { here } else { there };
    let asked = Asked {
        stream,
        queue,
        device: (here != wanted).then_some(wanted),
        // Where dlx can copy, the producer need not know how.
        copy: request
            .copy
            .filter(|&copy| !(copy && here == wanted && copy::can(there))),
    };
    let result = match asked.call(&method, entry) {
        Ok(result) => result,
        Err(error) => return Err(asked.explain(py, error, here)),
    };
    let capsule = of_answer(x, result)?;
    // After the export, which may have given the stream work of its own.
    let work = order.work(request)?;
    let snapshot = capsule::import(&capsule, work)?;
    let found = snapshot.memo().device;
    if found != wanted && (request.device.is_some() || stream::has_streams(found)) {
        return Err(PyBufferError::new_err(format!(
            "{} was asked for a tensor on {} and gave one on {}",
            type_name(&x.get_type()),
            device::name(wanted),
            device::name(found)
        )));
    }
    let snapshot = match on_host {
        Some(queue) => {
            queue.call_method0(intern!(py, "wait"))?;
            snapshot.on(there)?
        }
        None => snapshot,
    };
    let snapshot = match asked.copy {
        // torch copies and does not say so (R37).
        Some(true) if kind.is_some() => snapshot.copied()?,
        Some(true) => snapshot,
        _ => finish(py, snapshot, request)?,
    };
    Ok(Some(snapshot))
}

/// What goes to `__dlpack__` beside `max_version`.
struct Asked<'a, 'py> {
    stream: Option<i64>,
    /// A queue of oneAPI, which goes in place of a stream.
    queue: Option<&'a Bound<'py, PyAny>>,
    device: Option<DLDevice>,
    copy: Option<bool>,
}

impl<'py> Asked<'_, 'py> {
    /// Whether only a producer that knows the newer keywords can do it.
    fn needs_new(&self) -> bool {
        self.device.is_some() || self.copy == Some(true)
    }

    /// Calls `__dlpack__`, and once more without the new keywords if it does not know them (R32).
    fn call(&self, method: &Bound<'py, PyAny>, entry: &Entry) -> PyResult<Bound<'py, PyAny>> {
        let py = method.py();
        if self.needs_new() || !entry.is_old() {
            let keywords = self.keywords(py)?;
            match call(method, Some(&keywords)) {
                Err(error) if !self.needs_new() && is_signature_error(py, &error) => {}
                other => return other,
            }
        }
        let keywords = PyDict::new(py);
        self.set_stream(&keywords)?;
        let result = call(method, Some(&keywords));
        if result.is_ok() {
            entry.set_old();
        }
        result
    }

    /// The keywords of a call; the usual ones are made once.
    fn keywords(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        static USUAL: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
        let usual = USUAL.get_or_try_init(py, || {
            let keywords = PyDict::new(py);
            let version = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
            keywords.set_item(intern!(py, "max_version"), version)?;
            Ok::<_, PyErr>(keywords.unbind())
        })?;
        let usual = usual.bind(py);
        let unordered = self.stream.is_none() && self.queue.is_none();
        if unordered && self.device.is_none() && self.copy.is_none() {
            return Ok(usual.clone());
        }
        let keywords = usual.copy()?;
        self.set_stream(&keywords)?;
        if let Some(device) = self.device {
            // A plain pair of ints, which any producer can compare (R68).
            let device = (device.device_type.0, device.device_id);
            keywords.set_item(intern!(py, "dl_device"), device)?;
        }
        if let Some(copy) = self.copy {
            keywords.set_item(intern!(py, "copy"), copy)?;
        }
        Ok(keywords)
    }

    /// Adds the stream or queue that is to wait.
    fn set_stream(&self, keywords: &Bound<'py, PyDict>) -> PyResult<()> {
        let name = intern!(keywords.py(), "stream");
        match (self.stream, self.queue) {
            (Some(stream), _) => keywords.set_item(name, stream),
            (None, Some(queue)) => keywords.set_item(name, queue),
            (None, None) => Ok(()),
        }
    }

    /// The error of a call that failed: the producer's own (R60), unless it says what only dlx knows.
    fn explain(&self, py: Python<'_>, error: PyErr, here: DLDevice) -> PyErr {
        let unknown_keyword = self.needs_new() && is_signature_error(py, &error);
        let is = |class: &Bound<'_, PyType>| error.is_instance(py, class);
        let refused = is(&py.get_type::<PyBufferError>()) || is(&py.get_type::<PyValueError>());
        let explained = match self.device {
            Some(there) if self.copy == Some(false) && (unknown_keyword || refused) => {
                elsewhere(py, here, there)
            }
            // Of such arrays one can expect more than one device, so the error says which there are.
            Some(there)
                if oneapi::is_one(here)
                    && (unknown_keyword || refused || is(&py.get_type::<PyRuntimeError>())) =>
            {
                PyBufferError::new_err(format!(
                    "the tensor is on {}, and its producer does not give it on {}",
                    device::name(here),
                    device::name(there)
                ))
            }
            _ if unknown_keyword => PyBufferError::new_err(format!(
                "__dlpack__ takes no {}, so the tensor cannot be had on another device or as a copy",
                if self.device.is_some() {
                    "dl_device"
                } else {
                    "copy"
                }
            )),
            _ => return error,
        };
        explained.set_cause(py, Some(error));
        explained
    }
}

/// Whether a `TypeError` says that `__dlpack__` does not know a keyword, not that something failed inside.
///
/// It was raised at the call, before any Python code of the producer ran, or it names the keyword: a method
/// that hands its keywords on fails like that (R32).
fn is_signature_error(py: Python<'_>, error: &PyErr) -> bool {
    if !error.is_instance_of::<PyTypeError>(py) {
        return false;
    }
    let named = |message: &str| {
        message.contains("keyword")
            && ["max_version", "dl_device", "copy", "no keyword"]
                .iter()
                .any(|name| message.contains(name))
    };
    error.traceback(py).is_none()
        || (error.value(py).str()).is_ok_and(|text| text.to_cow().is_ok_and(|text| named(&text)))
}

/// The device that `x` says it is on, `None` where it does not say.
pub(crate) fn device(x: &Bound<'_, PyAny>) -> PyResult<Option<DLDevice>> {
    let py = x.py();
    let method = attribute(x, intern!(py, "__dlpack_device__"))?;
    let answer = method.map(|method| call(&method, None));
    answer
        .transpose()?
        .map(|answer| device_of(x, "__dlpack_device__", &answer))
        .transpose()
}

/// The device that the method `name` of `x` answered.
pub(crate) fn device_of(
    x: &Bound<'_, PyAny>,
    name: &str,
    answer: &Bound<'_, PyAny>,
) -> PyResult<DLDevice> {
    let pair: PyResult<(i32, Option<i32>)> = answer
        .cast::<PyTuple>()
        .map_err(PyErr::from)
        .and_then(|pair| pair.extract());
    let numbered = pair.ok().and_then(|(device_type, device_id)| {
        // Paddle's CPU has no number.
        let only = (device_type == kDLCPU.0).then_some(0);
        Some((device_type, device_id.or(only)?))
    });
    let (device_type, device_id) = numbered.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "{name} of {} returned {answer}, not a pair of ints",
            x.get_type()
        ))
    })?;
    let device = DLDevice {
        device_type: DLDeviceType(device_type),
        device_id,
    };
    device::check(device)?;
    Ok(device::normal(device))
}

/// The error for an object without the protocol (R61).
#[cold]
pub(crate) fn no_protocol(x: &Bound<'_, PyAny>, missing: &str) -> PyErr {
    PyAttributeError::new_err(format!(
        "{} has no {missing}; from_dlpack takes objects with an exchange table, objects with \
         __dlpack__ and __dlpack_device__, DLPack capsules, Python buffers, and objects with \
         __array_struct__, __array_interface__, __cuda_array_interface__, __arrow_c_device_array__ or \
         __arrow_c_array__",
        type_name(&x.get_type())
    ))
}
