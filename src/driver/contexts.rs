//! The contexts of a runtime: on CUDA those of its driver, on HIP the devices.

use std::ffi::c_int;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::Error;
use super::functions::call;
use super::interface::{Context, RawStream};
use super::runtime::{Driver, numbered};

impl Driver {
    /// Where the primary context of a device is remembered.
    fn place(&self, device: i32) -> Option<&AtomicUsize> {
        self.primary.get(usize::try_from(device).ok()?)
    }

    fn known_primary(&self, device: i32) -> Option<Context> {
        let context = self.place(device)?.load(Ordering::Acquire);
        (context != 0).then_some(context)
    }

    /// The context that runtimes use on `device`: on CUDA the primary one, retained once for the process.
    pub(super) fn primary(&self, device: i32) -> Result<Context, Error> {
        if self.is_hip {
            return Ok(device as Context);
        }
        if let Some(context) = self.known_primary(device) {
            return Ok(context);
        }
        // Two threads may both retain it, which is harmless: it is never released.
        let mut context = null_mut();
        call!(self, retain_primary(&mut context, device))?;
        let context = context.expose_provenance();
        if let Some(place) = self.place(device) {
            place.store(context, Ordering::Release);
        }
        Ok(context)
    }

    /// The current context; on CUDA perhaps none, 0.
    fn current(&self) -> Result<Context, Error> {
        if self.is_hip {
            return Ok(self.device()? as Context);
        }
        let mut context = null_mut();
        call!(self, current_context(&mut context))?;
        Ok(context.expose_provenance())
    }

    /// The device of the current context.
    fn device(&self) -> Result<i32, Error> {
        let mut device = 0;
        call!(self, device(&mut device))?;
        Ok(device)
    }

    /// The current context, if it is one of `device` other than the primary one. Creates no context.
    pub(crate) fn other_context(&self, device: i32) -> Result<Option<Context>, Error> {
        if self.is_hip {
            return Ok(None);
        }
        let current = self.current()?;
        if current == 0 || self.known_primary(device) == Some(current) || self.device()? != device {
            return Ok(None);
        }
        let (mut flags, mut active) = (0, 0);
        call!(self, primary_state(device, &mut flags, &mut active))?;
        // Retaining an active context creates nothing.
        let is_primary = active != 0 && self.primary(device)? == current;
        Ok((!is_primary).then_some(current))
    }

    /// Makes a context current; returns what [`Self::leave`] must restore.
    pub(super) fn enter_context(&self, context: Context) -> Result<Option<Context>, Error> {
        let current = self.current()?;
        if current == context {
            return Ok(None);
        }
        if self.is_hip {
            call!(self, set_device(context as c_int))?;
        } else {
            call!(self, push_context(with_exposed_provenance_mut(context)))?;
        }
        Ok(Some(current))
    }

    /// Restores the context that was current before [`Self::enter_context`].
    pub(super) fn leave(&self, previous: Context) {
        // A runtime that is shutting down has nothing to restore.
        if self.is_hip {
            call!(self, set_device(previous as c_int)).ok();
        } else {
            // The current context is the one that was pushed.
            call!(self, pop_context(&mut null_mut())).ok();
        }
    }

    /// The context of a stream.
    pub(super) fn context_of(&self, stream: RawStream) -> Result<Context, Error> {
        if self.is_hip {
            let mut device = 0;
            call!(self, stream_device(stream.as_ptr(), &mut device))?;
            return Ok(device as Context);
        }
        let mut context = null_mut();
        call!(self, stream_context(stream.as_ptr(), &mut context))?;
        Ok(context.expose_provenance())
    }

    /// The number of a context, which no other context of this process gets, even after its end; `None` if the driver has
    /// no such numbers.
    pub(super) fn number_of_context(&self, context: Context) -> Result<Option<u64>, Error> {
        let (context, mut number) = (with_exposed_provenance_mut(context), 0);
        let asked = call!(self, context_id(context, &mut number));
        numbered(asked, number)
    }

    /// The device of a context.
    pub(super) fn device_of_context(&self, context: Context) -> Result<i32, Error> {
        let entered = self.enter_context(context)?;
        let found = self.device();
        if let Some(previous) = entered {
            self.leave(previous);
        }
        found
    }
}
