//! The simulated machine, the lock around it, and what every call has in common.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::{Code, Handle, Noted, Out};
use crate::access::{Access, Race};
use crate::capture::{Capture, Mode};
use crate::clock::{Clock, HOST, Moment, Timeline};
use crate::code::{Answer, BLOCKED, NOT_INITIALIZED, NOT_PERMITTED};
use crate::context::{Context, Thread};
use crate::event::Event;
use crate::handle::Freed;
use crate::host::{self, HostFunction};
use crate::journal::Entry;
use crate::memory::Block;
use crate::python;
use crate::reach::Reach;
use crate::stream::Stream;
use crate::violation::Violation;

/// An answer that a test has put in the way of a function.
pub(crate) struct Failing {
    pub(crate) name: String,
    /// Whether the calls of dlx's thread fail, or all others.
    pub(crate) release: bool,
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
    /// The streams that handles name.
    pub(crate) named: BTreeMap<Handle, Handle>,
    pub(crate) events: BTreeMap<Handle, Event>,
    pub(crate) freed: Freed,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeSet<Handle>,
    /// By address. Memory is kept until `sim_reset`, so that no address means two things.
    pub(crate) blocks: BTreeMap<usize, Block>,
    pub(crate) reach: Reach,

    /// What the host knows to be done.
    pub(crate) host: Clock,
    /// What is done.
    pub(crate) completed: Clock,
    /// How far the device may go: to `completed`, unless a host function is in the way.
    pub(crate) reached: Clock,
    /// Host functions that have not ended, in the order in which they were queued.
    pub(crate) functions: Vec<HostFunction>,
    /// How long a call may wait for them.
    pub(crate) limit: Duration,
    /// Whether calls wait while a host function runs.
    pub(crate) functions_lock: bool,
    /// Whether host functions, all of which are Python's here, need the GIL.
    pub(crate) gil: bool,

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
    /// Number and name of its call.
    call: (u64, &'static str),
    calls: u64,
    timelines: Timeline,
    handles: usize,
}

static SIM: LazyLock<Mutex<Sim>> = LazyLock::new(|| Mutex::new(Sim::new(devices_by_default())));
/// The process that called `cuInit`, 0 for none.
static OWNER: AtomicU32 = AtomicU32::new(0);

static THREADS: AtomicU64 = AtomicU64::new(0);
thread_local! {
    static THREAD: Attached = Attached(THREADS.fetch_add(1, Ordering::Relaxed));
    static FIRST: &'static str = caller_by_name();
    static CALLER: RefCell<String> = RefCell::new(first_caller());
}

/// A thread, by its number. When it ends, it has no context any more.
struct Attached(u64);

impl Drop for Attached {
    fn drop(&mut self) {
        // In a fork another thread may have held the lock, which nothing gives back then.
        if !forked() {
            lock().threads.remove(&self.0);
        }
    }
}

fn devices_by_default() -> i32 {
    let devices = std::env::var("DRIVER_SIM_DEVICES").ok();
    devices.and_then(|count| count.parse().ok()).unwrap_or(2)
}

/// The machine, for this thread alone.
pub(crate) fn lock() -> MutexGuard<'static, Sim> {
    SIM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread of dlx that releases memory. It calls at any time, so tests see its calls apart.
const RELEASE: &str = "dlx-release";

/// Whom this thread works for before it says so: nobody in particular, or itself.
fn caller_by_name() -> &'static str {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    if name.trim_end() == RELEASE {
        RELEASE
    } else {
        ""
    }
}

fn first_caller() -> String {
    FIRST.with(|first| String::from(*first))
}

/// Whom this thread works for from now on; the empty string for whom it worked for at first.
pub(crate) fn set_caller(caller: String) {
    CALLER.set(if caller.is_empty() {
        first_caller()
    } else {
        caller
    });
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
    mut body: impl FnMut(&mut Sim) -> Answer,
) -> Code {
    if forked() {
        return NOT_INITIALIZED;
    }
    let gil = python::holds_gil();
    let caller = CALLER.with_borrow(String::clone);
    let mut sim = lock();
    let thread = THREAD.with(|thread| thread.0);
    sim.calls += 1;
    let number = sim.calls;
    let arguments = arguments.iter().cloned();
    let entry = Entry {
        number,
        name,
        arguments: arguments
            .filter_map(|(name, value)| Some((name, value?)))
            .collect(),
        results: Vec::new(),
        code: 0,
        thread,
        caller: caller.clone(),
        gil,
        waited: false,
    };
    sim.journal.push(entry);
    (sim.thread, sim.call) = (thread, (number, name));
    let mut answer = sim
        .refusal(name, &caller)
        .and_then(|()| sim.attempt(&mut body));
    let since = Instant::now();
    while answer == Err(BLOCKED) {
        if let Some(entry) = sim.entry() {
            entry.waited = true;
        }
        sim = host::wait(sim, name, gil, since);
        (sim.thread, sim.call) = (thread, (number, name));
        answer = sim.attempt(&mut body);
    }
    let code = answer.err().unwrap_or(0);
    if let Some(entry) = sim.entry() {
        entry.code = code;
    }
    code
}

impl Sim {
    /// A machine that nobody has used.
    pub(crate) fn new(devices: i32) -> Self {
        Self {
            devices,
            limit: Duration::from_secs(20),
            ..Self::default()
        }
    }

    /// Starts anew with as many devices. Handles of before are never used again, so that they stay invalid.
    pub(crate) fn reset(&mut self, devices: i32) {
        *self = Self {
            initialized: self.initialized,
            timelines: self.timelines,
            handles: self.handles,
            limit: self.limit,
            gil: self.gil,
            calls: self.calls,
            ..Self::new(devices)
        };
    }

    /// Lets all work complete, with the host's knowledge, and forgets what was reported. Captures end; other objects
    /// stay.
    pub(crate) fn clear(&mut self) {
        // Where everything is done and known, empty clocks say so too.
        self.host = Clock::default();
        self.completed = Clock::default();
        self.reached = Clock::default();
        self.clear_functions();
        self.captures.clear();
        self.streams.retain(|_, stream| stream.alive);
        for stream in self.streams.values_mut() {
            stream.clock = Clock::default();
            stream.capture = None;
            stream.queue = None;
        }
        for thread in self.threads.values_mut() {
            thread.mode = Mode::Global;
        }
        for event in self.events.values_mut() {
            event.settle();
        }
        self.blocks.retain(|_, block| block.live);
        self.reach = Reach::default();
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

    /// Runs the body of a call, unless that has to wait first.
    fn attempt(&mut self, body: &mut impl FnMut(&mut Self) -> Answer) -> Answer {
        self.check_lock()?;
        body(self)
    }

    /// What is answered instead of doing anything.
    fn refusal(&mut self, name: &str, caller: &str) -> Answer {
        const ALWAYS: [&str; 5] = [
            "cuGetErrorName",
            "cuGetErrorString",
            "cuDriverGetVersion",
            "cuGetProcAddress",
            "cuGetProcAddress_v2",
        ];
        let release = caller == RELEASE;
        let mut failing = self.failing.iter_mut();
        if let Some(failing) = failing
            .find(|failing| failing.count > 0 && failing.name == name && failing.release == release)
        {
            if failing.after == 0 {
                failing.count -= 1;
                return Err(failing.code);
            }
            failing.after -= 1;
        }
        if name.contains("sim_") || ALWAYS.contains(&name) {
            return Ok(());
        }
        // "The host function must not make any CUDA API calls. Attempting to use a CUDA API may result in
        // CUDA_ERROR_NOT_PERMITTED, but this is not required." (cuda.h, cuLaunchHostFunc)
        if host::inside() {
            return Err(NOT_PERMITTED);
        }
        if self.error != 0 {
            return Err(self.error);
        }
        if name.starts_with("hip") {
            // HIP starts itself.
            self.init();
        }
        if !self.initialized && name != "cuInit" {
            return Err(NOT_INITIALIZED);
        }
        self.check_current(name)
    }

    /// Place of the running call in the journal.
    pub(crate) fn index(&self) -> usize {
        let number = self.call.0;
        let place = self
            .journal
            .iter()
            .rposition(|entry| entry.number == number);
        place.unwrap_or(0)
    }

    /// The running call in the journal, unless that was cleared while it waited.
    fn entry(&mut self) -> Option<&mut Entry> {
        let number = self.call.0;
        self.journal
            .iter_mut()
            .rfind(|entry| entry.number == number)
    }

    /// Name of the running call.
    pub(crate) fn running(&self) -> &'static str {
        self.call.1
    }

    /// Whether the running call is one of HIP.
    pub(crate) fn is_hip(&self) -> bool {
        self.running().starts_with("hip")
    }

    /// Writes a result, and notes it in the journal.
    pub(crate) fn give<T: Copy + Noted>(&mut self, place: Out<T>, value: T) -> Answer {
        place.set(value)?;
        if let (Some(entry), Some(noted)) = (self.entry(), value.noted()) {
            entry.results.push(noted);
        }
        Ok(())
    }

    /// A number that never was and never will be another's. It looks like a pointer, which it is not.
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
