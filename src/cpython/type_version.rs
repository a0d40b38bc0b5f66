//! Whether a type is as it was. CPython numbers the attributes that a type and its bases have, for its own cache, and
//! gives a changed type another number.
//!
//! No stable ABI has the field, so it is found by trial (S29, versions of types, in `docs/safety.md`). Where it is not
//! found, a type that can change counts as changed.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::cpython::head;
use crate::cpython::lookup::{is_immutable, is_in_type};
use crate::cpython::once::{Once, intern};

/// Where the number lies in a type; 0 unless it has been found.
static PLACE: AtomicUsize = AtomicUsize::new(0);

/// The number of a type when something was remembered of it.
pub(crate) struct Version(AtomicU32);

/// That of a type that has no number now.
const NONE: u32 = 0;
/// No type has these: one cannot change, the other counts as changed.
const FIXED: u32 = u32::MAX;
const UNKNOWN: u32 = u32::MAX - 1;

impl Version {
    /// That of a type that does not change.
    pub(crate) fn fixed() -> Self {
        Self(AtomicU32::new(FIXED))
    }

    /// The version of `class`; take it before what is to be remembered.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        if is_immutable(class) {
            return Ok(Self::fixed());
        }
        static SEARCHED: Once<()> = Once::new();
        let py = class.py();
        SEARCHED.get_or_try_init(py, || {
            let place = match find(py) {
                Err(error) if error.is_instance_of::<PyException>(py) => None,
                found => found?,
            };
            PLACE.store(place.unwrap_or(0), Ordering::Relaxed);
            Ok::<_, PyErr>(())
        })?;
        look(class);
        let version = match now(class.as_type_ptr()) {
            NONE => UNKNOWN,
            version => version,
        };
        Ok(Self(AtomicU32::new(version)))
    }

    /// Whether the type does not change.
    #[inline(always)]
    pub(crate) fn is_fixed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FIXED
    }

    /// Whether `class`, of which this was the version, is certainly as it was.
    #[inline(always)]
    pub(crate) fn holds(&self, class: *mut ffi::PyTypeObject) -> bool {
        self.0.load(Ordering::Relaxed) == now(class) || self.is_fixed()
    }

    /// Takes over a version of the same type, after what was remembered has been found to be true of it.
    pub(crate) fn renew(&self, later: Self) {
        self.0.store(later.0.into_inner(), Ordering::Relaxed);
    }
}

/// The number that `class` has now, or [`NONE`].
#[inline(always)]
fn now(class: *mut ffi::PyTypeObject) -> u32 {
    match PLACE.load(Ordering::Relaxed) {
        0 => NONE,
        // SAFETY: a live type, and every type has the field at the place that was found (S29).
        place => unsafe { number(class, place) },
    }
}

/// The four bytes at `place`.
///
/// # Safety
///
/// They lie in `class`, which is alive.
#[inline(always)]
unsafe fn number(class: *mut ffi::PyTypeObject, place: usize) -> u32 {
    // SAFETY: the caller's promise.
    let field = unsafe { class.cast::<u8>().add(place) };
    // SAFETY: as above; aligned, as `place` is a multiple of 4. CPython changes it with the GIL, or atomically.
    unsafe { AtomicU32::from_ptr(field.cast()) }.load(Ordering::Relaxed)
}

/// Looks an attribute up, whereupon CPython gives `class` a number; returns whether it does.
fn look(class: &Bound<'_, PyType>) -> bool {
    is_in_type(class.as_type_ptr(), intern!(class.py(), "__dlpack__")).is_some()
}

/// A class for the search.
fn made<'py>(py: Python<'py>, bases: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyType>> {
    let meta = py.get_type::<PyType>();
    let made = meta.call1(("_Numbered", bases, PyDict::new(py)))?;
    Ok(made.cast_into()?)
}

/// Searches for the place in classes made for that.
#[cold]
fn find(py: Python<'_>) -> PyResult<Option<usize>> {
    let meta = py.get_type::<PyType>();
    let size: usize = meta.getattr(intern!(py, "__basicsize__"))?.extract()?;
    let first = head::size().next_multiple_of(size_of::<u32>());
    let mut places: Vec<usize> = (first..size.saturating_sub(3))
        .step_by(size_of::<u32>())
        .collect();
    let base = made(py, PyTuple::empty(py))?;
    let derived = made(py, PyTuple::new(py, [&base])?)?;
    let other = made(py, PyTuple::empty(py))?;
    for (class, changed) in [(&base, &base), (&derived, &base), (&derived, &derived)] {
        if !look(class) {
            return Ok(None);
        }
        // SAFETY: alive, and a type whose class is `type` has `size` bytes.
        let read = |&place: &usize| unsafe { number(class.as_type_ptr(), place) };
        let all = || places.iter().map(read).collect::<Vec<_>>();
        let before = all();
        other.setattr(intern!(py, "x"), 1)?;
        look(class);
        let unchanged = all();
        changed.setattr(intern!(py, "x"), 1)?;
        let after = all();
        look(class);
        let later = all();
        // A changed type must not look unchanged, neither at once nor when it has a number again.
        let is_it = |at: usize| {
            before[at] != NONE
                && before[at] == unchanged[at]
                && ![after[at], later[at]].contains(&before[at])
                && later[at] != NONE
        };
        places = (0..places.len())
            .filter(|&at| is_it(at))
            .map(|at| places[at])
            .collect();
    }
    Ok(match places[..] {
        [place] => Some(place),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A class, one that derives from it, and one that does not.
    fn classes(py: Python<'_>) -> PyResult<[Bound<'_, PyType>; 3]> {
        let class = |code| Ok::<_, PyErr>(py.eval(code, None, None)?.cast_into::<PyType>()?);
        let base = class(c"type('X', (), {'a': 1})")?;
        let derived = (base.get_type()).call1(("Y", (&base,), PyDict::new(py)))?;
        Ok([base, derived.cast_into()?, class(c"type('Z', (), {})")?])
    }

    #[test]
    fn a_version_holds_until_the_class_or_a_base_changes() -> PyResult<()> {
        Python::attach(|py| {
            type Change = fn(&Bound<'_, PyType>) -> PyResult<()>;
            let changes: [Change; 3] = [
                |class| class.setattr("a", 2),
                |class| class.setattr("b", 2),
                |class| class.delattr("b"),
            ];
            let [base, derived, other] = classes(py)?;
            for change in changes {
                let versions = [Version::of(&base)?, Version::of(&derived)?];
                let hold = || {
                    [&base, &derived]
                        .iter()
                        .zip(&versions)
                        .map(|(class, version)| version.holds(class.as_type_ptr()))
                        .collect::<Vec<_>>()
                };
                other.setattr("a", 1)?;
                assert_eq!(hold(), [true, true]);
                change(&base)?;
                assert_eq!(hold(), [false, false]);
                assert!(look(&base) && look(&derived));
                assert_eq!(hold(), [false, false]);
            }
            Ok(())
        })
    }

    #[test]
    fn a_change_of_a_derived_class_is_none_of_its_base() -> PyResult<()> {
        Python::attach(|py| {
            let [base, derived, _] = classes(py)?;
            let version = Version::of(&base)?;
            derived.setattr("a", 2)?;
            assert!(version.holds(base.as_type_ptr()));
            Ok(())
        })
    }

    #[test]
    fn a_class_without_a_number_counts_as_changed() -> PyResult<()> {
        Python::attach(|py| {
            let [class, ..] = classes(py)?;
            let version = Version(AtomicU32::new(UNKNOWN));
            assert!(!version.holds(class.as_type_ptr()));
            version.renew(Version::of(&class)?);
            assert!(version.holds(class.as_type_ptr()));
            Ok(())
        })
    }
}
