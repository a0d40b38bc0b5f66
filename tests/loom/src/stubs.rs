//! What the included sources use of CPython, PyO3 and libc, and of rooms that are not included.

use real::ffi::c_int;

pub(crate) mod boundary {
    use real::any::Any;
    use real::boxed::Box;
    use real::panic::{AssertUnwindSafe, catch_unwind};

    use crate::planted::fail;

    /// As dlx's: no panic crosses into C. It fails the model nonetheless.
    pub(crate) fn guard<R>(
        body: impl FnOnce() -> R,
        on_panic: impl FnOnce(Box<dyn Any + Send>) -> R,
    ) -> R {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
            fail();
            on_panic(panic)
        })
    }

    pub(crate) fn unraisable(_: Box<dyn Any + Send>) {}
}

/// Threads of the models are never attached.
pub(crate) mod interpreter {
    pub(crate) fn forked() {}

    pub(crate) fn quietly_anywhere(let_go: impl FnOnce()) {
        let_go();
    }
}

pub(crate) mod depth {
    use real::mem::ManuallyDrop;

    pub(crate) fn nested<T: 'static>(held: T, let_go: impl FnOnce(&mut T)) {
        let_go(&mut ManuallyDrop::new(held));
    }
}

pub(crate) mod types {
    pub(crate) mod error {
        use real::string::String;

        #[derive(Debug)]
        pub(crate) enum Error {
            OutOfMemory(usize),
            Refused(String),
        }

        impl Error {
            pub(crate) fn refused(why: String) -> Self {
                Self::Refused(why)
            }

            pub(crate) fn refused_apart(why: impl FnOnce() -> String) -> Self {
                Self::Refused(why())
            }
        }
    }

    /// A class is an address.
    pub(crate) struct PyType;
}

pub(crate) mod ffi {
    pub(crate) use real::ffi::*;

    pub(crate) struct PyObject;
    pub(crate) struct PyTypeObject;
}

pub(crate) mod prelude {
    use real::marker::PhantomData;

    use super::ffi::{PyObject, PyTypeObject};
    use crate::planted::{Bug, is_planted};

    pub(crate) struct Py<T>(*mut PyObject, PhantomData<T>);

    pub(crate) struct Bound<'py, T>(*mut PyObject, PhantomData<&'py T>);

    impl<T> Clone for Bound<'_, T> {
        fn clone(&self) -> Self {
            Self(self.0, PhantomData)
        }
    }

    impl<T> Bound<'_, T> {
        pub(crate) fn at(address: usize) -> Self {
            Self(real::ptr::without_provenance_mut(address), PhantomData)
        }

        pub(crate) fn unbind(self) -> Py<T> {
            Py(self.0, PhantomData)
        }

        pub(crate) fn as_type_ptr(&self) -> *mut PyTypeObject {
            self.0.cast()
        }
    }

    impl<T> Py<T> {
        pub(crate) fn as_ptr(&self) -> *mut PyObject {
            self.0
        }

        pub(crate) fn is(&self, other: &Bound<'_, T>) -> bool {
            self.0 == other.0 && !is_planted(Bug::NeverTheSame)
        }
    }
}

type Handler = Option<unsafe extern "C" fn()>;

real::thread_local! {
    static AT_FORK: real::cell::Cell<[Handler; 3]> = const { real::cell::Cell::new([None; 3]) };
}

/// Keeps the handlers for [`at_fork`].
pub(crate) unsafe fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int {
    AT_FORK.set([prepare, parent, child]);
    0
}

/// The handlers that run before a fork, and after it in the parent and in the child.
pub(crate) fn at_fork() -> [unsafe extern "C" fn(); 3] {
    AT_FORK.get().map(|handler| handler.expect("registered"))
}
