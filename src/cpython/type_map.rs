//! A map from types to values that only grows, of a fixed size, for statics and Python objects.
//!
//! It compares types by identity, because metaclasses can override hashing and equality.

#![forbid(unsafe_code)]

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// A type, held so that no other takes its address, and its value.
type Entry<V> = (Py<PyType>, V);

/// A map with `N` slots; a type that finds none of its slots free is left out.
pub(crate) struct TypeMap<V, const N: usize>([OnceLock<Entry<V>>; N]);

/// How many slots a type may be in.
const PROBES: usize = 16;

impl<V, const N: usize> TypeMap<V, N> {
    pub(crate) const fn new() -> Self {
        Self([const { OnceLock::new() }; N])
    }

    /// The value of `class`.
    #[inline(always)]
    pub(crate) fn get(&self, class: *mut ffi::PyTypeObject) -> Option<&V> {
        let mut entries = self.slots(class).map_while(OnceLock::get);
        let (_, value) = entries.find(|(there, _)| there.as_ptr() == class.cast())?;
        Some(value)
    }

    /// Adds a value for `class`, if it has none and a slot is free.
    pub(crate) fn add(&self, class: &Bound<'_, PyType>, value: V) {
        let mut entry = (class.clone().unbind(), value);
        for slot in self.slots(class.as_type_ptr()) {
            match slot.set(entry) {
                Ok(()) => return,
                Err(back) => entry = back,
            }
            // Another thread may have added it first.
            if slot.get().is_some_and(|(there, _)| there.is(class)) {
                return;
            }
        }
    }

    /// All types and values.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry<V>> {
        self.0.iter().filter_map(OnceLock::get)
    }

    /// The slots that a type may be in, in probing order.
    #[inline(always)]
    fn slots(&self, class: *mut ffi::PyTypeObject) -> impl Iterator<Item = &OnceLock<Entry<V>>> {
        // Type addresses are multiples of 16; the multiplication mixes in the upper bits.
        let hash = (class.addr() >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        (0..PROBES.min(N)).map(move |probe| &self.0[(hash + probe) % N])
    }
}
