//! The common export: `__dlpack__(max_version=(1, 3))`, without other keywords.
//!
//! `__dlpack_device__` only determines `stream`, which the CPU does not have; there the capsule alone tells everything.
//! NumPy takes only CPU memory, so conversions to NumPy request the capsule at once, as NumPy itself does. Elsewhere
//! dlx guesses which of the two to call first, and nothing else: see [`fast_import`].

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyCapsule, PyType, PyWeakrefReference};

use super::{Whose, protected, question};
use crate::abi::*;
use crate::cpython::call::has;
use crate::cpython::fork::Lock;
use crate::cpython::lookup::is_in_type;
use crate::tensor::capsule::{self, Taken};
use crate::tensor::checked;
use crate::tensor::managed::ManagedVersioned;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;

/// Per live type, by address: how many of its tensors were on the CPU, up to [`SETTLED`], or [`ELSEWHERE`]. The count
/// is kept in the low bits of the address, which are free.
static FOUND: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
/// Weak references to these types, whose callback clears the slot.
static TYPES: [Lock<Option<Py<PyWeakrefReference>>>; PLACES] = [const { Lock::new(None) }; PLACES];
const PLACES: usize = 512;
const COUNT: usize = 15;
const SETTLED: usize = 14;
const ELSEWHERE: usize = 15;

/// The tensor of `x` on the CPU, as [`super::from_protocol`] would import it; `None` if `x` has to take the slow path.
///
/// For a type whose tensors were all on the CPU, calls `__dlpack__` before `__dlpack_device__`; the result is the same
/// in either order. An export that turns out to be on another device is dropped: it was ordered after the legacy
/// default stream, so no required order is lost. From then on the type takes the slow path, unless another type evicts
/// it here.
#[inline(always)]
pub(crate) fn fast_import(x: &Bound<'_, PyAny>, whose: &Whose) -> PyResult<Option<Snapshot>> {
    if is_usual(x) {
        on_cpu(x, whose.check(x)?)
    } else {
        Ok(None)
    }
}

/// Whether the tensors of the type of `x` were all on the CPU.
#[inline(always)]
fn is_usual(x: &Bound<'_, PyAny>) -> bool {
    let (place, address) = place(x);
    FOUND[place].load(Ordering::Relaxed) == address + SETTLED
        && is_in_type(x.get_type_ptr(), intern!(x.py(), "__dlpack_device__")) == Some(true)
}

/// Exports `x` without asking for its device; `None` if that fails or the tensor is not on the CPU.
///
/// # Errors
///
/// Exceptions that do not derive from `Exception`, such as `KeyboardInterrupt`.
#[inline(always)]
pub(super) fn on_cpu(x: &Bound<'_, PyAny>, is_tensorflow: bool) -> PyResult<Option<Snapshot>> {
    let capsule = match question::fast(x) {
        Ok(capsule) => capsule,
        Err(error) if error.is_instance_of::<PyException>(x.py()) => return Ok(None),
        Err(error) => return Err(error),
    };
    match capsule::import(&capsule, None) {
        Ok(snapshot) if snapshot.meta().device == device::CPU => {
            protected(x, is_tensorflow, snapshot).map(Some)
        }
        Ok(snapshot) => {
            note(x, snapshot.meta().device)?;
            Ok(None)
        }
        Err(error) => refused(x, error),
    }
}

/// What the slow path would answer about an export that dlx refuses with `error`: the same, if `x` says that it is on the
/// CPU. No second export is needed for that.
#[cold]
#[inline(never)]
fn refused<T>(x: &Bound<'_, PyAny>, error: PyErr) -> PyResult<Option<T>> {
    match super::device(x) {
        Ok(Some(here)) if here == device::CPU => Err(error),
        Err(error) if !error.is_instance_of::<PyException>(x.py()) => Err(error),
        _ => Ok(None),
    }
}

/// Records the device that `x` reports.
pub(super) fn note(x: &Bound<'_, PyAny>, here: DLDevice) -> PyResult<()> {
    let (place, address) = place(x);
    let before = FOUND[place].load(Ordering::Relaxed).wrapping_sub(address);
    if before > COUNT {
        // The slot was free or held another type.
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

/// Clears the slot when `class` dies, so that a later type at its address starts over.
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

/// The weak reference's callback: a type has died.
#[pyfunction]
fn forget(weak: &Bound<'_, PyAny>) {
    for place in 0..PLACES {
        let mut held = TYPES[place].lock();
        if held.as_ref().is_some_and(|held| held.is(weak)) {
            FOUND[place].store(0, Ordering::Relaxed);
            let dead = held.take();
            // Dropping may run Python, so release the lock first.
            drop(held);
            drop(dead);
            return;
        }
    }
}

/// The slot of the type of `x`, and its address without the count.
#[inline(always)]
fn place(x: &Bound<'_, PyAny>) -> (usize, usize) {
    let address = x.get_type_ptr().addr() & !COUNT;
    let hash = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55;
    (hash % PLACES, address)
}

/// The tensor of an export.
pub(crate) enum FastExport {
    /// A versioned tensor, as the producer wrote it or rewritten by dlx.
    Managed(ManagedVersioned),
    /// Where the caller wants one, and of an unversioned tensor, which has no flags: only a snapshot can record what it
    /// cannot say.
    Snapshot(Snapshot),
}

/// Whether to call `__dlpack__` before `__dlpack_device__`.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum CapsuleFirst {
    /// Only the CPU is wanted, so no stream matters.
    Always,
    /// As [`fast_import`] guesses.
    Usually,
    Never,
}

/// The tensor of `x` if it is on the CPU; `None` if `x` has to take the slow path.
///
/// # Errors
///
/// The exceptions of `__dlpack__` if it is [`CapsuleFirst::Always`] called; else those that the slow path would raise, too.
pub(crate) fn fast_export(
    x: &Bound<'_, PyAny>,
    whose: &Whose,
    first: CapsuleFirst,
    as_snapshot: bool,
) -> PyResult<Option<FastExport>> {
    let is_guess = match first {
        CapsuleFirst::Always => false,
        CapsuleFirst::Usually if whose.torch().is_none() && is_usual(x) => true,
        CapsuleFirst::Usually | CapsuleFirst::Never => return Ok(None),
    };
    let is_tensorflow = whose.check(x)?;
    if !is_guess && !has(x, intern!(x.py(), "__dlpack__"))? {
        return Ok(None);
    }
    let capsule = match question::fast(x) {
        Ok(capsule) => capsule,
        Err(error) if is_guess && error.is_instance_of::<PyException>(x.py()) => return Ok(None),
        Err(error) => return super::unless_absent(x, error),
    };
    let found = if as_snapshot {
        snapshot_of_capsule(x, is_tensorflow, &capsule)
    } else {
        of_capsule(x, whose, is_tensorflow, &capsule)
    };
    let (export, device) = match found {
        Ok(found) => found,
        Err(error) if is_guess => return refused(x, error),
        Err(error) => return Err(error),
    };
    if device == device::CPU {
        return Ok(Some(export));
    }
    note(x, device)?;
    Ok(None)
}

/// As [`of_capsule`], as a snapshot.
#[inline(never)]
fn snapshot_of_capsule(
    x: &Bound<'_, PyAny>,
    is_tensorflow: bool,
    capsule: &Bound<'_, PyCapsule>,
) -> PyResult<(FastExport, DLDevice)> {
    of_snapshot(x, is_tensorflow, capsule::import(capsule, None)?)
}

#[inline(always)]
fn of_snapshot(
    x: &Bound<'_, PyAny>,
    is_tensorflow: bool,
    snapshot: Snapshot,
) -> PyResult<(FastExport, DLDevice)> {
    let snapshot = protected(x, is_tensorflow, snapshot)?;
    let device = snapshot.meta().device;
    Ok((FastExport::Snapshot(snapshot), device))
}

/// The tensor of a capsule that `x` has exported, and its device.
#[inline(always)]
fn of_capsule(
    x: &Bound<'_, PyAny>,
    whose: &Whose,
    is_tensorflow: bool,
    capsule: &Bound<'_, PyCapsule>,
) -> PyResult<(FastExport, DLDevice)> {
    let managed = match capsule::take(capsule)? {
        Taken::Versioned(managed) => managed,
        Taken::Unversioned(snapshot) => return of_snapshot(x, is_tensorflow, snapshot),
    };
    let managed = match checked::of_managed(&managed)? {
        (_, true) => managed,
        (_, false) => checked::rewritten(managed)?,
    };
    let tensor = managed.read()?.0;
    if let Some(kind) = whose.torch() {
        kind.check_dtype(x, tensor.dtype)?;
        kind.check_address(x, tensor.data)?;
    }
    let device = tensor.device;
    Ok((FastExport::Managed(managed), device))
}
