//! Green contexts: parts of a device, each with a context and default stream of its own.

#![forbid(unsafe_code)]

use crate::abi::Handle;
use crate::code::{Answer, INVALID_CONTEXT, INVALID_VALUE, STREAM_DETACHED};
use crate::sim::Sim;

/// `CU_GREEN_CTX_DEFAULT_STREAM`, which is required (cuda.h, cuGreenCtxCreate).
const DEFAULT_STREAM: u32 = 1;

/// What makes a context one of a green context.
#[derive(Clone, Copy)]
pub(crate) struct Green {
    /// The `CUgreenCtx`, which is no `CUcontext`.
    pub(crate) handle: Handle,
    /// The primary context of the device.
    pub(crate) primary: Handle,
}

impl Sim {
    /// Makes a green context. It "will retain the primary context on device dev" (cuda.h, cuGreenCtxCreate).
    pub(crate) fn create_green(&mut self, device: i32, flags: u32) -> Answer<Handle> {
        if flags != DEFAULT_STREAM {
            return Err(INVALID_VALUE);
        }
        let primary = self.retain_primary(device)?;
        let (context, handle) = (self.create_context(device, None)?, self.new_handle());
        if let Some(context) = self.contexts.get_mut(&context) {
            context.green = Some(Green { handle, primary });
        }
        Ok(handle)
    }

    /// The `CUcontext` of a green context (cuda.h, cuCtxFromGreenCtx).
    pub(crate) fn context_of_green(&self, green: Handle) -> Answer<Handle> {
        let mut contexts = self.contexts.iter();
        let of_green = contexts.find(|(_, context)| {
            context.alive && context.green.is_some_and(|found| found.handle == green)
        });
        of_green.map(|(&handle, _)| handle).ok_or(INVALID_CONTEXT)
    }

    /// Ends a green context. "Any subsequent API calls involving these streams will return
    /// CUDA_ERROR_STREAM_DETACHED with the exception of" cuStreamDestroy, and captures on them are invalid (cuda.h,
    /// cuGreenCtxDestroy).
    pub(crate) fn destroy_green(&mut self, green: Handle) -> Answer {
        let handle = self.context_of_green(green)?;
        let device = self.context(handle)?.device;
        let streams = self.streams.values();
        let streams = streams.filter(|stream| stream.context == handle);
        let captures = streams.filter_map(|stream| Some(stream.capture.as_ref()?.capture));
        let captures: Vec<u64> = captures.collect();
        self.invalidate(&captures);
        self.end_context(handle, STREAM_DETACHED);
        self.release_primary(device)
    }

    /// Refuses to make a green context current in a second thread: "a green context can be current to only one thread
    /// at a time" (cuda.h, cuGreenCtxCreate). Which error that is, or whether it is one, is not documented.
    pub(crate) fn check_green_elsewhere(&self, handle: Handle) -> Answer {
        let green = self
            .context(handle)
            .is_ok_and(|context| context.green.is_some());
        let mut others = self.threads.iter().filter(|&(&id, _)| id != self.thread);
        if green && others.any(|(_, thread)| thread.stack.contains(&handle)) {
            return Err(INVALID_CONTEXT);
        }
        Ok(())
    }

    /// The regular context that a context belongs to, and its green one or 0 (cuda.h, cuStreamGetCtx_v2).
    pub(crate) fn regular_and_green(&self, handle: Handle) -> Answer<(Handle, Handle)> {
        let green = self.context(handle)?.green;
        Ok(green.map_or((handle, 0), |green| (green.primary, green.handle)))
    }

    /// A context and the green ones of its device, if it is the primary one: "if the current context is the primary
    /// context, green contexts that have been created will also be synchronized" (cuda.h, cuCtxSynchronize).
    pub(crate) fn with_green(&self, handle: Handle) -> Vec<Handle> {
        let greens = self.contexts.iter().filter(|(_, context)| {
            context.alive && context.green.is_some_and(|green| green.primary == handle)
        });
        let greens = greens.map(|(&green, _)| green);
        greens.chain([handle]).collect()
    }
}
