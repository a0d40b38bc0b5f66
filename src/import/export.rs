//! What table functions make of any object, without synchronization: a managed tensor, or a view; without a snapshot
//! where the object's own library can export directly.
//!
//! Table functions call this, so nothing here drops an owned `Py<T>` unless attached through PyO3 (S2, callers).

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::mem::MaybeUninit;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::numpy;
use crate::adapters::torch::{self, Guards};
use crate::copy::request::{Asked, Consumer, Request};
use crate::exchange::Table;
use crate::exchange::slot::{innermost, is_mixin, lends_nothing};
use crate::exchange::tensor_table::ready;
use crate::import::cache::{self, Way};
use crate::import::ladder::from_dlpack;
use crate::stream;
use crate::stream::usage::Release;
use crate::tensor::checked::{self, Meta};
use crate::tensor::managed::ManagedVersioned;
use crate::tensor::snapshot::Snapshot;

/// The table of an object's type, and torch's guards for its own.
type By<'a> = (&'a Table, Option<&'a Guards>);

/// What a table function makes of an object: a managed tensor, or a view that points to the dimensions of the object.
pub(crate) trait FromPyObjectNoSync: Sized {
    fn from_table(x: &Bound<'_, PyAny>, by: By<'_>, consumer: &dyn Consumer) -> PyResult<Self>;

    fn from_numpy(x: &Bound<'_, PyAny>) -> PyResult<Self>;

    fn from_snapshot(snapshot: &Snapshot) -> PyResult<Self>;

    /// Of an object of which `from_dlpack` knows more than this module.
    fn from_other(x: &Bound<'_, PyAny>, consumer: &dyn Consumer) -> PyResult<Self>;
}

/// Makes what a table function returns for `x`.
///
/// A table exports without order. A producer that has only `__dlpack__` cannot name its stream, so it is asked to make
/// that of the `consumer` wait.
///
/// # Errors
///
/// As for `from_dlpack`; `BufferError` if `x` lends no view.
pub(crate) fn from_py_object_no_sync<T: FromPyObjectNoSync>(
    x: &Bound<'_, PyAny>,
    consumer: &dyn Consumer,
) -> PyResult<T> {
    match cache::way_uncounted(&mut None, x)? {
        Way::Table(table, guards) => T::from_table(x, (table, guards.as_ref()), consumer),
        Way::Numpy => T::from_numpy(x),
        Way::Tensor => T::from_snapshot(ready(x, consumer)?),
        Way::Mixin | Way::Protocol(_) | Way::Column | Way::Undecided | Way::Jax => {
            T::from_other(x, consumer)
        }
    }
}

impl FromPyObjectNoSync for ManagedVersioned {
    /// Passes the tensor on as it is if it conforms, else rewritten.
    #[inline(always)]
    fn from_table(
        x: &Bound<'_, PyAny>,
        (table, guards): By<'_>,
        consumer: &dyn Consumer,
    ) -> PyResult<Self> {
        let managed = match table.export(x, true) {
            Ok(managed) => managed,
            // The table may describe less than the protocol does (R147).
            Err(error) => {
                return Python::attach(|py| match error.is_instance_of::<PyBufferError>(py) {
                    true => Self::from_other(x, consumer),
                    false => Err(torch::explain(x, error)),
                });
            }
        };
        if let Some(guards) = guards
            && let Ok((tensor, flags)) = managed.read()
            && let Some(meta) = Meta::usual(tensor, flags)
        {
            guards.check(x, meta.dtype, meta.data)?;
            tell_library(table, meta.device, consumer)?;
            return Ok(managed);
        }
        let managed =
            Snapshot::conforming(managed).map_err(|error| torch::explain(x, error.into()))?;
        let tensor = managed.read()?.0;
        if let Some(guards) = guards {
            guards.check(x, tensor.dtype, tensor.data)?;
        }
        tell_library(table, tensor.device, consumer)?;
        Ok(managed)
    }

    fn from_numpy(x: &Bound<'_, PyAny>) -> PyResult<Self> {
        numpy::export(x)
    }

    fn from_snapshot(snapshot: &Snapshot) -> PyResult<Self> {
        Ok(snapshot.export(false)?)
    }

    /// All of `from_dlpack` may run Python code. What an object of a mixin class exports in the end may need none of it.
    #[cold]
    fn from_other(x: &Bound<'_, PyAny>, consumer: &dyn Consumer) -> PyResult<Self> {
        if is_mixin(&x.get_type()) {
            return Python::attach(|_| from_py_object_no_sync(&innermost(x)?.0, consumer));
        }
        let asked = Cell::new(None);
        let stream = |device| {
            let handle = consumer.stream(device)?;
            asked.set(Some((device, handle)));
            Ok(handle)
        };
        Python::attach(|_| {
            let managed = by_protocol(x, &stream)?.export(true)?;
            if let Some((device, handle)) = asked.get() {
                consumer.ready(device, handle)?;
            }
            Ok(managed)
        })
    }
}

impl FromPyObjectNoSync for DLTensor {
    fn from_table(
        x: &Bound<'_, PyAny>,
        (table, guards): By<'_>,
        consumer: &dyn Consumer,
    ) -> PyResult<Self> {
        let mut room = MaybeUninit::uninit();
        let explain = |error| torch::explain(x, error);
        let Some(view) = table.view(x, &mut room).map_err(explain)? else {
            return Err(lends_nothing(x));
        };
        let tensor = view.tensor(guards.is_some());
        let tensor = tensor.map_err(|error| explain(error.into()))?;
        if let Some(guards) = guards {
            guards.check_values(x, tensor.dtype)?;
            guards.check_address(x, tensor.data)?;
        }
        tell_library(table, tensor.device, consumer)?;
        Ok(tensor)
    }

    fn from_numpy(x: &Bound<'_, PyAny>) -> PyResult<Self> {
        numpy::dl_tensor(x)
    }

    fn from_snapshot(snapshot: &Snapshot) -> PyResult<Self> {
        checked::whole(snapshot.meta().flags)?;
        Ok(*snapshot.dl_tensor())
    }

    fn from_other(x: &Bound<'_, PyAny>, _consumer: &dyn Consumer) -> PyResult<Self> {
        Err(lends_nothing(x))
    }
}

/// Tells the consumer who names the stream of the tensor, if its device has streams.
#[inline(always)]
fn tell_library(table: &Table, device: DLDevice, consumer: &dyn Consumer) -> PyResult<()> {
    match table.work_stream.filter(|_| stream::needs_order(device)) {
        Some(work_stream) => consumer.note_library(device, work_stream),
        None => Ok(()),
    }
}

/// Imports `x` for the stream of the `consumer`. The caller is attached through PyO3.
pub(crate) fn by_protocol(x: &Bound<'_, PyAny>, consumer: &dyn Consumer) -> PyResult<Snapshot> {
    let asked = Asked::by_consumer(consumer);
    let request = Request {
        stream: Some(&asked),
        release: Release::None,
        ..Request::NOTHING
    };
    from_dlpack(x, &request)
}
