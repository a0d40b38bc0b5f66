//! The tables of the pool. Each slot has five functions of its own, since no argument tells whose table was called.

#[cfg(any(all(target_arch = "x86_64", not(windows)), target_arch = "aarch64"))]
mod entries;
#[cfg(any(all(target_arch = "x86_64", not(windows)), target_arch = "aarch64"))]
pub(super) use entries::table;

#[cfg(not(any(all(target_arch = "x86_64", not(windows)), target_arch = "aarch64")))]
mod compiled;
#[cfg(not(any(all(target_arch = "x86_64", not(windows)), target_arch = "aarch64")))]
pub(super) use compiled::table;
