//! The cache of import paths, for types that live as long as the process.
//!
//! It holds static types of extension modules, which cannot change, `dlx.Tensor`, and classes of torch, JAX and
//! TensorFlow, which count as long as nobody has changed them. Every other type is asked at each import, so that no
//! result depends on earlier imports (S6, remembered types).

#![forbid(unsafe_code)]

use std::mem::discriminant;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::adapters::{self, buffer, jax, numpy, paddle, pyarrow, tensorflow, torch};
use crate::cpython::lookup::{is_in_type, is_python, is_static, looks_up_by_type};
use crate::cpython::type_map::TypeMap;
use crate::cpython::type_version::Version;
use crate::exchange::Table;
use crate::exchange::slot::{Slot, is_mixin};
use crate::import::protocol::Whose;
use crate::tensor::object::Tensor;
use crate::types::error::unseen;

/// How objects of a type are imported.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// The object is a `dlx.Tensor`.
    Tensor,
    /// Through the exchange table of the type, with torch's guards for torch's own table.
    Table(Table, Option<torch::Guards>),
    /// From the struct of a NumPy array.
    Numpy,
    /// From the buffer of a JAX array, else through `__dlpack__`.
    Jax,
    /// Through `__dlpack__`, after the checks for its library; the object names no other one.
    Protocol(Whose),
    /// As the object that the mixin instance exports.
    Mixin,
    /// By `__array__` or a stream of Arrow, which alone its class has, whatever its `__getattr__` answers.
    Column,
    /// The type has no table: the object may name another one that has (rung 2), else `__dlpack__`.
    Undecided,
}

/// What is remembered of a type.
struct Known {
    way: Way,
    /// The type as it was when this was found.
    version: Version,
    /// Where an object of the type may decide otherwise, if it can.
    own: Option<torch::Own>,
}

impl Way {
    /// Whether an object that is named in place of a table may be imported this way (rung 2).
    pub(crate) fn leads(&self) -> bool {
        matches!(self, Self::Tensor | Self::Table(..) | Self::Mixin)
    }

    /// Whether this is still the way, after the type has changed.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Table(table, _), Self::Table(other, _)) => table.address == other.address,
            _ => discriminant(self) == discriminant(other),
        }
    }
}

/// Types that find no free slot are asked at each import.
static CACHE: TypeMap<Known, 256> = TypeMap::new();

/// What was found of the type of `x`, whether or not that or `x` has changed since.
#[inline(always)]
pub(crate) fn noted(x: &Bound<'_, PyAny>) -> Option<&'static Way> {
    Some(&CACHE.get(x.get_type_ptr())?.way)
}

/// Looks up the way of `x`; never inserts.
#[inline(always)]
pub(crate) fn remembered(x: &Bound<'_, PyAny>) -> Option<&'static Way> {
    let known = CACHE.get(x.get_type_ptr())?;
    let is_still =
        known.version.holds(x.get_type_ptr()) && known.own.is_none_or(|own| own.is_absent(x));
    if is_still {
        Some(&known.way)
    } else {
        again(x, known)
    }
}

/// The table of `x`, and the guards if the table is torch's, where they are remembered.
#[inline(always)]
pub(crate) fn table(
    x: &Bound<'_, PyAny>,
) -> Option<(&'static Table, Option<&'static torch::Guards>)> {
    match remembered(x)? {
        Way::Table(table, guards) => Some((table, guards.as_ref())),
        _ => None,
    }
}

/// The way of torch tensors that decide themselves.
static OWN: Way = Way::Protocol(Whose::Torch(torch::TorchClass::Subclass));

/// The way of `x`, whose type may have changed since, or which may decide otherwise than its type; `None` if it has to be
/// found anew.
#[cold]
#[inline(never)]
fn again(x: &Bound<'_, PyAny>, known: &'static Known) -> Option<&'static Way> {
    let class = x.get_type();
    let find_again = || match &known.way {
        Way::Table(_, Some(guards)) if known.version.holds(class.as_type_ptr()) => {
            let is_own = torch::is_overridden(guards, x)?;
            Ok::<_, PyErr>(Some(if is_own { &OWN } else { &known.way }))
        }
        way => {
            let version = Version::of(&class)?;
            let is_same = way.is(&find(x, &class)?);
            if is_same {
                known.version.renew(version);
            }
            Ok(is_same.then_some(way))
        }
    };
    // PyO3 may not count the attachment (S20).
    Python::attach(|_| {
        find_again().unwrap_or_else(|error| {
            // Whoever needs the way finds it anew, and gets the error.
            unseen(error);
            None
        })
    })
}

/// How to import `x`.
///
/// # Errors
///
/// Exceptions of metaclasses; `BufferError` for masked arrays.
pub(crate) fn way(x: &Bound<'_, PyAny>) -> PyResult<Way> {
    way_in(&mut None, x).copied()
}

/// How to import `x`, by reference: into the cache, or into `room` for a type that is not cached.
///
/// # Errors
///
/// As for [`way`].
#[inline(always)]
pub(crate) fn way_in<'a>(room: &'a mut Option<Way>, x: &Bound<'_, PyAny>) -> PyResult<&'a Way> {
    match remembered(x) {
        Some(way) => Ok(way),
        // Before the metaclass is asked, which may take long.
        None if adapters::is_column(x)? => Ok(&Way::Column),
        None if is_undecided(x)? => Ok(&Way::Undecided),
        None => Ok(room.insert(decided(x)?)),
    }
}

/// As [`way_in`], for a thread that PyO3 need not count as attached.
#[inline(always)]
pub(crate) fn way_uncounted<'a>(
    room: &'a mut Option<Way>,
    x: &Bound<'_, PyAny>,
) -> PyResult<&'a Way> {
    #[cold]
    #[inline(never)]
    fn found<'a>(room: &'a mut Option<Way>, x: &Bound<'_, PyAny>) -> PyResult<&'a Way> {
        // This runs Python code.
        Python::attach(|_| way_in(room, x))
    }
    match remembered(x) {
        Some(way) => Ok(way),
        None => found(room, x),
    }
}

/// Whether [`decided`] would return `Undecided`, the most common result for types that are not cached.
#[inline(never)]
fn is_undecided(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = x.get_type();
    Ok(!is_mixin(&class)
        && Tensor::of(x).is_none()
        && Table::is_absent(&class)
        && (is_python(class.as_type_ptr())
            || (!torch::is_tensor(x)? && !numpy::has_arrays(&class)?))
        && !is_static_exporter(&class)
        && !is_own_class(x, &class)?)
}

/// Whether `class` is JAX's or TensorFlow's own, both of which have buffers.
#[inline(always)]
fn is_own_class(x: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(buffer::has(x) && (jax::is_array_class(class)? || tensorflow::is_eager_class(class)?))
}

/// Whether `class` has `__dlpack__` for as long as the process lives.
#[inline(always)]
fn is_static_exporter(class: &Bound<'_, PyType>) -> bool {
    is_static(class)
        && is_in_type(class.as_type_ptr(), intern!(class.py(), "__dlpack__")) == Some(true)
}

/// Whose the objects of `class` are, if they certainly name no other object (rung 2): they have no attributes but those of
/// the class, which does not change. TensorFlow's tensors are known to name none; to ask their `__getattr__` takes longer
/// than the export.
#[cold]
fn names_no_other(class: &Bound<'_, PyType>) -> PyResult<Option<Whose>> {
    let py = class.py();
    let name = intern!(py, "__dlpack_c_exchange_api__");
    if tensorflow::is_eager_class(class)? {
        return Ok(Some(Whose::TensorFlow));
    }
    if !is_static_exporter(class)
        || !looks_up_by_type(class)?
        || is_in_type(class.as_type_ptr(), name) != Some(false)
    {
        return Ok(None);
    }
    let is_checked = !tensorflow::is_foreign(py, class.as_type_ptr())
        || !pyarrow::is_foreign(py, class.as_type_ptr());
    Ok(Some(if is_checked {
        Whose::Unknown
    } else {
        Whose::Other
    }))
}

#[inline(never)]
fn decided(x: &Bound<'_, PyAny>) -> PyResult<Way> {
    let class = x.get_type();
    if is_mixin(&class) {
        return Ok(Way::Mixin);
    }
    let version = Version::of(&class)?;
    let found = find(x, &class)?;
    let stays = match found {
        // A subclass of torch's tensor may be freed.
        Way::Protocol(whose) => whose.torch().is_none(),
        Way::Tensor | Way::Jax => true,
        Way::Table(_, guards) => guards.is_some() || is_static(&class),
        Way::Numpy => is_static(&class),
        Way::Mixin | Way::Column | Way::Undecided => false,
    };
    if stays {
        let version = match found {
            Way::Tensor => Version::fixed(),
            _ => version,
        };
        let own = match &found {
            Way::Table(_, Some(guards)) => Some(guards.own),
            _ => None,
        };
        let known = Known {
            way: found,
            version,
            own,
        };
        CACHE.add(&class, known);
    }
    Ok(found)
}

fn find(x: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<Way> {
    if Tensor::of(x).is_some() {
        return Ok(Way::Tensor);
    }
    let guards = match torch::kind(x)? {
        Some(torch::TorchClass::Plain(guards)) if !torch::is_overridden(&guards, x)? => {
            Some(guards)
        }
        Some(_) => return Ok(OWN),
        None => None,
    };
    // dlx itself does not import through the tables that it provides to others.
    let provided = |table: &Table| Slot::of_table(table.address).is_some();
    let table = Table::of_type(class)?.filter(|table| !provided(table));
    Ok(match (table, guards) {
        (Some(table), None) => Way::Table(paddle::guarded(table, class), None),
        (Some(table), guards) => Way::Table(table, guards),
        (None, Some(guards)) => Way::Protocol(Whose::Torch(torch::TorchClass::Plain(guards))),
        (None, None) if numpy::is_native(x)? => Way::Numpy,
        (None, None) if jax::is_array_class(class)? && jax::exports_itself(class)? => Way::Jax,
        (None, None) => names_no_other(class)?.map_or(Way::Undecided, Way::Protocol),
    })
}
