//! `cpython/type_map.rs`: the cache of import paths, and the other maps from types that only grow.

use loom::thread;

use crate::cpython::type_map::TypeMap;
use crate::prelude::Bound;
use crate::types::PyType;

static MAP: TypeMap<usize, 2> = TypeMap::new();

const CLASS: usize = 0x1000;

fn add(value: usize) -> usize {
    let class = Bound::<PyType>::at(CLASS);
    MAP.add(&class, value);
    *MAP.get(class.as_type_ptr()).expect("added above")
}

/// Two threads add the same type: it is in one slot, and both get the value that is there.
pub(crate) fn added() {
    let thread = thread::spawn(|| add(1));
    let here = add(2);
    let there = thread.join().expect("no panic");
    assert_eq!(here, there);
    assert_eq!(MAP.entries().count(), 1);
}
