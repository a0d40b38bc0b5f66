//! The simulated machine, the lock around it, and what every call has in common.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::abi::{Code, Handle, Noted, Out};
use crate::access::{Access, Race};
use crate::capture::{Capture, Mode};
use crate::clock::{Clock, HOST, Moment, Timeline};
use crate::code::{Answer, NOT_INITIALIZED};
use crate::context::{Context, Thread};
use crate::event::Event;
use crate::journal::{Entry, object, quoted};
use crate::memory::Block;
use crate::stream::Stream;

/// Something that no driver promises to survive, and that need not show as an error.
pub(crate) struct Violation {
    pub(crate) what: String,
    pub(crate) index: usize,
}

/// An answer that a test has put in the way of a function.
pub(crate) struct Failing {
    pub(crate) name: String,
    pub(crate) code: Code,
    /// How many calls work before.
    pub(crate) after: u32,
    pub(crate) count: u32,
}

/// All that there is.
#[derive(Default)]
pub(crate) struct Sim {
    pub(crate) initialized: bool,
    pub(crate) devices: i32,
    pub(crate) contexts: BTreeMap<Handle, Context>,
    pub(crate) threads: BTreeMap<u64, Thread>,
    pub(crate) streams: BTreeMap<Handle, Stream>,
    pub(crate) events: BTreeMap<Handle, Event>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeSet<Handle>,
    /// By address. Memory is kept until `sim_reset`, so that no address means two things.
    pub(crate) blocks: BTreeMap<usize, Block>,

    /// What the host knows to be done.
    pub(crate) host: Clock,
    /// What is done.
    pub(crate) completed: Clock,

    pub(crate) accesses: Vec<Access>,
    pub(crate) races: Vec<Race>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) journal: Vec<Entry>,

    pub(crate) failing: Vec<Failing>,
    /// Names that `cuGetProcAddress` does not know.
    pub(crate) hidden: Vec<String>,
    /// What every call answers, 0 for nothing.
    pub(crate) error: Code,

    /// The thread that calls.
    pub(crate) thread: u64,
    timelines: Timeline,
    handles: usize,
}

static SIM: LazyLock<Mutex<Sim>> = LazyLock::new(|| Mutex::new(Sim::new(devices_by_default())));
/// The process that called `cuInit`, 0 for none.
static OWNER: AtomicU32 = AtomicU32::new(0);

static THREADS: AtomicU64 = AtomicU64::new(0);
thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    static CALLER: RefCell<String> = const { RefCell::new(String::new()) };
}

fn devices_by_default() -> i32 {
    let devices = std::env::var("DRIVER_SIM_DEVICES").ok();
    devices.and_then(|count| count.parse().ok()).unwrap_or(2)
}

/// The machine, for this thread alone.
pub(crate) fn lock() -> MutexGuard<'static, Sim> {
    SIM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whom this thread works for from now on.
pub(crate) fn set_caller(caller: String) {
    CALLER.set(caller);
}

/// Whether this process is a fork of the one that initialized the driver. It is told without the lock, which another
/// thread may have held at the fork.
pub(crate) fn forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
}

/// Runs an exported function and enters it in the journal.
pub(crate) fn call(
    name: &'static str,
    arguments: &[(&'static str, Option<String>)],
    body: impl FnOnce(&mut Sim) -> Answer,
) -> Code {
    if forked() {
        return NOT_INITIALIZED;
    }
    let mut sim = lock();
    sim.thread = THREAD.with(|&thread| thread);
    let arguments = arguments.iter().cloned();
    let entry = Entry {
        name,
        arguments: arguments
            .filter_map(|(name, value)| Some((name, value?)))
            .collect(),
        results: Vec::new(),
        code: 0,
        thread: sim.thread,
        caller: CALLER.with_borrow(String::clone),
    };
    sim.journal.push(entry);
    let answer = sim.refusal(name).and_then(|()| body(&mut sim));
    let code = answer.err().unwrap_or(0);
    if let Some(entry) = sim.journal.last_mut() {
        entry.code = code;
    }
    code
}

impl Sim {
    /// A machine that nobody has used.
    pub(crate) fn new(devices: i32) -> Self {
        Self {
            devices,
            ..Self::default()
        }
    }

    /// Starts anew with as many devices. Handles are never used twice, so those of before stay invalid.
    pub(crate) fn reset(&mut self, devices: i32) {
        *self = Self {
            initialized: self.initialized,
            timelines: self.timelines,
            handles: self.handles,
            ..Self::new(devices)
        };
    }

    /// Lets all work complete, with the host's knowledge, and forgets what was reported. Captures end; other objects
    /// stay.
    pub(crate) fn clear(&mut self) {
        // Where everything is done and known, empty clocks say so too.
        self.host = Clock::default();
        self.completed = Clock::default();
        self.captures.clear();
        self.streams.retain(|_, stream| stream.alive);
        for stream in self.streams.values_mut() {
            stream.clock = Clock::default();
            stream.capture = None;
        }
        for thread in self.threads.values_mut() {
            thread.mode = Mode::Global;
        }
        self.events.retain(|_, event| event.alive);
        for event in self.events.values_mut() {
            event.settle();
        }
        self.blocks.retain(|_, block| block.live);
        self.accesses.clear();
        self.races.clear();
        self.violations.clear();
        self.journal.clear();
        self.failing.clear();
        self.error = 0;
    }

    /// Takes the driver into use.
    pub(crate) fn init(&mut self) {
        OWNER.store(std::process::id(), Ordering::Relaxed);
        self.initialized = true;
    }

    /// What is answered instead of doing anything.
    fn refusal(&mut self, name: &str) -> Answer {
        const ALWAYS: [&str; 5] = [
            "cuGetErrorName",
            "cuGetErrorString",
            "cuDriverGetVersion",
            "cuGetProcAddress",
            "cuGetProcAddress_v2",
        ];
        let mut failing = self.failing.iter_mut();
        if let Some(failing) = failing.find(|failing| failing.count > 0 && failing.name == name) {
            if failing.after == 0 {
                failing.count -= 1;
                return Err(failing.code);
            }
            failing.after -= 1;
        }
        if name.starts_with("sim_") || ALWAYS.contains(&name) {
            return Ok(());
        }
        if self.error != 0 {
            return Err(self.error);
        }
        if name.starts_with("hip") {
            // HIP starts itself.
            self.init();
        }
        if self.initialized || name == "cuInit" {
            Ok(())
        } else {
            Err(NOT_INITIALIZED)
        }
    }

    /// Place of the running call in the journal.
    pub(crate) fn index(&self) -> usize {
        self.journal.len().saturating_sub(1)
    }

    /// Name of the running call.
    pub(crate) fn running(&self) -> &'static str {
        self.journal.last().map_or("", |entry| entry.name)
    }

    /// Whether the running call is one of HIP.
    pub(crate) fn is_hip(&self) -> bool {
        self.running().starts_with("hip")
    }

    /// Writes a result, and notes it in the journal.
    pub(crate) fn give<T: Copy + Noted>(&mut self, place: Out<T>, value: T) -> Answer {
        place.set(value)?;
        if let (Some(entry), Some(noted)) = (self.journal.last_mut(), value.noted()) {
            entry.results.push(noted);
        }
        Ok(())
    }

    /// Reports a violation.
    pub(crate) fn violation(&mut self, what: impl Into<String>) {
        let (what, index) = (what.into(), self.index());
        self.violations.push(Violation { what, index });
    }

    /// A handle that never was and never will be another's. It looks like a pointer, which it is not.
    pub(crate) fn new_handle(&mut self) -> Handle {
        self.handles += 1;
        0x5100_0000_0000 + self.handles * 0x40
    }

    /// A timeline that nothing has happened on.
    pub(crate) fn new_timeline(&mut self) -> Timeline {
        self.timelines += 1;
        HOST + self.timelines
    }

    /// Something that the host does now.
    pub(crate) fn host_moment(&mut self) -> Moment {
        let time = self.host.tick(HOST);
        Moment {
            timeline: HOST,
            time,
            clock: self.host.clone(),
            capture: None,
            stream: None,
        }
    }
}

impl Violation {
    /// The violation in JSON.
    pub(crate) fn json(&self) -> String {
        object([
            ("what", quoted(&self.what)),
            ("index", self.index.to_string()),
        ])
    }
}
