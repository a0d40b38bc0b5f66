//! CPython as dlx needs it: attaching to the interpreter, calls, lookups on types, forks. Knows nothing of tensors.

pub(crate) mod boundary;
pub(crate) mod call;
pub(crate) mod depth;
pub(crate) mod fork;
pub(crate) mod interpreter;
pub(crate) mod lookup;
pub(crate) mod modules;
pub(crate) mod symbol;
