//! The exchange table of `dlx.Tensor`.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::abi::*;
use crate::copy::by_driver;
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

/// The snapshot of a tensor, ready for the stream that this table names; mostly it is ready already (R126).
#[inline(always)]
fn ready<'a>(object: &'a Borrowed<'_, '_, PyAny>) -> PyResult<&'a Snapshot> {
    let Some(tensor) = Tensor::of(object) else {
        return Err(stranger("dlx.Tensor", &object.get_type()));
    };
    let snapshot = tensor.get().snapshot()?;
    if snapshot.has_streams() {
        order(object.py(), snapshot)?;
    }
    Ok(snapshot)
}

/// Makes the stream that this table names wait until the elements are ready, and the one that a consumer was told before.
#[cold]
#[inline(never)]
fn order(py: Python<'_>, snapshot: &Snapshot) -> PyResult<()> {
    let device = snapshot.meta().device;
    if let Some(namer) = snapshot.namer() {
        stream::note(TENSORS, device, namer);
    }
    let named = Stream::of_table(stream::current(py, device)?, device);
    snapshot.order(&named)?;
    stream::exported(py, device, stream::namer(device), || Ok(named))
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
        Ok(ready(&object)?.export(false)?)
    }

    fn borrow(&'static self, object: Borrowed<'_, '_, PyAny>) -> PyResult<DLTensor> {
        let snapshot = ready(&object)?;
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
