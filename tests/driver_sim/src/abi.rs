//! Arguments as C passes them.
//!
//! The types here have the layout of the pointers that they stand for and are only made by the callers of exported
//! functions, who promise what the driver's documentation asks of them: NULL, or a place that is valid for the call.

use std::ffi::{CStr, c_char, c_int};

use crate::code::{Answer, INVALID_VALUE};

/// What a driver function returns: `CUresult` or `hipError_t`.
pub(crate) type Code = c_int;
/// A context, stream, event or graph. It is never followed.
pub(crate) type Handle = usize;
/// A `CUdeviceptr` or a host pointer.
pub(crate) type Address = usize;

/// A pointer to where a result goes, or to values that are read and replaced.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Whether the caller wants nothing here.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The place of an element of an array.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// Writes the value.
    pub(crate) fn set(self, value: T) -> Answer {
        if self.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: it is not NULL, and the caller of the driver function has made it valid for this type.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Reads the value.
    pub(crate) fn get(self) -> Answer<T> {
        if self.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: it is not NULL, and the caller of the driver function has filled it.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// A C string.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// A copy of the string.
    pub(crate) fn read(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: it is not NULL, and the caller passes strings that end and stay for the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// What the journal writes of an argument.
pub(crate) trait Noted {
    /// The argument in JSON; None for places of results.
    fn noted(&self) -> Option<String>;
}

impl<T> Noted for Out<T> {
    fn noted(&self) -> Option<String> {
        None
    }
}

impl Noted for Text {
    fn noted(&self) -> Option<String> {
        self.read().ok().map(|text| crate::journal::quoted(&text))
    }
}

macro_rules! noted_as_numbers {
    ($($kind:ty)*) => {$(
        impl Noted for $kind {
            fn noted(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}

noted_as_numbers!(i32 u8 u32 u64 usize);

/// Exports functions under their C names. Each is entered in the journal, and its body runs only if the simulation
/// does not answer for it (`Sim::refusal`).
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) in $sim:ident $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the driver's names")]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> $crate::abi::Code {
            let arguments = [$((stringify!($argument), $crate::abi::Noted::noted(&$argument))),*];
            $crate::sim::call(stringify!($name), &arguments, |$sim| $body)
        }
    )*};
}

pub(crate) use exports;
