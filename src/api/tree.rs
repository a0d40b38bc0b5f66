//! Containers of tensors: the walk through them.
//!
//! Exact lists, tuples and dicts are read and rebuilt here. `python/dlx/_containers/parts.py` says what else is a container,
//! and `rebuilt.py` beside it makes those again; `registries.py` knows those of other libraries.
//!
//! The walk has a stack of its own, so no depth is too much, and remembers what became what, so one object stays one. A
//! container that contains itself and a tensor to convert is refused, because only some could be rebuilt.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::api::from_dlpack::{is_no_tensor, is_tensor};
use crate::cpython::call::{call_here, call_with};
use crate::import::ladder::is_plain;
use crate::types::error::type_name;

/// An object that the walk has come to.
struct Met {
    /// Held, so that no other object takes its address.
    _old: Py<PyAny>,
    /// What it has become; `None` for a container that the walk is in.
    new: Option<Py<PyAny>>,
    contains_itself: Cell<bool>,
}

type Memo = HashMap<usize, Met, BuildHasherDefault<OfAddress>>;

/// A hash of addresses, whose lowest bits are 0.
#[derive(Default)]
struct OfAddress(u64);

impl Hasher for OfAddress {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

thread_local! {
    /// Room for the next walk: memory of this size, allocated each time, would let `malloc` merge the free blocks that
    /// the conversions are about to take.
    static ROOM: Cell<Memo> = Cell::default();
}

/// The entries for which a thread keeps room.
const ROOM_FOR: usize = 1024;

/// A container that the walk is in.
struct Frame<'py> {
    container: Bound<'py, PyAny>,
    /// What it held when the walk entered it.
    parts: Vec<Bound<'py, PyAny>>,
    /// The list of that which `odd` has made.
    odd: Option<Bound<'py, PyList>>,
    /// The keys of an exact dict then, with the parts.
    dict: Option<Bound<'py, PyDict>>,
    next: usize,
}

struct Walk<'a, 'py> {
    met: Memo,
    frames: Vec<Frame<'py>>,
    /// The containers that stay as they are, each with the number of leaves that had changed before the walk left it.
    kept: Vec<(Frame<'py>, usize)>,
    /// How many leaves have been converted, which may run any code.
    converted: usize,
    leaf: &'a Bound<'py, PyAny>,
    /// The second argument of the leaf, if it takes one.
    second: Option<Bound<'py, PyAny>>,
    other: Option<&'a Bound<'py, PyAny>>,
    odd: &'a Bound<'py, PyTuple>,
    made: Option<&'a Bound<'py, PyList>>,
}

/// Apply ``leaf`` to the tensors in ``tree``, and ``other`` to the other leaves, and to what has no numbers and ``leaf``
/// refuses, unless it is None; to numbers and text only if it is ``leaf`` as well.
///
/// ``leaf`` takes a tensor, and what ``more`` has, if that is not empty. ``odd`` has three functions for containers other than exact lists, tuples and dicts: what one holds, a list,
/// or None if it is a leaf; and what it becomes, given new items by the ids of the old, whether it contains itself, and
/// that list; and whether one that stays still holds that list. New containers are appended to ``rebuilt``. If something raises, ``way`` gets the containers on the way to
/// it, each with a position in what it holds, and what is there.
#[pyfunction]
#[pyo3(signature = (tree, leaf, more, other, odd, rebuilt, way, /))]
pub(crate) fn map_tree<'py>(
    tree: Bound<'py, PyAny>,
    leaf: &Bound<'py, PyAny>,
    more: &Bound<'py, PyTuple>,
    other: Option<&Bound<'py, PyAny>>,
    odd: &Bound<'py, PyTuple>,
    rebuilt: Option<&Bound<'py, PyList>>,
    way: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut walk = Walk {
        met: ROOM.take(),
        frames: Vec::new(),
        kept: Vec::new(),
        converted: 0,
        leaf,
        second: more.iter().next(),
        other,
        odd,
        made: rebuilt,
    };
    let made = walk.through(&tree);
    if made.is_err() {
        for frame in &walk.frames {
            let at = frame.next - 1;
            way.append((&frame.container, at, &frame.parts[at]))?;
        }
    }
    let mut room = walk.met;
    room.clear();
    if room.capacity() <= ROOM_FOR {
        ROOM.set(room);
    }
    made
}

impl<'py> Walk<'_, 'py> {
    /// Walks through `tree`, and returns what it becomes.
    fn through(&mut self, tree: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.enter(tree)?;
        while let Some(frame) = self.frames.last_mut() {
            if let Some(part) = frame.parts.get(frame.next).cloned() {
                frame.next += 1;
                match self.find(&part) {
                    Some(met) if met.new.is_none() => met.contains_itself.set(true),
                    Some(_) => {}
                    None => self.enter(&part)?,
                }
            } else if let Some(frame) = self.frames.pop() {
                let made = self.left(&frame)?;
                let stays = made.is(&frame.container);
                self.meet(&frame.container, Some(made));
                if stays {
                    self.kept.push((frame, self.converted));
                }
            }
        }
        self.check_kept()?;
        Ok(self.changed(tree).unwrap_or(tree).clone())
    }

    /// Maps what `leaf` refused, if it has no numbers: else another answer would hide the error.
    #[cold]
    #[inline(never)]
    fn refused(&self, x: &Bound<'py, PyAny>, error: PyErr) -> PyResult<Bound<'py, PyAny>> {
        match self.other {
            Some(other) if !other.is(self.leaf) && is_no_tensor(x, &error)? => {
                call_with(other, &[x])
            }
            _ => Err(error),
        }
    }

    /// Maps a leaf, or puts a container on the stack.
    fn enter(&mut self, x: &Bound<'py, PyAny>) -> PyResult<()> {
        let (mut odd, mut read) = (None, None);
        let parts = if let Ok(list) = x.cast_exact::<PyList>() {
            Some(list.clone())
        } else if let Ok(tuple) = x.cast_exact::<PyTuple>() {
            Some(tuple.to_list())
        } else if let Ok(dict) = x.cast_exact::<PyDict>() {
            Some(read.insert(dict.copy()?).values())
        } else if is_tensor(x)? {
            let new = match &self.second {
                Some(second) => call_here(self.leaf, &[x, second]),
                None => call_with(self.leaf, &[x]),
            };
            let new = new.or_else(|error| self.refused(x, error))?;
            self.converted += 1;
            self.meet(x, Some(new));
            return Ok(());
        } else if is_plain(x) {
            None
        } else {
            let parts = call_with(&self.odd.get_item(0)?, &[x])?;
            odd = parts.cast_into::<PyList>().ok();
            odd.clone()
        };
        let Some(parts) = parts else {
            let new = match self.other {
                Some(other) if !is_plain(x) || other.is(self.leaf) => call_with(other, &[x])?,
                _ => x.clone(),
            };
            self.converted += usize::from(!new.is(x));
            self.meet(x, Some(new));
            return Ok(());
        };
        self.meet(x, None);
        self.frames.push(Frame {
            container: x.clone(),
            parts: items(&parts),
            odd,
            dict: read,
            next: 0,
        });
        Ok(())
    }

    /// Notes what an object has become.
    #[inline(never)]
    fn meet(&mut self, old: &Bound<'py, PyAny>, new: Option<Bound<'py, PyAny>>) {
        let met = Met {
            _old: old.clone().unbind(),
            new: new.map(Bound::unbind),
            contains_itself: Cell::new(false),
        };
        self.met.insert(old.as_ptr().addr(), met);
    }

    /// What is known of an object.
    #[inline(never)]
    fn find(&self, x: &Bound<'py, PyAny>) -> Option<&Met> {
        self.met.get(&x.as_ptr().addr())
    }

    /// What an object has become, if that is another.
    fn changed(&self, x: &Bound<'py, PyAny>) -> Option<&Bound<'py, PyAny>> {
        let new = self.find(x)?.new.as_ref()?.bind(x.py());
        (!new.is(x)).then_some(new)
    }

    /// What a container becomes: of what it held when it was read, as code that ran since may have put other items into it.
    #[inline(never)]
    fn left(&self, frame: &Frame<'py>) -> PyResult<Bound<'py, PyAny>> {
        if !(frame.parts.iter()).any(|part| self.changed(part).is_some()) && frame.is_as_read() {
            return Ok(frame.container.clone());
        }
        let made = self.rebuilt(frame)?;
        if let Some(rebuilt) = self.made {
            rebuilt.append(&made)?;
        }
        Ok(made)
    }

    /// Refuses a container that stays as it is, but no longer is what it was when the walk left it.
    fn check_kept(&self) -> PyResult<()> {
        let is_older = |(_, before): &&(Frame<'_>, usize)| *before != self.converted;
        for (frame, _) in self.kept.iter().filter(is_older) {
            let (container, odd) = (&frame.container, frame.odd.as_ref());
            let is_same = match odd {
                None => frame.is_as_read(),
                Some(parts) => {
                    call_with(&self.odd.get_item(2)?, &[container, parts])?.is_truthy()?
                }
            };
            if !is_same {
                let name = type_name(&container.get_type());
                return Err(PyValueError::new_err(format!(
                    "a container of type {name} was changed while the tree was converted; pass a copy of it"
                )));
            }
        }
        Ok(())
    }

    /// A container with new items.
    fn rebuilt(&self, frame: &Frame<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (container, odd) = (&frame.container, &frame.odd);
        let py = container.py();
        let met = self.find(container);
        let contains_itself = met.is_some_and(|met| met.contains_itself.get());
        if odd.is_some() || contains_itself {
            let changes = PyDict::new(py);
            for part in &frame.parts {
                if let Some(new) = self.changed(part) {
                    changes.set_item(part.as_ptr().addr(), new)?;
                }
            }
            let rebuilt = self.odd.get_item(1)?;
            let given = (container, changes, contains_itself, odd.as_ref()).into_pyobject(py)?;
            return rebuilt.call1(&given);
        }
        let new = |part| self.changed(part).unwrap_or(part);
        if let Some(dict) = &frame.dict {
            // Made anew, as keys may have changed their hash since.
            let rebuilt = PyDict::new(py);
            for (key, part) in items(&dict.keys()).iter().zip(&frame.parts) {
                rebuilt.set_item(key, new(part))?;
            }
            if rebuilt.len() < frame.parts.len() {
                return Err(PyValueError::new_err(
                    "keys of a container of type builtins.dict are equal by now, so it would hold fewer items",
                ));
            }
            return Ok(rebuilt.into_any());
        }
        let list = PyList::new(py, frame.parts.iter().map(new))?;
        Ok(match container.cast_exact::<PyTuple>() {
            Ok(_) => list.to_tuple().into_any(),
            Err(_) => list.into_any(),
        })
    }
}

impl Frame<'_> {
    /// Whether an exact list or dict still holds what it held; no others are looked at.
    fn is_as_read(&self) -> bool {
        let now = if let Ok(list) = self.container.cast_exact::<PyList>() {
            items(list)
        } else if let Ok(dict) = self.container.cast_exact::<PyDict>() {
            items(&dict.values())
        } else {
            return true;
        };
        now.len() == self.parts.len() && now.iter().zip(&self.parts).all(|(one, it)| one.is(it))
    }
}

/// What a list holds now; no Python code runs meanwhile.
#[inline(never)]
fn items<'py>(list: &Bound<'py, PyList>) -> Vec<Bound<'py, PyAny>> {
    list.iter().collect()
}
