//! A driver that only pretends: the CUDA driver's symbols, and a face of HIP, over host memory.
//!
//! Nothing runs at the same time as anything else. Each stream is a timeline with a vector clock, the host is one
//! more, and every access to memory is remembered with its moment; two accesses that conflict without a path of
//! order between them are a race (`access.rs`), whether or not it would ever have shown. Copies move their bytes when
//! they are queued. Work counts as running until the host waits for it, a full queue needs its place, or the test says
//! that it is done. Only host functions really run, in a thread of the driver, when the work before them is done.
//!
//! `cuda` and `hip` hold what a driver exports, `control` what tests ask of the simulation (`sim_*`).

mod abi;
mod access;
mod capture;
mod clock;
mod code;
mod context;
mod control;
mod copy;
mod cuda;
mod event;
mod green;
mod handle;
mod hip;
mod host;
mod journal;
mod memory;
mod python;
mod queue;
mod reach;
mod sim;
mod stream;
mod violation;
