//! What `libamdhip64` exports: the same machine without contexts, with HIP's own rules.

use std::ffi::c_char;

use crate::abi::{Address, Handle, Out, exports};
use crate::capture::{Mode, Status};
use crate::code::{Answer, CAPTURED_EVENT, INVALID_DEVICE, INVALID_VALUE, hip_name};
use crate::copy::{Extent, Side};
use crate::cuda::DEVICE_BYTES;
use crate::memory::Kind;
use crate::sim::Sim;

/// `hipPointerAttribute_t` since HIP 6.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    memory_type: i32,
    device: i32,
    device_pointer: Address,
    host_pointer: Address,
    is_managed: i32,
    allocation_flags: u32,
}

/// Name of an error.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the driver's name")]
pub(crate) extern "C" fn hipGetErrorName(error: i32) -> *const c_char {
    hip_name(error).as_ptr()
}

/// Text of an error, which is its name here.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the driver's name")]
pub(crate) extern "C" fn hipGetErrorString(error: i32) -> *const c_char {
    hip_name(error).as_ptr()
}

/// Refuses to ask for an event whose last stream captures, even if it was recorded there before the capture, which is
/// broken then: the stream is all that an event remembers (`hipEventQuery` in ROCm's `hip_event.cpp`).
fn check_stream_of(sim: &mut Sim, event: Handle) -> Answer {
    let recorded = sim
        .events
        .get(&event)
        .and_then(|event| event.recorded.as_ref());
    let Some(timeline) = recorded.map(|moment| moment.timeline) else {
        return Ok(());
    };
    let mut streams = sim
        .streams
        .values()
        .filter(|stream| stream.timeline == timeline);
    let Some(capture) = streams.find_map(|stream| stream.capture.as_ref()) else {
        return Ok(());
    };
    let id = capture.capture;
    sim.invalidate(&[id]);
    Err(CAPTURED_EVENT)
}

exports! {
    /// Takes the driver into use.
    fn hipInit(flags: u32) in sim {
        sim.init();
        Ok(())
    }

    /// How many devices there are.
    fn hipGetDeviceCount(count: Out<i32>) in sim {
        sim.give(count, sim.devices)
    }

    /// The device that the thread works on.
    fn hipGetDevice(device: Out<i32>) in sim {
        let current = sim.this_thread().device;
        sim.give(device, current)
    }

    /// The bytes of memory that a device has.
    fn hipDeviceTotalMem(bytes: Out<usize>, device: i32) in sim {
        sim.device(device)?;
        sim.give(bytes, DEVICE_BYTES)
    }

    /// Changes the device that the thread works on.
    fn hipSetDevice(device: i32) in sim {
        sim.set_device(device)
    }

    /// Waits for all work of the device.
    fn hipDeviceSynchronize() in sim {
        sim.synchronize_context()
    }

    /// Makes a stream.
    fn hipStreamCreateWithFlags(place: Out<Handle>, flags: u32) in sim {
        let stream = sim.create_stream(flags)?;
        sim.give(place, stream)
    }

    /// Destroys a stream, whose work goes on.
    fn hipStreamDestroy(stream: Handle) in sim {
        sim.destroy_stream(stream)
    }

    /// Waits for a stream.
    fn hipStreamSynchronize(stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.synchronize_stream(stream)
    }

    /// Whether the work of a stream is done.
    fn hipStreamQuery(stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.query_stream(stream)
    }

    /// The device of a stream.
    fn hipStreamGetDevice(stream: Handle, device: Out<i32>) in sim {
        let stream = sim.resolve(stream)?;
        let context = sim.stream(stream)?.context;
        let found = sim.device_of(context)?;
        sim.give(device, found)
    }

    /// Makes an event.
    fn hipEventCreateWithFlags(place: Out<Handle>, flags: u32) in sim {
        let event = sim.create_event(flags)?;
        sim.give(place, event)
    }

    /// Records what a stream has queued; not while the event is pending.
    fn hipEventRecord(event: Handle, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.record_event(event, stream, 0)
    }

    /// Whether an event is done.
    fn hipEventQuery(event: Handle) in sim {
        check_stream_of(sim, event)?;
        sim.query_event(event)
    }

    /// Waits for an event.
    fn hipEventSynchronize(event: Handle) in sim {
        check_stream_of(sim, event)?;
        sim.synchronize_event(event)
    }

    /// Destroys an event.
    fn hipEventDestroy(event: Handle) in sim {
        sim.destroy_event(event)
    }

    /// Makes a stream wait for an event.
    fn hipStreamWaitEvent(stream: Handle, event: Handle, flags: u32) in sim {
        let stream = sim.resolve(stream)?;
        sim.wait_event(stream, event, flags)
    }

    /// Whether a stream captures: 0 no, 1 yes, 2 it did until it was broken.
    fn hipStreamIsCapturing(stream: Handle, status: Out<i32>) in sim {
        let stream = sim.resolve(stream)?;
        let number = match sim.capture_status(stream)? {
            Status::None => 0,
            Status::Active { .. } => 1,
            Status::Invalidated => 2,
        };
        sim.give(status, number)
    }

    /// Whether a stream captures, with the capture's number.
    fn hipStreamGetCaptureInfo(stream: Handle, status: Out<i32>, id: Out<u64>) in sim {
        let stream = sim.resolve(stream)?;
        let (number, found) = match sim.capture_status(stream)? {
            Status::None => (0, 0),
            Status::Active { id, .. } => (1, id),
            Status::Invalidated => (2, 0),
        };
        sim.give(status, number)?;
        if id.is_null() { Ok(()) } else { sim.give(id, found) }
    }

    /// Begins a capture.
    fn hipStreamBeginCapture(stream: Handle, mode: i32) in sim {
        let stream = sim.resolve(stream)?;
        sim.begin_capture(stream, mode)
    }

    /// Ends a capture; the graph is 0 where it failed.
    fn hipStreamEndCapture(stream: Handle, graph: Out<Handle>) in sim {
        graph.set(0)?;
        let stream = sim.resolve(stream)?;
        let captured = sim.end_capture(stream)?;
        sim.give(graph, captured)
    }

    /// Destroys a graph.
    fn hipGraphDestroy(graph: Handle) in sim {
        if sim.graphs.remove(&graph) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// Replaces the thread's mode, and gives the one before.
    fn hipThreadExchangeStreamCaptureMode(mode: Out<i32>) in sim {
        let new = Mode::from_number(mode.get()?)?;
        let old = std::mem::replace(&mut sim.this_thread().mode, new);
        sim.give(mode, old as i32)
    }

    /// What is known of a pointer, which need not be one of HIP.
    fn hipPointerGetAttributes(place: Out<Attributes>, address: Address) in sim {
        let block = sim.block(address).filter(|block| block.live);
        let memory_type = match block.map(|block| block.kind) {
            None => 0,
            Some(Kind::Host) => 1,
            Some(Kind::Device | Kind::Pool) => 2,
            Some(Kind::Managed) => 3,
        };
        place.set(Attributes {
            memory_type,
            device: block.map_or(-2, |block| block.device),
            device_pointer: if block.is_some() { address } else { 0 },
            host_pointer: if matches!(memory_type, 1 | 3) { address } else { 0 },
            is_managed: (memory_type == 3).into(),
            allocation_flags: 0,
        })
    }

    /// Allocates on the device.
    fn hipMalloc(place: Out<Address>, nbytes: usize) in sim {
        let address = sim.allocate(Kind::Device, nbytes)?;
        sim.give(place, address)
    }

    /// Frees.
    fn hipFree(address: Address) in sim {
        sim.free(address)
    }

    /// Allocates in the order of a stream.
    fn hipMallocAsync(place: Out<Address>, nbytes: usize, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        let address = sim.allocate_on(nbytes, stream)?;
        sim.give(place, address)
    }

    /// Frees in the order of a stream.
    fn hipFreeAsync(address: Address, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.free_on(address, stream)
    }

    /// Copies; the kinds of memory are seen from the addresses, whatever `kind` says.
    fn hipMemcpyAsync(target: Address, source: Address, nbytes: usize, kind: i32, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.copy(Side::plain(target), Side::plain(source), nbytes, stream)
    }

    /// Copies between devices, whoever reaches whom.
    fn hipMemcpyPeerAsync(
        target: Address, target_device: i32, source: Address, source_device: i32,
        nbytes: usize, stream: Handle,
    ) in sim {
        let stream = sim.resolve(stream)?;
        let primary = |device| sim.primary(device).ok_or(INVALID_DEVICE);
        let (to, from) = (primary(target_device)?, primary(source_device)?);
        sim.copy(Side::of_peer(target, to), Side::of_peer(source, from), nbytes, stream)
    }

    /// Copies rows.
    fn hipMemcpy2DAsync(
        target: Address, target_pitch: usize, source: Address, source_pitch: usize,
        width: usize, height: usize, kind: i32, stream: Handle,
    ) in sim {
        let stream = sim.resolve(stream)?;
        let side = |start, pitch| Side { pitch, ..Side::plain(start) };
        let extent = Extent { width, height, depth: 1 };
        sim.copy_rows(side(target, target_pitch), side(source, source_pitch), extent, stream)
    }
}
