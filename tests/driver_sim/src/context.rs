//! Devices, contexts, and what each thread has current.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::abi::{Code, Handle};
use crate::capture::Mode;
use crate::code::{
    Answer, CONTEXT_IS_DESTROYED, ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE,
};
use crate::green::Green;
use crate::sim::Sim;

/// A context of a device.
pub(crate) struct Context {
    pub(crate) device: i32,
    pub(crate) alive: bool,
    /// Its number, which no other context of the process has.
    pub(crate) id: u64,
    /// How often it was retained, if it is the primary one.
    pub(crate) retained: Option<u32>,
    /// Whose it is, if it was made from a green context.
    pub(crate) green: Option<Green>,
    /// Its legacy default stream, once that was used.
    pub(crate) legacy: Option<Handle>,
    /// What every call answers since a kernel has failed, 0 before.
    pub(crate) error: Code,
}

/// What the driver keeps for a thread.
#[derive(Default)]
pub(crate) struct Thread {
    /// Contexts, the current one last.
    pub(crate) stack: Vec<Handle>,
    /// The device that HIP works on.
    pub(crate) device: i32,
    pub(crate) mode: Mode,
    /// The per-thread default stream of each context.
    pub(crate) streams: BTreeMap<Handle, Handle>,
}

/// Calls that may answer `CUDA_ERROR_INVALID_CONTEXT` without a current context, whatever their handles name: cuda.h
/// lists that error for them. Not so for `cuEventQuery`, and for `cuMemAllocAsync` and `cuMemFreeAsync` only with a
/// default stream; `cuStreamGetCtx` and its kin name a current context only for default streams. `cuStreamDestroy` and
/// `cuEventDestroy` list it, too, but cuda.core calls them from any thread's garbage collection.
const NEED_CONTEXT: [&str; 18] = [
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuLaunchHostFunc",
    "cuMemcpyAsync",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyPeerAsync",
    "cuMemcpy2DAsync_v2",
    "cuMemcpy3DAsync_v2",
    "cuMemcpy3DPeerAsync",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemsetD8Async",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

impl Sim {
    /// The calling thread.
    pub(crate) fn this_thread(&mut self) -> &mut Thread {
        self.threads.entry(self.thread).or_default()
    }

    /// Checks the number of a device.
    pub(crate) fn device(&self, device: i32) -> Answer<i32> {
        if (0..self.devices).contains(&device) {
            Ok(device)
        } else {
            Err(INVALID_DEVICE)
        }
    }

    /// Makes a context.
    pub(crate) fn create_context(&mut self, device: i32, retained: Option<u32>) -> Answer<Handle> {
        let device = self.device(device)?;
        let id = self.new_handle() as u64;
        let handle = self.handle_of(|freed| &mut freed.contexts);
        let context = Context {
            device,
            alive: true,
            id,
            retained,
            green: None,
            legacy: None,
            error: 0,
        };
        self.contexts.insert(handle, context);
        Ok(handle)
    }

    /// The context, if it lives and works.
    pub(crate) fn context(&self, handle: Handle) -> Answer<&Context> {
        match self.contexts.get(&handle) {
            Some(context) if context.alive && context.error != 0 => Err(context.error),
            Some(context) if context.alive => Ok(context),
            Some(_) => Err(CONTEXT_IS_DESTROYED),
            None => Err(INVALID_CONTEXT),
        }
    }

    /// A context that a call is given: "a context that has had cuCtxDestroy() invoked on it" is no valid handle
    /// (cuda.h, `CUDA_ERROR_INVALID_CONTEXT`). One that has failed still is.
    fn given_context(&self, handle: Handle) -> Answer {
        match self.context(handle) {
            Err(CONTEXT_IS_DESTROYED | INVALID_CONTEXT) => Err(INVALID_CONTEXT),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The context that the call works in: of HIP, the primary one of the thread's device.
    pub(crate) fn current_context(&mut self) -> Answer<Handle> {
        if self.is_hip() {
            let device = self.this_thread().device;
            return match self.primary(device) {
                Some(handle) => self.context(handle).map(|_| handle),
                None => self.create_context(device, Some(1)),
            };
        }
        let current = self.this_thread().stack.last().copied();
        let current = current.ok_or(INVALID_CONTEXT)?;
        self.context(current)?;
        Ok(current)
    }

    /// Refuses a call that may need a current context where there is none.
    pub(crate) fn check_current(&mut self, name: &str) -> Answer {
        if NEED_CONTEXT.contains(&name) {
            self.current_context()?;
        }
        Ok(())
    }

    /// The primary context of a device, if it is active.
    pub(crate) fn primary(&self, device: i32) -> Option<Handle> {
        let mut contexts = self.contexts.iter();
        contexts
            .find(|(_, context)| {
                context.alive && context.retained.is_some() && context.device == device
            })
            .map(|(&handle, _)| handle)
    }

    /// Retains the primary context of a device.
    pub(crate) fn retain_primary(&mut self, device: i32) -> Answer<Handle> {
        let device = self.device(device)?;
        let Some(handle) = self.primary(device) else {
            return self.create_context(device, Some(1));
        };
        self.given_context(handle)?;
        if let Some(context) = self.contexts.get_mut(&handle) {
            context.retained = context.retained.map(|count| count + 1);
        }
        Ok(handle)
    }

    /// Gives the primary context of a device back; it ends with the last who retained it.
    pub(crate) fn release_primary(&mut self, device: i32) -> Answer {
        let handle = self.primary(self.device(device)?).ok_or(INVALID_CONTEXT)?;
        let context = self.contexts.get_mut(&handle).ok_or(INVALID_CONTEXT)?;
        context.retained = context.retained.map(|count| count.saturating_sub(1));
        if context.retained == Some(0) {
            self.end_context(handle, CONTEXT_IS_DESTROYED);
        }
        Ok(())
    }

    /// How often the primary context of each device is retained.
    pub(crate) fn retained(&self) -> BTreeMap<i32, u32> {
        let contexts = self.contexts.values().filter(|context| context.alive);
        contexts
            .filter_map(|context| Some((context.device, context.retained?)))
            .collect()
    }

    /// Ends a context that is no primary one.
    pub(crate) fn destroy_context(&mut self, handle: Handle) -> Answer {
        self.given_context(handle)?;
        let context = self.contexts.get(&handle).ok_or(INVALID_CONTEXT)?;
        if context.retained.is_some() || context.green.is_some() {
            return Err(INVALID_CONTEXT);
        }
        self.end_context(handle, CONTEXT_IS_DESTROYED);
        let stack = &mut self.this_thread().stack;
        if stack.last() == Some(&handle) {
            stack.pop();
        }
        Ok(())
    }

    /// Ends the primary context of a device, whoever has retained it.
    pub(crate) fn reset_primary(&mut self, device: i32) -> Answer {
        let device = self.device(device)?;
        if let Some(handle) = self.primary(device) {
            self.end_context(handle, CONTEXT_IS_DESTROYED);
        }
        Ok(())
    }

    /// Ends a context. Its streams and events answer a code from then on; its handle may be another context's.
    pub(crate) fn end_context(&mut self, handle: Handle, code: Code) {
        self.forget_functions(handle);
        if let Some(context) = self.contexts.get_mut(&handle) {
            context.alive = false;
        }
        let streams = self.streams.values_mut();
        for stream in streams.filter(|stream| stream.context == handle && stream.lost == 0) {
            stream.lost = code;
        }
        self.lose_events(handle);
        for thread in self.threads.values_mut() {
            thread.streams.remove(&handle);
        }
        self.freed.contexts.push(handle);
    }

    /// Lets a kernel of a resolved stream fail. "This leaves the process in an inconsistent state and any further CUDA
    /// work will return the same error. To continue using CUDA, the process must be terminated and relaunched." (cuda.h,
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.) Here it is the stream's primary context and the green ones of that device that
    /// answer nothing else, until `sim_reset`.
    pub(crate) fn fail_context(&mut self, stream: Handle) -> Answer {
        let context = self.stream(stream)?.context;
        let (regular, _) = self.regular_and_green(context)?;
        for handle in self.with_green(regular) {
            self.forget_functions(handle);
            if let Some(context) = self.contexts.get_mut(&handle) {
                context.error = ILLEGAL_ADDRESS;
            }
        }
        Ok(())
    }

    /// Puts a context on the thread's stack.
    pub(crate) fn push_context(&mut self, handle: Handle) -> Answer {
        self.given_context(handle)?;
        self.check_green_elsewhere(handle)?;
        self.this_thread().stack.push(handle);
        Ok(())
    }

    /// Takes the current context from the thread's stack.
    pub(crate) fn pop_context(&mut self) -> Answer<Handle> {
        self.this_thread().stack.pop().ok_or(INVALID_CONTEXT)
    }

    /// Replaces the current context; 0 leaves none.
    pub(crate) fn set_context(&mut self, handle: Handle) -> Answer {
        if handle != 0 {
            self.given_context(handle)?;
            self.check_green_elsewhere(handle)?;
        }
        let stack = &mut self.this_thread().stack;
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
        Ok(())
    }

    /// Sets the device that HIP works on.
    pub(crate) fn set_device(&mut self, device: i32) -> Answer {
        let device = self.device(device)?;
        self.this_thread().device = device;
        Ok(())
    }

    /// The device of a context, for a call that takes no wrong one.
    pub(crate) fn device_of(&self, context: Handle) -> Answer<i32> {
        self.contexts
            .get(&context)
            .map(|context| context.device)
            .ok_or(INVALID_VALUE)
    }
}
