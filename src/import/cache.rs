//! How objects of a type are imported, remembered where the type cannot change it.
//!
//! Remembered are types that live as long as the process and keep what they have: types of extension modules that
//! were not made at run time, torch's own two classes, and `dlx.Tensor`. Any other type is asked at each import, so
//! that the answer to one object does not depend on what was imported before it (invariant S6).

#![forbid(unsafe_code)]

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::adapters::{numpy, paddle, torch};
use crate::cpython::lookup::is_static;
use crate::exchange::Table;
use crate::exchange::slot::{Slot, is_mixin};
use crate::tensor::object::Tensor;

/// How objects of a type are imported.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// As what it is: a `dlx.Tensor`.
    Tensor,
    /// Through the table of the type, with torch's guards where it is torch's.
    Table(Table, Option<torch::TorchClass>),
    /// From the struct of a NumPy array.
    Numpy,
    /// Through `__dlpack__`, with torch's guards.
    Protocol(torch::TorchClass),
    /// As the object that an instance of a mixin class stands for.
    Mixin,
    /// The type has no table; an object may name another that has (rung 2), else `__dlpack__`.
    Undecided,
}

/// A type that lives as long as the process, and the way of its objects.
struct Entry {
    class: Py<PyType>,
    way: Way,
}

const SLOTS: usize = 256;
const PROBES: usize = 16;

/// What finds no place is asked anew each time.
static CACHE: [OnceLock<Entry>; SLOTS] = [const { OnceLock::new() }; SLOTS];

/// How objects of the type of `x` are imported, if that is remembered; nothing is remembered by asking.
#[inline(always)]
pub(crate) fn remembered(x: &Bound<'_, PyAny>) -> Option<&'static Way> {
    let class: *mut ffi::PyObject = x.get_type_ptr().cast();
    places(class)
        .map_while(OnceLock::get)
        .find(|entry| entry.class.as_ptr() == class)
        .map(|entry| &entry.way)
}

/// How to import `x`.
///
/// # Errors
///
/// What metaclasses raise; `BufferError` for masked arrays.
pub(crate) fn way(x: &Bound<'_, PyAny>) -> PyResult<Way> {
    way_in(&mut None, x).copied()
}

/// As [`way`], where it lies; `room` is for one that lies nowhere.
///
/// # Errors
///
/// As for [`way`].
#[inline(always)]
pub(crate) fn way_in<'a>(room: &'a mut Option<Way>, x: &Bound<'_, PyAny>) -> PyResult<&'a Way> {
    match remembered(x) {
        Some(way) => Ok(way),
        None if is_undecided(x)? => Ok(&Way::Undecided),
        None => Ok(room.insert(decided(x)?)),
    }
}

/// As [`way`], where that is not remembered.
///
/// # Errors
///
/// As for [`way`].
pub(crate) fn asked(x: &Bound<'_, PyAny>) -> PyResult<Way> {
    if is_undecided(x)? {
        Ok(Way::Undecided)
    } else {
        decided(x)
    }
}

/// Whether [`decided`] would find nothing: of types that are not remembered, the most frequent answer.
#[inline(never)]
fn is_undecided(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = x.get_type();
    Ok(!is_mixin(&class)
        && Tensor::of(x).is_none()
        && !torch::is_tensor(x)?
        && Table::is_absent(&class)
        && !numpy::is_array(x)?)
}

#[inline(never)]
fn decided(x: &Bound<'_, PyAny>) -> PyResult<Way> {
    let class = x.get_type();
    if is_mixin(&class) {
        return Ok(Way::Mixin);
    }
    let found = find(x, &class)?;
    let stays = match found {
        Way::Tensor => true,
        Way::Table(_, kind) => kind.is_some() || is_static(&class),
        Way::Numpy => is_static(&class),
        Way::Protocol(_) | Way::Mixin | Way::Undecided => false,
    };
    if stays {
        remember(class, found);
    }
    Ok(found)
}

fn find(x: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<Way> {
    if Tensor::of(x).is_some() {
        return Ok(Way::Tensor);
    }
    let kind = torch::kind(x)?;
    if let Some(kind @ torch::TorchClass::Subclass) = kind {
        return Ok(Way::Protocol(kind));
    }
    // What dlx provides for others to use is no way for dlx itself.
    let provided = |table: &Table| Slot::of_table(table.address).is_some();
    let table = Table::of_type(class)?.filter(|table| !provided(table));
    Ok(match (table, kind) {
        (Some(table), None) => Way::Table(paddle::guarded(table, class)?, None),
        (Some(table), kind) => Way::Table(table, kind),
        (None, Some(kind)) => Way::Protocol(kind),
        (None, None) if numpy::is_native(x)? => Way::Numpy,
        (None, None) => Way::Undecided,
    })
}

/// Puts a type into the first place that is free for it.
fn remember(class: Bound<'_, PyType>, way: Way) {
    let address = class.as_ptr();
    let mut entry = Entry {
        class: class.unbind(),
        way,
    };
    for place in places(address) {
        match place.set(entry) {
            Ok(()) => return,
            Err(back) => entry = back,
        }
        // Another thread may have been faster.
        if place
            .get()
            .is_some_and(|there| there.class.as_ptr() == address)
        {
            return;
        }
    }
}

/// Where a class may be: at the first place that was free.
#[inline(always)]
fn places(class: *mut ffi::PyObject) -> impl Iterator<Item = &'static OnceLock<Entry>> {
    // Types are allocated at multiples of 16; the upper bits are mixed in by the multiplication.
    let hash = (class.addr() >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (0..PROBES).map(move |probe| &CACHE[(hash + probe) % SLOTS])
}
