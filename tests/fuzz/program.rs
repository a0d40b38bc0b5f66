//! One libFuzzer program for all targets: `DLX_FUZZ` names the one that runs.

#![no_main]

use std::env;
use std::sync::LazyLock;

use dlx::fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = env::var("DLX_FUZZ").expect("DLX_FUZZ names a target");
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.expect("a target of tests/fuzz/targets").1
});

fuzz_target!(|data: &[u8]| dlx::fuzz::run(*TARGET, data));
