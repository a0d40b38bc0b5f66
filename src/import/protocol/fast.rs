//! The usual export: asked for nothing but the version.
//!
//! `__dlpack_device__` is asked for what `stream` is to be, and on the CPU that is nothing: there the capsule alone tells
//! all. NumPy takes nothing else, so for NumPy every object is asked for the capsule at once, as NumPy does itself. For
//! others it is a matter of order, and the order alone is guessed: see [`fast_import`].

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyType, PyWeakrefReference};

use super::question;
use crate::abi::*;
use crate::adapters::{tensorflow, torch};
use crate::cpython::call::has;
use crate::cpython::fork::Lock;
use crate::cpython::lookup::is_in_type;
use crate::tensor::managed::Managed;
use crate::tensor::snapshot::Snapshot;
use crate::tensor::{capsule, checked};
use crate::types::device;

/// For living types by their addresses, how many of their tensors were on the CPU, up to [`SETTLED`]; or [`ELSEWHERE`]. The
/// count is kept in the bits that addresses of types have free.
static FOUND: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
/// Weak references to these types, whose callback empties their places.
static TYPES: [Lock<Option<Py<PyWeakrefReference>>>; PLACES] = [const { Lock::new(None) }; PLACES];
const PLACES: usize = 512;
const COUNT: usize = 15;
const SETTLED: usize = 14;
const ELSEWHERE: usize = 15;

/// The tensor of `x` on the CPU, as [`super::from_protocol`] would get it; `None` where `x` has to be asked in full.
///
/// A type whose tensors were on the CPU is asked for the capsule first; the answer is the same in either order. An
/// export that turns out to be elsewhere is let go: it was made for the legacy default stream, so no order that anybody
/// relies on is missing. After it the type is asked in full for good, unless another type takes its place here.
#[inline(always)]
pub(crate) fn fast_import(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let (place, address) = place(x);
    if FOUND[place].load(Ordering::Relaxed) != address + SETTLED
        || is_in_type(x.get_type_ptr(), intern!(x.py(), "__dlpack_device__")) != Some(true)
    {
        return Ok(None);
    }
    tensorflow::check(x)?;
    on_cpu(x)
}

/// The tensor of `x` where it is on the CPU and exported without any question; `None` where it is not.
///
/// # Errors
///
/// Exceptions that end the program or a thread.
#[inline(always)]
pub(super) fn on_cpu(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let answer = question::fast(x).and_then(|capsule| capsule::import(&capsule, None));
    match answer {
        Ok(snapshot) if snapshot.meta().device == device::CPU => Ok(Some(snapshot)),
        Ok(snapshot) => {
            note(x, snapshot.meta().device)?;
            Ok(None)
        }
        Err(error) if error.is_instance_of::<PyException>(x.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Notes where `x` says that it is.
pub(super) fn note(x: &Bound<'_, PyAny>, here: DLDevice) -> PyResult<()> {
    let (place, address) = place(x);
    let before = FOUND[place].load(Ordering::Relaxed).wrapping_sub(address);
    if before > COUNT {
        // It was free, or another type's.
        watch(&x.get_type(), place)?;
    }
    let after = match before {
        _ if here != device::CPU => ELSEWHERE,
        SETTLED | ELSEWHERE => return Ok(()),
        1..SETTLED => before + 1,
        _ => 1,
    };
    FOUND[place].store(address + after, Ordering::Relaxed);
    Ok(())
}

/// Sees to it that the place is empty once `class` is dead, so that a later type at its address begins anew.
#[cold]
fn watch(class: &Bound<'_, PyType>, place: usize) -> PyResult<()> {
    static FORGET: PyOnceLock<Py<PyCFunction>> = PyOnceLock::new();
    let py = class.py();
    let forget = FORGET.get_or_try_init(py, || {
        Ok::<_, PyErr>(wrap_pyfunction!(forget, py)?.unbind())
    })?;
    let weak = PyWeakrefReference::new_with(class, forget.bind(py))?.unbind();
    let before = TYPES[place].lock().replace(weak);
    drop(before);
    Ok(())
}

/// A type has died.
#[pyfunction]
fn forget(weak: &Bound<'_, PyAny>) {
    for place in 0..PLACES {
        let mut held = TYPES[place].lock();
        if held.as_ref().is_some_and(|held| held.is(weak)) {
            FOUND[place].store(0, Ordering::Relaxed);
            let dead = held.take();
            // No lock is held where Python may run.
            drop(held);
            drop(dead);
            return;
        }
    }
}

/// Where the type of `x` is noted, and by what.
#[inline(always)]
fn place(x: &Bound<'_, PyAny>) -> (usize, usize) {
    let address = x.get_type_ptr().addr() & !COUNT;
    let hash = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55;
    (hash % PLACES, address)
}

/// What a capsule held.
pub(crate) enum FastExport {
    /// As it was or as dlx writes it.
    Managed(Managed<DLManagedTensorVersioned>),
    /// An unversioned tensor, which has no flags: what it cannot say, only a snapshot can note.
    Snapshot(Snapshot),
}

/// The tensor of `x`, on the CPU; `None` where `x` has to be asked in full.
///
/// # Errors
///
/// What `__dlpack__` raises.
pub(crate) fn fast_export(
    x: &Bound<'_, PyAny>,
    kind: Option<torch::TorchClass>,
) -> PyResult<Option<FastExport>> {
    match kind {
        Some(kind) => kind.check_protocol(x)?,
        None => tensorflow::check(x)?,
    }
    let name = intern!(x.py(), "__dlpack__");
    if !has(x, name)? {
        return Ok(None);
    }
    let capsule = match question::fast(x) {
        Ok(capsule) => capsule,
        Err(error) => return super::unless_absent(x, error),
    };
    let Some(managed) = capsule::take(&capsule) else {
        let snapshot = capsule::import(&capsule, None)?;
        let here = snapshot.meta().device;
        return Ok((here == device::CPU).then_some(FastExport::Snapshot(snapshot)));
    };
    let managed = match checked::of_managed(&managed)? {
        (_, true) => managed,
        (_, false) => checked::rewritten(managed)?,
    };
    let tensor = managed.read()?.0;
    if let Some(kind) = kind {
        kind.check_address(x, tensor.data)?;
    }
    Ok((tensor.device == device::CPU).then_some(FastExport::Managed(managed)))
}
