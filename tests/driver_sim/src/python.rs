//! What the simulation asks of the Python interpreter that it is loaded into.

use std::ffi::{c_char, c_int, c_void};
use std::sync::LazyLock;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

type Check = extern "C" fn() -> c_int;

static CHECK: LazyLock<Option<Check>> = LazyLock::new(|| {
    // SAFETY: NULL is `RTLD_DEFAULT`, and the name ends with a zero byte.
    let found = unsafe { dlsym(std::ptr::null_mut(), c"PyGILState_Check".as_ptr()) };
    // SAFETY: it is NULL, which becomes None, or CPython's function, which has this signature and may be called by
    // any thread.
    unsafe { std::mem::transmute::<*mut c_void, Option<Check>>(found) }
});

/// Whether the calling thread holds the GIL, or, where there is none, may touch Python objects.
pub(crate) fn holds_gil() -> bool {
    CHECK.is_some_and(|check| check() == 1)
}
