//! Containers of tensors: the walk through them.
//!
//! Exact lists, tuples and dicts are read and rebuilt here. `python/dlx/_tree.py` says what else is a container, and
//! reads and rebuilds those.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};

use crate::api::entry::call;
use crate::api::from_dlpack::{is_plain, is_tensor};

/// An object that the walk has come to.
struct Met<'py> {
    /// Held, so that no other object takes its address.
    old: Bound<'py, PyAny>,
    /// What it has become; `None` for a container that the walk is in.
    new: Option<Bound<'py, PyAny>>,
    contains_itself: bool,
}

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

/// Apply ``leaf`` to the tensors in ``tree``, and ``other`` to its other leaves unless that is None.
///
/// ``leaf`` is a function of one argument, or a function of this module and its second argument. ``way`` is an empty
/// list: the stack, of containers, what they hold, and an iterator over the rest of that. New containers are appended
/// to ``rebuilt``. ``odd`` has two functions for containers other than exact lists, tuples and dicts: what one holds,
/// None for a leaf; and what it is with other items, by their ids, if it does not contain itself.
#[pyfunction]
#[pyo3(signature = (tree, way, leaf, other, odd, rebuilt, /))]
pub(crate) fn map_tree<'py>(
    tree: Bound<'py, PyAny>,
    way: &Bound<'py, PyList>,
    leaf: (Bound<'py, PyAny>, Bound<'py, PyTuple>),
    other: Option<Bound<'py, PyAny>>,
    odd: (Bound<'py, PyAny>, Bound<'py, PyAny>),
    rebuilt: Option<&Bound<'py, PyList>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut walk = Walk {
        met: HashMap::default(),
        leaf,
        other,
        odd,
    };
    if let Some(made) = walk.enter(tree, way)? {
        return Ok(made);
    }
    'inside: loop {
        let last = way.len().saturating_sub(1);
        let (container, parts, rest): (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyIterator>) =
            way.get_item(last)?.extract()?;
        for part in rest {
            let part = part?;
            if let Some(met) = walk.met.get_mut(&part.as_ptr().addr()) {
                met.contains_itself |= met.new.is_none();
            } else if walk.enter(part, way)?.is_none() {
                continue 'inside;
            }
        }
        way.del_item(last)?;
        let made = walk.leave(&container, &parts)?;
        if let Some(rebuilt) = rebuilt.filter(|_| !made.is(&container)) {
            rebuilt.append(&made)?;
        }
        if way.is_empty() {
            return Ok(made);
        }
    }
}

struct Walk<'py> {
    met: HashMap<usize, Met<'py>, BuildHasherDefault<OfAddress>>,
    leaf: (Bound<'py, PyAny>, Bound<'py, PyTuple>),
    other: Option<Bound<'py, PyAny>>,
    odd: (Bound<'py, PyAny>, Bound<'py, PyAny>),
}

impl<'py> Walk<'py> {
    /// What a leaf becomes; or `None`, after a container was put on the stack.
    fn enter(
        &mut self,
        x: Bound<'py, PyAny>,
        way: &Bound<'py, PyList>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let parts = if let Ok(list) = x.cast_exact::<PyList>() {
            list.get_slice(0, list.len()).into_any()
        } else if x.is_exact_instance_of::<PyTuple>() {
            x.clone()
        } else if let Ok(dict) = x.cast_exact::<PyDict>() {
            dict.values().into_any()
        } else if is_tensor(&x)? {
            let new = self.converted(&x)?;
            self.meet(x, Some(new.clone()));
            return Ok(Some(new));
        } else {
            let parts = if is_plain(&x) {
                None
            } else {
                Some(self.odd.0.call1((&x,))?)
            };
            match parts.filter(|parts| !parts.is_none()) {
                Some(parts) => parts,
                None => {
                    let new = match &self.other {
                        Some(other) => other.call1((&x,))?,
                        None => x.clone(),
                    };
                    self.meet(x, Some(new.clone()));
                    return Ok(Some(new));
                }
            }
        };
        way.append((&x, &parts, parts.try_iter()?))?;
        self.meet(x, None);
        Ok(None)
    }

    fn meet(&mut self, old: Bound<'py, PyAny>, new: Option<Bound<'py, PyAny>>) {
        let met = Met {
            old,
            new,
            contains_itself: false,
        };
        self.met.insert(met.old.as_ptr().addr(), met);
    }

    /// What a tensor becomes.
    fn converted(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (function, more) = &self.leaf;
        match more.get_item(0) {
            Ok(second) => call(function, [x, &second]),
            Err(_) => function.call1((x,)),
        }
    }

    /// What an object has become, if that is another.
    fn new(&self, x: &Bound<'py, PyAny>) -> Option<&Bound<'py, PyAny>> {
        let met = self.met.get(&x.as_ptr().addr())?;
        met.new.as_ref().filter(|new| !new.is(x))
    }

    /// What a container becomes, which held `parts` when the walk entered it.
    fn leave(
        &mut self,
        container: &Bound<'py, PyAny>,
        parts: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let changed = PyDict::new(container.py());
        let contains_itself = self
            .met
            .get(&container.as_ptr().addr())
            .is_some_and(|met| met.contains_itself);
        let made = match self.same(container, parts)? {
            Some(made) if !contains_itself => made,
            _ => {
                for part in parts.try_iter()? {
                    let part = part?;
                    if let Some(new) = self.new(&part) {
                        changed.set_item(part.as_ptr().addr(), new)?;
                    }
                }
                if changed.is_empty() {
                    container.clone()
                } else {
                    self.odd.1.call1((container, changed, contains_itself))?
                }
            }
        };
        self.meet(container.clone(), Some(made.clone()));
        Ok(made)
    }

    /// An exact list, tuple or dict with its new items; `None` for others, and if it holds other items by now.
    fn same(
        &self,
        container: &Bound<'py, PyAny>,
        parts: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Python code can change the copies no more than `parts`.
        let (now, copy) = if let Ok(list) = container.cast_exact::<PyList>() {
            (list.get_slice(0, list.len()), None)
        } else if let Ok(tuple) = container.cast_exact::<PyTuple>() {
            (tuple.to_list(), None)
        } else if let Ok(dict) = container.cast_exact::<PyDict>() {
            let copy = dict.copy()?;
            (copy.values(), Some((copy.keys(), copy)))
        } else {
            return Ok(None);
        };
        let mut changed = false;
        let mut at = 0;
        for part in parts.try_iter()? {
            let part = part?;
            if at == now.len() || !now.get_item(at)?.is(&part) {
                return Ok(None);
            }
            if let Some(new) = self.new(&part) {
                changed = true;
                match &copy {
                    Some((keys, copy)) => copy.set_item(keys.get_item(at)?, new)?,
                    None => now.set_item(at, new)?,
                }
            }
            at += 1;
        }
        Ok(if at < now.len() {
            None
        } else if !changed {
            Some(container.clone())
        } else if let Some((_, copy)) = copy {
            Some(copy.into_any())
        } else if container.is_exact_instance_of::<PyTuple>() {
            Some(now.to_tuple().into_any())
        } else {
            Some(now.into_any())
        })
    }
}
