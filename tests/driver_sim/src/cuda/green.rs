//! Green contexts.

use crate::abi::{Handle, Out, exports};
use crate::code::INVALID_VALUE;

exports! {
    /// What a device can be divided into, of which there is nothing to say here.
    fn cuDeviceGetDevResource(device: i32, resource: Out<i32>, kind: i32) in sim {
        sim.device(device)?;
        resource.set(kind)
    }

    /// Describes parts of a device.
    fn cuDevResourceGenerateDesc(place: Out<Handle>, resources: Out<i32>, count: u32) in sim {
        let description = sim.new_handle();
        sim.give(place, description)
    }

    /// Makes a green context; here it is all of the device, whatever the description says.
    fn cuGreenCtxCreate(place: Out<Handle>, description: Handle, device: i32, flags: u32) in sim {
        let green = sim.create_green(device, flags)?;
        sim.give(place, green)
    }

    /// Ends a green context.
    fn cuGreenCtxDestroy(green: Handle) in sim {
        sim.destroy_green(green)
    }

    /// The context of a green context.
    fn cuCtxFromGreenCtx(place: Out<Handle>, green: Handle) in sim {
        let context = sim.context_of_green(green)?;
        sim.give(place, context)
    }

    /// Makes a stream in a green context; it has to be non-blocking.
    fn cuGreenCtxStreamCreate(place: Out<Handle>, green: Handle, flags: u32, priority: i32) in sim {
        if flags != 1 {
            return Err(INVALID_VALUE);
        }
        let context = sim.context_of_green(green)?;
        let stream = sim.create_stream_in(context, flags);
        sim.give(place, stream)
    }

    /// The green context of a stream, 0 for none.
    fn cuStreamGetGreenCtx(stream: Handle, place: Out<Handle>) in sim {
        let context = sim.context_of_stream(stream)?;
        let (_, green) = sim.regular_and_green(context)?;
        sim.give(place, green)
    }

    /// The regular context of a stream, and the green one, 0 for none.
    fn cuStreamGetCtx_v2(stream: Handle, place: Out<Handle>, green_place: Out<Handle>) in sim {
        let stream = sim.resolve(stream)?;
        let context = sim.stream(stream)?.context;
        let (regular, green) = sim.regular_and_green(context)?;
        sim.give(place, regular)?;
        if green_place.is_null() { Ok(()) } else { sim.give(green_place, green) }
    }
}
