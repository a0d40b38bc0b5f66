//! What is known of a pointer.

use crate::abi::{Address, Handle, Out, exports};
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::memory::Kind;
use crate::sim::Sim;

/// The value of an attribute, with its size.
enum Value {
    Int(i32),
    Long(usize),
}

/// An attribute of a pointer that the driver knows.
fn attribute(sim: &Sim, attribute: i32, address: Address) -> Answer<Value> {
    let block = sim
        .block(address)
        .filter(|block| block.live)
        .ok_or(INVALID_VALUE)?;
    Ok(match attribute {
        // UCX takes memory without a context for that of a pool (`cuda_copy_md.c`); this is not documented.
        1 if block.kind == Kind::Pool => Value::Long(0),
        1 => Value::Long(block.context),
        2 if block.kind == Kind::Host => Value::Int(1),
        2 => Value::Int(2),
        3 => Value::Long(address),
        4 if matches!(block.kind, Kind::Device | Kind::Pool) => return Err(INVALID_VALUE),
        4 => Value::Long(address),
        8 => Value::Int((block.kind == Kind::Managed).into()),
        9 => Value::Int(block.device),
        11 => Value::Long(block.start()),
        12 => Value::Long(block.nbytes),
        _ => return Err(NOT_SUPPORTED),
    })
}

/// What an attribute is of a pointer that it says nothing of.
fn unknown(attribute: i32) -> Answer<Value> {
    match attribute {
        1 | 3 | 4 | 11 | 12 => Ok(Value::Long(0)),
        2 | 8 => Ok(Value::Int(0)),
        9 => Ok(Value::Int(-2)),
        _ => Err(NOT_SUPPORTED),
    }
}

/// The place of an attribute, which has the type that the attribute says.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Place {
    int: Out<i32>,
    long: Out<Handle>,
}

fn give(place: Place, value: Value) -> Answer {
    match value {
        // SAFETY: both fields are a pointer.
        Value::Int(value) => unsafe { place.int }.set(value),
        // SAFETY: both fields are a pointer.
        Value::Long(value) => unsafe { place.long }.set(value),
    }
}

impl crate::abi::Noted for Place {
    fn noted(&self) -> Option<String> {
        None
    }
}

/// Reports a question whose answer nobody knows.
fn check_freed(sim: &mut Sim, address: Address) {
    if sim.block(address).is_some_and(|block| !block.live) {
        sim.violation(format!("attributes of freed memory at {address:#x}"));
    }
}

exports! {
    /// An attribute of a pointer.
    fn cuPointerGetAttribute(data: Place, which: i32, address: Address) in sim {
        check_freed(sim, address);
        give(data, attribute(sim, which, address)?)
    }

    /// Attributes of a pointer, which need not be one of the driver's.
    fn cuPointerGetAttributes(count: u32, which: Out<i32>, data: Out<Place>, address: Address) in sim {
        check_freed(sim, address);
        for index in 0..count as usize {
            let which = which.at(index).get()?;
            let value = attribute(sim, which, address).or_else(|_| unknown(which))?;
            give(data.at(index).get()?, value)?;
        }
        Ok(())
    }
}
