//! The driver of a device, and the context that its functions use.

#![forbid(unsafe_code)]

use std::ops::Deref;

use crate::abi::{DLDevice, kDLCUDA, kDLCUDAManaged, kDLROCM};
use crate::driver::error::Error;
use crate::driver::interface::{Context, Driver, RawStream};
use crate::driver::{cuda, hip};

/// The driver of a device, loaded and initialized.
///
/// # Errors
///
/// The library is missing or has no device, or the process forked after initializing it.
pub(crate) fn of(device: DLDevice) -> Result<&'static dyn Driver, Error> {
    match device.device_type {
        kDLCUDA | kDLCUDAManaged => Ok(cuda::get()?),
        kDLROCM => Ok(hip::get()?),
        _ => Err(Error::NoStreams),
    }
}

/// Runs `body` in relaxed capture mode, so its calls do not invalidate any thread's capture.
pub(crate) fn relaxed<R>(
    driver: &dyn Driver,
    body: impl FnOnce() -> Result<R, Error>,
) -> Result<R, Error> {
    const RELAXED: i32 = 2;
    let mode = driver.exchange_capture_mode(RELAXED)?;
    let result = body();
    driver.exchange_capture_mode(mode)?;
    result
}

/// A driver, with the context of a device current until this is dropped.
pub(crate) struct Current {
    pub(super) driver: &'static dyn Driver,
    device: i32,
    pub(super) context: Context,
    previous: Option<Context>,
}

/// Makes the primary context of `device` current in this thread.
pub(crate) fn enter(device: DLDevice) -> Result<Current, Error> {
    let driver = of(device)?;
    let (previous, context) = driver.enter(device.device_id)?;
    Ok(Current {
        driver,
        device: device.device_id,
        context,
        previous,
    })
}

impl Current {
    /// The device of a stream.
    pub(crate) fn device_of_stream(&self, stream: RawStream) -> Result<i32, Error> {
        let context = self.driver.context_of(stream)?;
        if context == self.context {
            Ok(self.device)
        } else {
            self.driver.device_of_context(context)
        }
    }

    /// Blocks until all work queued on `stream` is done. `stream` must not be capturing; no other capture is
    /// invalidated.
    pub(crate) fn synchronize(&self, stream: RawStream) -> Result<(), Error> {
        relaxed(self.driver, || self.driver.synchronize_stream(stream))
    }

    /// Makes the context of `stream` current, for streams outside the primary context.
    pub(super) fn enter_context_of(&self, stream: RawStream) -> Result<Self, Error> {
        let context = self.driver.context_of(stream)?;
        Ok(Self {
            driver: self.driver,
            device: self.device,
            context,
            previous: self.driver.enter_context(context)?,
        })
    }
}

impl Deref for Current {
    type Target = dyn Driver;

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
