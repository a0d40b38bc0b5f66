//! The contexts of a runtime, on CUDA those of its driver, on HIP the devices, and the one that its functions use.

use std::ffi::c_int;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::Error;
use super::functions::{call, out};
use super::interface::{Context, RawStream};
use super::runtime::{Driver, numbered, of};
use crate::abi::DLDevice;

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
        let context = out(|context| call!(self, retain_primary(context, device)))?;
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
        out(|context| call!(self, current_context(context)))
    }

    /// The device of the current context.
    pub(super) fn device(&self) -> Result<i32, Error> {
        out(|device| call!(self, device(device)))
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
            call!(self, push_context(context))?;
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
            call!(self, pop_context(&mut 0)).ok();
        }
    }

    /// The context of a stream.
    pub(super) fn context_of(&self, stream: RawStream) -> Result<Context, Error> {
        if self.is_hip {
            let device: c_int = out(|device| call!(self, stream_device(stream.0, device)))?;
            return Ok(device as Context);
        }
        out(|context| call!(self, stream_context(stream.0, context)))
    }

    /// The number of a context, which no other context of this process gets, even after its end; `None` if the driver has
    /// no such numbers.
    pub(super) fn number_of_context(&self, context: Context) -> Result<Option<u64>, Error> {
        numbered(out(|number| call!(self, context_id(context, number))))
    }
}

/// A driver, with the context of a device current until this is dropped.
pub(crate) struct Current {
    pub(super) driver: &'static Driver,
    pub(super) context: Context,
    /// Whether the context lives as long as the process, which retains it.
    pub(super) is_permanent: bool,
    previous: Option<Context>,
}

/// Makes `context` current in this thread, or else the primary context of `device`; asks nothing if `outer`, which is
/// current, is that.
pub(crate) fn enter(
    device: DLDevice,
    context: Option<Context>,
    outer: Option<&Current>,
) -> Result<Current, Error> {
    let driver = of(device)?;
    let (context, is_permanent) = match context {
        Some(context) => (context, false),
        None => (driver.primary(device.device_id)?, true),
    };
    let is_current =
        outer.is_some_and(|outer| ptr::eq(outer.driver, driver) && outer.context == context);
    let previous = if is_current {
        None
    } else {
        driver.enter_context(context)?
    };
    Ok(Current {
        driver,
        context,
        is_permanent,
        previous,
    })
}

/// The device of a stream. No context need be current, and none is created.
pub(crate) fn device_of_stream(device: DLDevice, stream: RawStream) -> Result<DLDevice, Error> {
    let driver = of(device)?;
    let current = Current::of(driver, driver.context_of(stream)?)?;
    Ok(DLDevice {
        device_id: current.device()?,
        ..device
    })
}

impl Current {
    /// A context of the driver, made current; it may be destroyed.
    pub(super) fn of(driver: &'static Driver, context: Context) -> Result<Self, Error> {
        let previous = driver.enter_context(context)?;
        Ok(Self {
            driver,
            context,
            is_permanent: false,
            previous,
        })
    }

    /// Whether a stream is one of this context.
    pub(crate) fn owns(&self, stream: RawStream) -> Result<bool, Error> {
        Ok(self.driver.context_of(stream)? == self.context)
    }

    /// Makes the context of `stream` current, for streams outside the primary context.
    pub(super) fn enter_context_of(&self, stream: RawStream) -> Result<Self, Error> {
        Self::of(self.driver, self.context_of(stream)?)
    }
}

impl Deref for Current {
    type Target = Driver;

    fn deref(&self) -> &Self::Target {
        self.driver
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            self.driver.leave(previous);
        }
    }
}
