//! What tests ask of the simulation: `sim_*`.
//!
//! Texts that these functions return are freed with `sim_free_text`.

use std::ffi::{CString, c_char};
use std::time::Duration;

use crate::abi::{Address, Code, Handle, Text, exports};
use crate::access::Race;
use crate::journal::{list, object};
use crate::sim::{Failing, lock, set_caller};
use crate::stream::Stream;
use crate::violation::Violation;

/// A text that the caller frees. JSON has no zero byte in it; if it had, the text would be empty.
fn given(text: String) -> *mut c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

/// Frees a text.
///
/// # Safety
/// It is NULL, or one of the functions here has returned it, and this is the first call for it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sim_free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: `given` has made it with `into_raw`, and the caller frees it once.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// The calls since the journal was cleared, a list in JSON.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_journal() -> *mut c_char {
    let sim = lock();
    let entries = sim.journal.iter().enumerate();
    given(list(entries.map(|(index, entry)| entry.json(index))))
}

/// The races, a list in JSON.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_races() -> *mut c_char {
    given(list(lock().races.iter().map(Race::json)))
}

/// The violations, a list in JSON.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_violations() -> *mut c_char {
    given(list(lock().violations.iter().map(Violation::json)))
}

/// How many calls the journal has.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_call_count() -> u64 {
    lock().journal.len() as u64
}

/// How many objects are alive, an object in JSON.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_counts() -> *mut c_char {
    let sim = lock();
    let named = |stream: &&Stream| stream.name > 2 && stream.alive && stream.lost == 0;
    let retained: u32 = sim.retained().values().sum();
    let count = |number: usize| number.to_string();
    given(object([
        ("streams", count(sim.streams.values().filter(named).count())),
        ("events", count(sim.living_events())),
        ("allocations", count(sim.living_blocks())),
        (
            "contexts",
            count(
                sim.contexts
                    .values()
                    .filter(|context| context.alive)
                    .count(),
            ),
        ),
        ("retains", retained.to_string()),
        ("captures", count(sim.captures.len())),
        ("graphs", count(sim.graphs.len())),
    ]))
}

/// How often the primary context of each device is retained, an object in JSON.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_retained() -> *mut c_char {
    let retained = lock().retained();
    let fields = retained.iter();
    let fields: Vec<(String, String)> = fields
        .map(|(device, count)| (device.to_string(), count.to_string()))
        .collect();
    let named = fields.iter();
    given(object(
        named.map(|(device, count)| (&**device, count.clone())),
    ))
}

/// Starts anew with as many devices: all objects are gone.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_reset(devices: i32) {
    lock().reset(devices);
}

/// Lets all work be done and known to the host, and forgets journal, races, violations, failures and set errors.
/// Captures end; other objects stay.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_clear() {
    lock().clear();
}

/// Forgets the journal alone. Reports of before keep their places in it, which mean nothing any more.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_clear_journal() {
    lock().journal.clear();
}

/// Whom the calls of this thread are for, as the journal shows it; the empty string for nobody in particular.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_calls_by(caller: Text) -> Code {
    match caller.read() {
        Ok(caller) => {
            set_caller(caller);
            0
        }
        Err(code) => code,
    }
}

/// Lets the next calls of a function fail, without effect, `after` so many that work: those of dlx's thread that
/// releases memory, or those of all others.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_fail_next(
    name: Text,
    code: Code,
    count: u32,
    after: u32,
    release: i32,
) -> Code {
    match name.read() {
        Ok(name) => {
            lock().failing.push(Failing {
                name,
                release: release != 0,
                code,
                after,
                count,
            });
            0
        }
        Err(code) => code,
    }
}

/// Lets every call fail, as after an error that sticks or when the driver has gone; 0 ends that, and what
/// `sim_fail_next` has left.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_set_error(code: Code) {
    let mut sim = lock();
    sim.error = code;
    if code == 0 {
        sim.failing.clear();
    }
}

/// Hides a function, named without suffix, from `cuGetProcAddress` until `sim_reset`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_hide(name: Text) -> Code {
    match name.read() {
        Ok(name) => {
            lock().hidden.push(name);
            0
        }
        Err(code) => code,
    }
}

/// How many milliseconds a call may wait for a host function before the process is ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_limit(milliseconds: u64) {
    lock().limit = Duration::from_millis(milliseconds);
}

/// Whether this Python has a GIL: a call that waits for a host function while its caller has it ends the process.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_gil(exists: i32) {
    lock().gil = exists != 0;
}

/// Whether the driver holds its lock while a host function runs, so that calls of other threads wait.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sim_lock_functions(locked: i32) {
    lock().functions_lock = locked != 0;
}

exports! {
    /// A kernel that reads or writes a range.
    fn sim_launch(stream: Handle, write: i32, address: Address, nbytes: usize) in sim {
        let stream = sim.resolve(stream)?;
        sim.launch(write != 0, address, nbytes, stream)
    }

    /// The same on HIP, where stream 0 is the default stream.
    fn hip_sim_launch(stream: Handle, write: i32, address: Address, nbytes: usize) in sim {
        let stream = sim.resolve(stream)?;
        sim.launch(write != 0, address, nbytes, stream)
    }

    /// The host reads or writes a range.
    fn sim_host_access(write: i32, address: Address, nbytes: usize) in sim {
        let moment = sim.host_moment();
        sim.check_host_range(address, nbytes);
        sim.access(write != 0, &[(address, address + nbytes)], &moment);
        Ok(())
    }

    /// Lets the work of a stream be done, without the host's knowledge.
    fn sim_advance(stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        let clock = sim.stream(stream)?.clock.clone();
        sim.complete(&clock)
    }

    /// The same on HIP.
    fn hip_sim_advance(stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        let clock = sim.stream(stream)?.clock.clone();
        sim.complete(&clock)
    }

    /// Lets all work be done, without the host's knowledge.
    fn sim_advance_all() in sim {
        sim.complete_all()
    }

    /// A kernel that writes where nothing is. It fails at once.
    fn sim_fault(stream: Handle) in sim {
        let stream = sim.resolve(stream)?;
        sim.fail_context(stream)
    }

    /// Limits the queue of a stream to so much work; 0 is no limit.
    fn sim_bound(stream: Handle, bound: usize) in sim {
        let stream = sim.resolve(stream)?;
        sim.bound_queue(stream, bound)
    }
}
