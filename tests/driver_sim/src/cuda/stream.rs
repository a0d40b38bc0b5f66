//! Streams and captures.

use crate::abi::{Address, Handle, Out, exports};
use crate::capture::{Mode, Status};
use crate::code::{Answer, INVALID_HANDLE};
use crate::host::Function;
use crate::sim::Sim;

fn give_status(sim: &mut Sim, stream: Handle, place: Out<i32>) -> Answer<(u64, Handle)> {
    let stream = sim.resolve(stream)?;
    let (number, id, graph) = match sim.capture_status(stream)? {
        Status::None => (0, 0, 0),
        Status::Active { id, graph } => (1, id, graph),
        Status::Invalidated => (2, 0, 0),
    };
    sim.give(place, number)?;
    Ok((id, graph))
}

exports! {
    /// Makes a stream.
    fn cuStreamCreate(place: Out<Handle>, flags: u32) in sim {
        let stream = sim.create_stream(flags)?;
        sim.give(place, stream)
    }

    /// Makes a stream; all have one priority.
    fn cuStreamCreateWithPriority(place: Out<Handle>, flags: u32, priority: i32) in sim {
        let stream = sim.create_stream(flags)?;
        sim.give(place, stream)
    }

    /// Destroys a stream, whose work goes on.
    fn cuStreamDestroy_v2(stream: Handle) in sim {
        sim.destroy_stream(stream)
    }

    /// Waits for a stream.
    fn cuStreamSynchronize(stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.synchronize_stream(stream)
    }

    /// Whether the work of a stream is done.
    fn cuStreamQuery(stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.query_stream(stream)
    }

    /// The context of a stream.
    fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) in sim {
        let found = sim.context_of_stream(stream)?;
        sim.give(context, found)
    }

    /// A number of the stream alone; breaks a capture.
    fn cuStreamGetId(stream: Handle, id: Out<u64>) in sim {
        let stream = sim.resolve(stream)?;
        sim.check_not_capturing(stream)?;
        let timeline = sim.stream(stream)?.timeline;
        sim.give(id, timeline.into())
    }

    /// The device of a stream; breaks a capture.
    fn cuStreamGetDevice(stream: Handle, device: Out<i32>) in sim {
        let stream = sim.resolve(stream)?;
        sim.check_not_capturing(stream)?;
        let context = sim.stream(stream)?.context;
        let found = sim.device_of(context)?;
        sim.give(device, found)
    }

    /// Whether a stream captures: 0 no, 1 yes, 2 it did until it was broken.
    fn cuStreamIsCapturing(stream: Handle, status: Out<i32>) in sim {
        give_status(sim, stream, status).map(|_| ())
    }

    /// The same, with the capture's number and graph. There are no nodes to see.
    fn cuStreamGetCaptureInfo_v2(
        stream: Handle, status: Out<i32>, id: Out<u64>, graph: Out<Handle>,
        dependencies: Out<Handle>, dependency_count: Out<usize>,
    ) in sim {
        let (found, of_graph) = give_status(sim, stream, status)?;
        if !id.is_null() {
            sim.give(id, found)?;
        }
        if !graph.is_null() {
            sim.give(graph, of_graph)?;
        }
        if !dependencies.is_null() {
            dependencies.set(0)?;
        }
        if !dependency_count.is_null() {
            dependency_count.set(0)?;
        }
        Ok(())
    }

    /// Begins a capture.
    fn cuStreamBeginCapture_v2(stream: Handle, mode: i32) in sim {
        let stream = sim.resolve(stream)?;
        sim.begin_capture(stream, mode)
    }

    /// Ends a capture; the graph is 0 where it failed.
    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) in sim {
        graph.set(0)?;
        let stream = sim.resolve(stream)?;
        let captured = sim.end_capture(stream)?;
        sim.give(graph, captured)
    }

    /// Queues a host function.
    fn cuLaunchHostFunc(stream: Handle, function: Function, data: Address) in sim {
        let stream = sim.resolve(stream)?;
        sim.launch_host(stream, function, data)
    }

    /// Destroys a graph.
    fn cuGraphDestroy(graph: Handle) in sim {
        if sim.graphs.remove(&graph) { Ok(()) } else { Err(INVALID_HANDLE) }
    }

    /// Replaces the thread's mode, and gives the one before.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) in sim {
        let new = Mode::from_number(mode.get()?)?;
        let old = std::mem::replace(&mut sim.this_thread().mode, new);
        sim.give(mode, old as i32)
    }
}
