//! Devices, contexts, and what each thread has current.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::abi::Handle;
use crate::capture::Mode;
use crate::code::{Answer, CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE};
use crate::sim::Sim;

/// A context of a device.
pub(crate) struct Context {
    pub(crate) device: i32,
    pub(crate) alive: bool,
    /// How often it was retained, if it is the primary one.
    pub(crate) retained: Option<u32>,
    /// Its legacy default stream, once that was used.
    pub(crate) legacy: Option<Handle>,
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
        let handle = self.new_handle();
        let context = Context {
            device,
            alive: true,
            retained,
            legacy: None,
        };
        self.contexts.insert(handle, context);
        Ok(handle)
    }

    /// The context, if it lives.
    pub(crate) fn context(&self, handle: Handle) -> Answer<&Context> {
        match self.contexts.get(&handle) {
            Some(context) if context.alive => Ok(context),
            Some(_) => Err(CONTEXT_IS_DESTROYED),
            None => Err(INVALID_CONTEXT),
        }
    }

    /// The context that the call works in: of HIP, the primary one of the thread's device.
    pub(crate) fn current_context(&mut self) -> Answer<Handle> {
        if self.is_hip() {
            let device = self.this_thread().device;
            return match self.primary(device) {
                Some(handle) => Ok(handle),
                None => self.create_context(device, Some(1)),
            };
        }
        let current = self.this_thread().stack.last().copied();
        let current = current.ok_or(INVALID_CONTEXT)?;
        self.context(current)?;
        Ok(current)
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
        context.alive = context.retained != Some(0);
        Ok(())
    }

    /// Ends a context that is no primary one.
    pub(crate) fn destroy_context(&mut self, handle: Handle) -> Answer {
        self.context(handle)?;
        match self.contexts.get_mut(&handle) {
            Some(context) if context.retained.is_none() => context.alive = false,
            _ => return Err(INVALID_CONTEXT),
        }
        let stack = &mut self.this_thread().stack;
        if stack.last() == Some(&handle) {
            stack.pop();
        }
        Ok(())
    }

    /// Ends the primary context of a device, whoever has retained it.
    pub(crate) fn reset_primary(&mut self, device: i32) -> Answer {
        let device = self.device(device)?;
        let primary = self.primary(device);
        if let Some(context) = primary.and_then(|handle| self.contexts.get_mut(&handle)) {
            context.alive = false;
        }
        Ok(())
    }

    /// Puts a context on the thread's stack.
    pub(crate) fn push_context(&mut self, handle: Handle) -> Answer {
        self.context(handle)?;
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
            self.context(handle)?;
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
