//! The driver of a device, and the context that its functions use.

#![forbid(unsafe_code)]

use std::ops::Deref;
use std::ptr;

use crate::abi::{DLDevice, kDLCUDA, kDLCUDAManaged, kDLROCM};
use crate::driver::error::Error;
use crate::driver::interface::{Context, RawStream};
use crate::driver::runtime::{Driver, cuda, hip};

/// The driver of a device, loaded and initialized.
///
/// # Errors
///
/// The library is missing or has no device, or the process forked after initializing it.
pub(crate) fn of(device: DLDevice) -> Result<&'static Driver, Error> {
    match device.device_type {
        kDLCUDA | kDLCUDAManaged => cuda(),
        kDLROCM => hip(),
        _ => Err(Error::NoStreams),
    }
}

/// Relaxed capture mode: until this is dropped, calls of this thread invalidate no thread's capture.
pub(crate) struct Relaxed {
    driver: &'static Driver,
    mode: i32,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`, and HIP's.
const RELAXED: i32 = 2;

impl Relaxed {
    /// Sets the mode.
    pub(crate) fn enter(driver: &'static Driver) -> Result<Self, Error> {
        let mode = driver.exchange_capture_mode(RELAXED)?;
        Ok(Self { driver, mode })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // Fails only if the driver has shut down.
        self.driver.exchange_capture_mode(self.mode).ok();
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
    Ok(Current {
        driver,
        context,
        is_permanent,
        previous: match is_current {
            true => None,
            false => driver.enter_context(context)?,
        },
    })
}

/// The device of a stream. No context need be current, and none is created.
pub(crate) fn device_of_stream(device: DLDevice, stream: RawStream) -> Result<DLDevice, Error> {
    let driver = of(device)?;
    let device_id = driver.device_of_context(driver.context_of(stream)?)?;
    Ok(DLDevice {
        device_id,
        ..device
    })
}

impl Current {
    /// Sets the relaxed capture mode.
    pub(crate) fn relaxed(&self) -> Result<Relaxed, Error> {
        Relaxed::enter(self.driver)
    }

    /// Whether a stream is one of this context.
    pub(crate) fn owns(&self, stream: RawStream) -> Result<bool, Error> {
        Ok(self.driver.context_of(stream)? == self.context)
    }

    /// Blocks until all work queued on `stream` is done. `stream` must not be capturing; no other capture is
    /// invalidated.
    pub(crate) fn synchronize(&self, stream: RawStream) -> Result<(), Error> {
        let _relaxed = Relaxed::enter(self.driver)?;
        self.driver.synchronize_stream(stream)
    }

    /// Makes the context of `stream` current, for streams outside the primary context.
    pub(super) fn enter_context_of(&self, stream: RawStream) -> Result<Self, Error> {
        let context = self.driver.context_of(stream)?;
        Ok(Self {
            driver: self.driver,
            context,
            is_permanent: false,
            previous: self.driver.enter_context(context)?,
        })
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
