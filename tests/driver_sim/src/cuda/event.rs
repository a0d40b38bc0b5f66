//! Events.

use crate::abi::{Handle, Out, exports};

exports! {
    /// Makes an event.
    fn cuEventCreate(place: Out<Handle>, flags: u32) in sim {
        let event = sim.create_event(flags)?;
        sim.give(place, event)
    }

    /// Records what a stream has queued.
    fn cuEventRecord(event: Handle, stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.record_event(event, stream, 0)
    }

    /// The same; 1 makes it a node of a capture.
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) in sim {
        let stream = sim.resolve(stream)?;
        sim.record_event(event, stream, flags)
    }

    /// Whether an event is done.
    fn cuEventQuery(event: Handle) in sim {
        sim.query_event(event)
    }

    /// Waits for an event.
    fn cuEventSynchronize(event: Handle) in sim {
        sim.synchronize_event(event)
    }

    /// Destroys an event.
    fn cuEventDestroy_v2(event: Handle) in sim {
        sim.destroy_event(event)
    }

    /// Makes a stream wait for an event.
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) in sim {
        let stream = sim.resolve(stream)?;
        sim.wait_event(stream, event, flags)
    }
}
