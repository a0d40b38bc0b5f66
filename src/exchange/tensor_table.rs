//! The exchange table of `dlx.Tensor`.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::abi::*;
use crate::copy::by_driver;
use crate::copy::request::Consumer;
use crate::exchange::published::{self, Exchange, ExchangeType, Published};
use crate::exchange::slot::stranger;
use crate::stream::namer::TENSORS;
use crate::stream::{self, Namer, Stream};
use crate::tensor::checked::{self, Prototype};
use crate::tensor::managed::ManagedVersioned;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::Error;

/// The table, one per process (R114).
pub(crate) static TABLE: Published = published::table::<Tensors>();

/// The snapshot of a `dlx.Tensor`, ready for the stream that the consumer names; mostly it is ready already (R126).
#[inline(always)]
pub(crate) fn ready<'a>(
    object: &'a Bound<'_, PyAny>,
    consumer: &dyn Consumer,
) -> PyResult<&'a Snapshot> {
    let Some(tensor) = Tensor::of(object) else {
        return Err(stranger("dlx.Tensor", &object.get_type()));
    };
    let snapshot = tensor.get().snapshot()?;
    if snapshot.has_streams() {
        order(snapshot, consumer)?;
    }
    Ok(snapshot)
}

#[cold]
#[inline(never)]
fn order(snapshot: &Snapshot, consumer: &dyn Consumer) -> PyResult<()> {
    let device = snapshot.meta().device;
    if let Some(namer) = snapshot.namer() {
        stream::note(TENSORS, device, namer);
    }
    let handle = consumer.stream(device)?;
    snapshot.order(&Stream::of_table(handle, device))?;
    consumer.ready(device, handle)
}

/// The consumer of what this table exports: it is told dlx's current stream.
struct OfTensors<'py>(Python<'py>);

impl Consumer for OfTensors<'_> {
    fn stream(&self, device: DLDevice) -> PyResult<i64> {
        stream::current(self.0, device)
    }

    /// Makes the stream that a consumer was told before wait, too.
    fn ready(&self, device: DLDevice, handle: i64) -> PyResult<()> {
        let ready = || Ok(Stream::of_table(handle, device));
        stream::exported(self.0, device, stream::namer(device), ready)
    }
}

/// The exchange of `dlx.Tensor`.
pub(crate) struct Tensors;

impl ExchangeType for Tensors {
    type Exchange = Self;

    fn exchange() -> Option<&'static Self> {
        Some(&Self)
    }
}

impl Exchange for Tensors {
    #[inline(always)]
    fn fast_borrow<'a>(&self, object: &'a Bound<'_, PyAny>) -> Option<&'a Snapshot> {
        let snapshot = Tensor::of(object)?.get().fast_snapshot()?;
        (!snapshot.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)).then_some(snapshot)
    }

    fn export(&'static self, object: Borrowed<'_, '_, PyAny>) -> PyResult<ManagedVersioned> {
        Ok(ready(&object, &OfTensors(object.py()))?.export(false)?)
    }

    fn borrow(&'static self, object: Borrowed<'_, '_, PyAny>) -> PyResult<DLTensor> {
        let snapshot = ready(&object, &OfTensors(object.py()))?;
        checked::whole(snapshot.meta().flags)?;
        Ok(*snapshot.dl_tensor())
    }

    fn import<'py>(&self, py: Python<'py>, snapshot: Snapshot) -> PyResult<Bound<'py, PyAny>> {
        Ok(Tensor::new(py, snapshot)?.into_any())
    }

    fn allocate(&self, wanted: Prototype<'_>) -> Result<ManagedVersioned, Error> {
        by_driver::empty(wanted)?.export(true)
    }

    fn current_work_stream(&self, py: Python<'_>, device: DLDevice) -> PyResult<i64> {
        stream::current(py, device)
    }

    fn namer(&'static self, device: DLDevice) -> Namer {
        stream::namer(device)
    }
}
