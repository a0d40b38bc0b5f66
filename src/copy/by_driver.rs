//! Copies by a driver: host to device, device to host, and between or within devices.
//!
//! A copy to a device runs on the requested stream, else on dlx's current one, a copy to the host on the source's own
//! stream. It waits for whatever its source waits for. Nothing is started that would invalidate a graph capture.

use pyo3::prelude::*;

use crate::abi::*;
use crate::copy::host;
use crate::cpython::interpreter::blocking;
use crate::driver::{self, Run};
use crate::stream::usage::StreamUsage;
use crate::stream::{self, Stream, Wanted};
use crate::tensor::checked::{Checked, Meta, Prototype};
use crate::tensor::device_memory::DeviceMemory;
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::error::Error;
use crate::types::{device, dtype, layout};

mod across;
mod down;

use across::across;
use down::down;

/// The stream that a copy runs on.
pub(crate) enum On {
    /// The requested stream; if `lent`, it may be destroyed after the call.
    Stream { stream: Stream, lent: bool },
    /// dlx's current stream.
    Current,
    /// dlx's current stream, without waiting for the source (R76).
    Unordered,
}

impl On {
    /// The stream that is `wanted` on `there`.
    pub(crate) fn of(wanted: Wanted, there: DLDevice, lent: bool) -> PyResult<Self> {
        Ok(match wanted {
            Wanted::Unset => Self::Current,
            Wanted::NoOrder => Self::Unordered,
            Wanted::Stream(stream) => {
                let stream = stream::check_device(stream, there)?;
                Self::Stream { stream, lent }
            }
        })
    }

    /// The stream on the device of the result, and whether it may be destroyed before that.
    fn stream(self, there: DLDevice) -> Result<(Stream, bool), Error> {
        let (stream, lent) = match self {
            Self::Stream { stream, lent } => (stream, lent),
            Self::Current | Self::Unordered => (stream::working(there)?, true),
        };
        let lent = lent && !stream.is_kept();
        Ok((stream, lent))
    }

    fn is_ordered(&self) -> bool {
        !matches!(self, Self::Unordered)
    }
}

/// The kind of a copy between two devices.
pub(crate) enum Direction {
    /// Both on the host.
    Host,
    Up,
    Down,
    Across,
}

fn way(here: DLDevice, there: DLDevice) -> Option<Direction> {
    let is_rocm = |device: DLDevice| device.device_type == kDLROCM;
    let allocates = matches!(there.device_type, kDLCUDA | kDLROCM);
    let (from_host, to_host) = (device::is_readable(here), there == device::CPU);
    match stream::has_streams(here) {
        false if from_host && to_host => Some(Direction::Host),
        false if from_host && allocates => Some(Direction::Up),
        true if to_host => Some(Direction::Down),
        true if allocates && is_rocm(here) == is_rocm(there) => Some(Direction::Across),
        _ => None,
    }
}

/// How dlx copies from one device to the other.
///
/// # Errors
///
/// `BufferError` if it cannot, or if there is no driver; what the driver reports.
pub(crate) fn direction(here: DLDevice, there: DLDevice) -> Result<Direction, Error> {
    let way = way(here, there).ok_or_else(|| unable(here, there, None))?;
    let driven = match way {
        Direction::Host => return Ok(way),
        Direction::Down => here,
        Direction::Up | Direction::Across => there,
    };
    match driver::of(driven) {
        Ok(_) => Ok(way),
        Err(error) if error.is_absent() => Err(unable(here, there, Some(error))),
        Err(error) => Err(error.into()),
    }
}

/// Whether `source` goes to the host in one run of bytes.
pub(crate) fn goes_down_in_one_run(source: &Snapshot, there: Option<DLDevice>) -> bool {
    let here = source.meta().device;
    let is_down = there.is_some_and(|there| matches!(way(here, there), Some(Direction::Down)));
    is_down && source.is_row_major() && driver::of(here).is_ok()
}

#[cold]
fn unable(here: DLDevice, there: DLDevice, error: Option<driver::Error>) -> Error {
    let what = if here == there {
        format!("the tensor is on {here}, where dlx does not copy it")
    } else {
        format!("the tensor is on {here}, and dlx does not move it to {there}")
    };
    Error::refused(match error {
        Some(error) => format!("{what}: {error}"),
        None => what,
    })
}

/// The stream on `there` that a consumer of `__dlpack__` requests for a copy (R50, R55, R72).
pub(crate) fn for_export(stream: Option<&Bound<'_, PyAny>>, there: DLDevice) -> PyResult<On> {
    let has_streams = stream::has_streams(there);
    let wanted = match stream::wanted(stream, there)? {
        Wanted::Unset if has_streams => Wanted::Stream(Stream::default(there)),
        Wanted::NoOrder if !has_streams => return Err(stream::no_streams(there)),
        wanted => wanted,
    };
    // The consumer still owns it (R82).
    On::of(wanted, there, true)
}

/// A compact row-major copy on `there`, with IS_COPIED set (R37, R47).
///
/// A copy to the host is complete on return (R55), a copy to a device once the stream has run it.
///
/// # Errors
///
/// `BufferError` if dlx cannot copy, or would invalidate a capture; `MemoryError`; what the driver reports.
pub(crate) fn copied(
    py: Python<'_>,
    source: &Snapshot,
    there: DLDevice,
    on: On,
) -> PyResult<Snapshot> {
    let here = source.meta().device;
    dtype::known(source.meta().dtype)?;
    match direction(here, there)? {
        Direction::Up => up(py, source, there, on),
        Direction::Down => down(py, source, on.is_ordered()),
        Direction::Across => across(py, source, there, on),
        Direction::Host => host::compact(py, source),
    }
}

/// Host to device.
///
/// Waits for the stream: unless the memory is pageable, the device reads it until then, and the caller may change or
/// free it as soon as this returns (R59).
fn up(py: Python<'_>, source: &Snapshot, there: DLDevice, on: On) -> PyResult<Snapshot> {
    let (stream, lent) = on.stream(there)?;
    let memory = DeviceMemory::new(source.nbytes(), &stream, lent)?;
    let compacted;
    let source = if source.is_row_major() {
        source
    } else {
        compacted = host::compact(py, source)?;
        &compacted
    };
    if source.size() > 0 {
        let to = (memory.as_ptr().addr(), there);
        // SAFETY: `to` is the memory just allocated, which outlives the wait, as `source` does.
        unsafe { call(source, to, &stream, true) }?;
    }
    Ok(of_memory(source, memory, there, stream, lent)?)
}

/// Copies the elements of `source`, one run of bytes, to an address of a device on `stream`, and with `wait` waits for that.
///
/// The driver may wait in either, also for another thread of Python. It may also stage memory of the host, or memory
/// between devices, which a capture in another thread forbids in any mode but the relaxed one.
///
/// # Safety
///
/// At `to` is room for the bytes that nothing else uses. It is there until `stream` has run the copy, as `source` is.
unsafe fn call(
    source: &Snapshot,
    to: (usize, DLDevice),
    stream: &Stream,
    wait: bool,
) -> Result<(), Error> {
    let Meta { data, device, .. } = source.meta();
    let run = Run {
        bytes: source.nbytes() as usize,
        from: (data.expose_provenance(), device),
        to,
    };
    blocking(|| {
        let (current, raw) = stream.enter(None)?;
        let _relaxed = current.relaxed()?;
        // SAFETY: the caller's promise.
        let queued = unsafe { current.copy(run, raw) };
        // Also after a failure, which may have queued a part: the caller may free the memory next.
        let waited = if wait {
            current.synchronize(raw)
        } else {
            Ok(())
        };
        Ok(queued.and(waited)?)
    })
}

/// The copy of `source` in `memory`, made on `stream`.
fn of_memory(
    source: &Snapshot,
    memory: DeviceMemory,
    there: DLDevice,
    stream: Stream,
    lent: bool,
) -> Result<Snapshot, Error> {
    let wanted = Prototype {
        device: there,
        ..source.prototype()
    };
    over(wanted, host::flags(source), memory, stream, lent)
}

/// A compact row-major tensor over `memory`, which was allocated and written on `stream`.
fn over(
    wanted: Prototype<'_>,
    flags: u64,
    mut memory: DeviceMemory,
    stream: Stream,
    lent: bool,
) -> Result<Snapshot, Error> {
    let usage = if lent {
        StreamUsage::ready_now_on(stream, wanted.device)?
    } else {
        StreamUsage::ready_after(stream, None)
    };
    memory.ready_at(&usage);
    let mut checked = Checked::planned(wanted)?;
    (checked.meta.data, checked.meta.flags) = (memory.as_ptr(), flags);
    Ok(checked.with_usage(Source::Device(Box::new(memory)), Some(usage)))
}

/// An uninitialized tensor on `device`; where that has streams, ready for dlx's current one.
///
/// # Errors
///
/// `BufferError` for devices where dlx does not allocate; as for [`DeviceMemory::new`].
pub(crate) fn empty(wanted: Prototype<'_>) -> Result<Snapshot, Error> {
    if wanted.device == device::CPU {
        return Snapshot::allocate(wanted.shape, wanted.dtype, 0);
    }
    if !matches!(wanted.device.device_type, kDLCUDA | kDLROCM) {
        return Err(Error::refused(format!(
            "dlx does not allocate on {}, only on cpu, cuda and rocm",
            wanted.device
        )));
    }
    dtype::known(wanted.dtype)?;
    let (stream, lent) = On::Current.stream(wanted.device)?;
    let Checked { size, meta, .. } = Checked::planned(wanted)?;
    let memory = DeviceMemory::new(layout::nbytes(size, meta.bits()), &stream, lent)?;
    over(wanted, 0, memory, stream, lent)
}
