//! The cache of import paths, for types that live as long as the process.
//!
//! It holds static types of extension modules, which cannot change, `dlx.Tensor`, and classes of torch, JAX and
//! TensorFlow, which count as long as nobody has changed them. Every other type is asked at each import, so that no
//! result depends on earlier imports (S6, remembered types).

#![forbid(unsafe_code)]

use std::mem::discriminant;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::adapters::{self, buffer, jax, numpy, paddle, pyarrow, tensorflow, torch};
use crate::cpython::lookup::{is_in_type, is_python, is_static, looks_up_by_type};
use crate::cpython::once::intern;
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
}

impl Known {
    /// Whether what was found is true of `class` as it is now, of whose version takes note.
    #[inline(always)]
    fn holds(&self, class: &Bound<'_, PyType>) -> PyResult<bool> {
        if self.version.holds(class.as_type_ptr()) {
            Ok(true)
        } else {
            self.holds_again(class)
        }
    }

    #[cold]
    #[inline(never)]
    fn holds_again(&self, class: &Bound<'_, PyType>) -> PyResult<bool> {
        let version = Version::of(class)?;
        let is_same = find(class)?.is_some_and(|found| self.way.is(&found));
        if is_same {
            self.version.renew(version);
        }
        Ok(is_same)
    }
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
    let is_still = known.version.holds(x.get_type_ptr())
        && match &known.way {
            // An object of torch's may decide otherwise.
            Way::Table(_, Some(guards)) => guards.own.is_absent(x),
            _ => true,
        };
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
    let find_again = || match known.holds(&x.get_type())? {
        true => Ok::<_, PyErr>(Some(own(x, &known.way)?)),
        false => Ok(None),
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

/// The way of `x`, of a type with this way.
fn own<'a>(x: &Bound<'_, PyAny>, way: &'a Way) -> PyResult<&'a Way> {
    let guards = match way {
        Way::Table(_, Some(guards)) => guards,
        Way::Protocol(Whose::Torch(torch::TorchClass::Plain(guards))) => guards,
        _ => return Ok(way),
    };
    Ok(if !guards.own.is_absent(x) && torch::decides(x)? {
        &OWN
    } else {
        way
    })
}

/// How to import `x`, by reference: into the cache, or into `room` for a type that is not cached.
///
/// # Errors
///
/// Exceptions of metaclasses; `BufferError` for masked arrays.
#[inline(always)]
pub(crate) fn way_in<'a>(room: &'a mut Option<Way>, x: &Bound<'_, PyAny>) -> PyResult<&'a Way> {
    match remembered(x) {
        Some(way) => Ok(way),
        // Before the metaclass is asked, which may take long.
        None if adapters::is_column(x)? => Ok(&Way::Column),
        None => Ok(match decided(x)? {
            Some(way) => room.insert(way),
            None => &Way::Undecided,
        }),
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

/// The way of `x`, found anew; `None` for `Undecided`, the most common.
#[inline(never)]
fn decided(x: &Bound<'_, PyAny>) -> PyResult<Option<Way>> {
    let class = x.get_type();
    if is_mixin(&class) {
        return Ok(Some(Way::Mixin));
    }
    if is_python(&class) && !buffer::has(x) && Table::is_absent(&class) {
        return Ok(None);
    }
    match of_class(&class)? {
        Some(way) => own(x, &way).copied().map(Some),
        None => Ok(numpy::is_native(x)?.then_some(Way::Numpy)),
    }
}

/// The table of `class`, unless dlx provides it.
///
/// # Errors
///
/// As for [`way_in`].
pub(crate) fn table_of(class: &Bound<'_, PyType>) -> PyResult<Option<Table>> {
    Ok(match of_class(class)? {
        Some(Way::Table(table, _)) => Some(table),
        _ => None,
    })
}

/// As [`table_of`], where it is remembered.
#[inline(always)]
pub(crate) fn remembered_table(class: &Bound<'_, PyType>) -> PyResult<Option<&'static Table>> {
    match CACHE.get(class.as_type_ptr()) {
        Some(known) => match &known.way {
            Way::Table(table, _) if known.holds(class)? => Ok(Some(table)),
            _ => Ok(None),
        },
        None => Ok(None),
    }
}

/// The way of most objects of `class`, remembered if it stays.
fn of_class(class: &Bound<'_, PyType>) -> PyResult<Option<Way>> {
    let version = Version::of(class)?;
    let found = find(class)?;
    if let Some(way) = found {
        let stays = match way {
            // A subclass of torch's tensor may be freed.
            Way::Protocol(Whose::Torch(_)) => false,
            Way::Table(_, guards) => guards.is_some() || is_static(class),
            _ => true,
        };
        if stays {
            CACHE.add(class, Known { way, version });
        }
    }
    Ok(found)
}

/// Whether objects of `class` certainly name no other object (rung 2) and need no check: they have no attributes but those
/// of the class, which does not change.
#[cold]
fn has_protocol_alone(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let (py, own) = (class.py(), class.as_type_ptr());
    Ok(is_static(class)
        && is_in_type(own, intern!(py, "__dlpack__")) == Some(true)
        && is_in_type(own, intern!(py, "__dlpack_c_exchange_api__")) == Some(false)
        && looks_up_by_type(class)?
        && tensorflow::is_foreign(py, own)
        && pyarrow::is_foreign(py, own))
}

/// What the class alone decides.
fn find(class: &Bound<'_, PyType>) -> PyResult<Option<Way>> {
    if Tensor::is_class(class)? {
        return Ok(Some(Way::Tensor));
    }
    let guards = match torch::kind(class)? {
        Some(torch::TorchClass::Plain(guards)) => Some(guards),
        Some(_) => return Ok(Some(OWN)),
        None => None,
    };
    // dlx itself does not import through the tables that it provides to others.
    let provided = |table: &Table| Slot::of_table(table.address).is_some();
    let table = Table::of_type(class)?.filter(|table| !provided(table));
    Ok(match (table, guards) {
        (Some(table), None) => Some(Way::Table(paddle::guarded(table, class), None)),
        (Some(table), guards) => Some(Way::Table(table, guards)),
        (None, Some(_)) => Some(Way::Protocol(Whose::of_table(guards))),
        // Of subclasses the instances decide.
        (None, None) if numpy::is_subclass_of_ndarray(class)? => {
            numpy::is_class(class).then_some(Way::Numpy)
        }
        (None, None) if jax::is_array_class(class)? && jax::exports_itself(class)? => {
            Some(Way::Jax)
        }
        // To ask their `__getattr__` for another object, which they do not name, takes longer than the export.
        (None, None) if tensorflow::is_eager_class(class)? => Some(Way::Protocol(Whose::Unknown)),
        (None, None) if has_protocol_alone(class)? => Some(Way::Protocol(Whose::Other)),
        (None, None) => None,
    })
}
