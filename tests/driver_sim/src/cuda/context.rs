//! The driver, devices and contexts.

use std::ffi::c_char;

use crate::abi::{Handle, Out, exports};
use crate::code::{INVALID_VALUE, cuda_name};

/// The version that the driver says it has.
pub(crate) const VERSION: i32 = 13_000;
/// The memory of every device.
pub(crate) const DEVICE_BYTES: usize = 10 << 30;

exports! {
    /// Takes the driver into use.
    fn cuInit(flags: u32) in sim {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        sim.init();
        Ok(())
    }

    /// The version of CUDA.
    fn cuDriverGetVersion(version: Out<i32>) in sim {
        sim.give(version, VERSION)
    }

    /// Name of an error.
    fn cuGetErrorName(error: i32, name: Out<*const c_char>) in _sim {
        name.set(cuda_name(error).map_or(std::ptr::null(), |name| name.as_ptr()))?;
        cuda_name(error).map(|_| ()).ok_or(INVALID_VALUE)
    }

    /// Text of an error, which is its name here.
    fn cuGetErrorString(error: i32, text: Out<*const c_char>) in _sim {
        text.set(cuda_name(error).map_or(std::ptr::null(), |name| name.as_ptr()))?;
        cuda_name(error).map(|_| ()).ok_or(INVALID_VALUE)
    }

    /// How many devices there are.
    fn cuDeviceGetCount(count: Out<i32>) in sim {
        sim.give(count, sim.devices)
    }

    /// The device of a number, which is the number.
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) in sim {
        let found = sim.device(ordinal)?;
        sim.give(device, found)
    }

    /// The bytes of memory that a device has: 10 GiB.
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) in sim {
        sim.device(device)?;
        sim.give(bytes, DEVICE_BYTES)
    }

    /// Retains a primary context.
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) in sim {
        let primary = sim.retain_primary(device)?;
        sim.give(context, primary)
    }

    /// Gives a primary context back.
    fn cuDevicePrimaryCtxRelease_v2(device: i32) in sim {
        sim.release_primary(device)
    }

    /// Ends a primary context.
    fn cuDevicePrimaryCtxReset_v2(device: i32) in sim {
        sim.reset_primary(device)
    }

    /// Whether a primary context is active.
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) in sim {
        let primary = sim.primary(sim.device(device)?);
        sim.give(flags, 0)?;
        sim.give(active, primary.is_some().into())
    }

    /// Makes a context and makes it current.
    fn cuCtxCreate_v2(context: Out<Handle>, flags: u32, device: i32) in sim {
        let made = sim.create_context(device, None)?;
        sim.push_context(made)?;
        sim.give(context, made)
    }

    /// Ends a context with all that is in it.
    fn cuCtxDestroy_v2(context: Handle) in sim {
        sim.destroy_context(context)
    }

    /// The current context, 0 for none.
    fn cuCtxGetCurrent(context: Out<Handle>) in sim {
        let current = sim.this_thread().stack.last().copied();
        sim.give(context, current.unwrap_or(0))
    }

    /// Replaces the current context.
    fn cuCtxSetCurrent(context: Handle) in sim {
        sim.set_context(context)
    }

    /// Makes a context current, above the one that is.
    fn cuCtxPushCurrent_v2(context: Handle) in sim {
        sim.push_context(context)
    }

    /// Makes the context current that was so before.
    fn cuCtxPopCurrent_v2(context: Out<Handle>) in sim {
        let popped = sim.pop_context()?;
        if context.is_null() { Ok(()) } else { sim.give(context, popped) }
    }

    /// The device of the current context.
    fn cuCtxGetDevice(device: Out<i32>) in sim {
        let current = sim.current_context()?;
        let found = sim.device_of(current)?;
        sim.give(device, found)
    }

    /// The number of a context, or of the current one for 0, which no other has.
    fn cuCtxGetId(context: Handle, id: Out<u64>) in sim {
        let context = if context == 0 { sim.current_context()? } else { context };
        let found = sim.context(context)?.id;
        sim.give(id, found)
    }

    /// Waits for all work of the current context.
    fn cuCtxSynchronize() in sim {
        sim.synchronize_context()
    }
}
