//! Host functions, the driver's thread that runs them, and calls that wait for them.
//!
//! "The function will be called after currently enqueued work and will block work added after it. Host functions
//! without a mandated order (such as in independent streams) execute in undefined order and may be serialized."
//! (cuda.h, cuLaunchHostFunc.) Here one thread runs them all, in the order in which they were queued.

use std::cell::Cell;
use std::io::Write;
use std::sync::{Condvar, MutexGuard, Once, PoisonError};
use std::time::Instant;

use crate::abi::{Address, Handle, Noted};
use crate::clock::{Clock, Moment};
use crate::code::{Answer, BLOCKED, INVALID_VALUE};
use crate::sim::{Sim, lock};

/// Something was queued for the driver's thread, or that has done something.
static CHANGED: Condvar = Condvar::new();
static STARTED: Once = Once::new();

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// `CUhostFn`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Function(Option<unsafe extern "C" fn(Address)>);

impl Noted for Function {
    fn noted(&self) -> Option<String> {
        None
    }
}

/// A host function that has not ended.
pub(crate) struct HostFunction {
    function: unsafe extern "C" fn(Address),
    data: Address,
    /// When it ends.
    moment: Moment,
    /// The stream's context.
    context: Handle,
    running: bool,
}

/// Whether the calling thread is the driver's, which runs host functions.
pub(crate) fn inside() -> bool {
    INSIDE.get()
}

/// Lets the driver's thread work until something has changed. Ends the process where that cannot help.
pub(crate) fn wait<'a>(
    sim: MutexGuard<'a, Sim>,
    name: &str,
    gil: bool,
    since: Instant,
) -> MutexGuard<'a, Sim> {
    if gil && sim.gil {
        give_up(&format!(
            "{name} waits for a host function, which waits for the GIL, which the caller of {name} holds"
        ));
    }
    let Some(left) = sim.limit.checked_sub(since.elapsed()) else {
        give_up(&format!(
            "{name} has waited {} s for a host function",
            sim.limit.as_secs()
        ));
    };
    STARTED.call_once(|| {
        std::thread::spawn(run_functions);
    });
    CHANGED.notify_all();
    let waited = CHANGED.wait_timeout(sim, left);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

fn give_up(why: &str) -> ! {
    // The process ends, whether or not this can be written.
    let _ = writeln!(std::io::stderr(), "driver_sim: deadlock: {why}");
    std::process::abort();
}

fn run_functions() {
    INSIDE.set(true);
    let mut sim = lock();
    loop {
        let Some((function, data, moment)) = sim.next_function() else {
            let waited = CHANGED.wait(sim);
            sim = waited.unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(sim);
        // SAFETY: whoever queued the function keeps it and its data until it has run, and it takes this argument.
        unsafe { function(data) };
        sim = lock();
        sim.end_function(&moment);
        CHANGED.notify_all();
    }
}

impl Sim {
    /// Queues a host function on a resolved stream.
    pub(crate) fn launch_host(
        &mut self,
        stream: Handle,
        function: Function,
        data: Address,
    ) -> Answer {
        let function = function.0.ok_or(INVALID_VALUE)?;
        let moment = self.enqueue(stream)?;
        if moment.capture.is_some() {
            // A node of the graph, which is never launched here.
            return Ok(());
        }
        let context = self.stream(stream)?.context;
        self.functions.push(HostFunction {
            function,
            data,
            moment,
            context,
            running: false,
        });
        Ok(())
    }

    /// Lets the work that a clock comes after be done. Host functions among it run first: the call waits for them.
    pub(crate) fn complete(&mut self, clock: &Clock) -> Answer {
        self.reached.join(clock);
        let in_the_way = |function: &HostFunction| function.moment.before(clock);
        if self.functions.iter().any(in_the_way) {
            return Err(BLOCKED);
        }
        self.completed.join(clock);
        Ok(())
    }

    /// The next function that the device has come to, with what comes before it done.
    fn next_function(&mut self) -> Option<(unsafe extern "C" fn(Address), Address, Moment)> {
        let mut functions = self.functions.iter_mut();
        let next = functions.find(|function| function.moment.before(&self.reached))?;
        next.running = true;
        let moment = &next.moment;
        self.completed
            .join(&moment.clock.before_last(moment.timeline));
        Some((next.function, next.data, moment.clone()))
    }

    /// Lets a function be done, unless it was forgotten while it ran.
    fn end_function(&mut self, moment: &Moment) {
        let same = |other: &Moment| (other.timeline, other.time) == (moment.timeline, moment.time);
        let count = self.functions.len();
        self.functions.retain(|function| !same(&function.moment));
        if self.functions.len() < count {
            self.completed.join(&moment.clock);
        }
    }

    /// Holds up a call while a host function runs, if the driver is one that holds its lock then. numba-cuda#317 says
    /// that drivers do ("while holding the CUDA driver lock in a CUDA driver managed thread"), and TensorRT-LLM#15855
    /// shows a launch that waits for a function in flight; no documentation promises or excludes it.
    pub(crate) fn check_lock(&self) -> Answer {
        let control = inside() || self.running().contains("sim_");
        let locked = self.functions_lock && !control;
        if locked && self.functions.iter().any(|function| function.running) {
            return Err(BLOCKED);
        }
        Ok(())
    }

    /// Forgets all functions.
    pub(crate) fn clear_functions(&mut self) {
        self.functions.clear();
        self.functions_lock = false;
        CHANGED.notify_all();
    }

    /// Forgets the functions of a context that is lost: "the function will not be called in the event of an error in
    /// the CUDA context" (cuda.h, cuLaunchHostFunc).
    pub(crate) fn forget_functions(&mut self, context: Handle) {
        self.functions
            .retain(|function| function.context != context);
        CHANGED.notify_all();
    }
}
