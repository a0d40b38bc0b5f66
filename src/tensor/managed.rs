//! Managed tensors: an owning handle for either struct of `dlpack.h`.

use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::abi::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPackVersion, DLTensor,
};
use crate::cpython::depth::nested;
use crate::cpython::interpreter::quietly_anywhere;
use crate::types::error::Error;

mod export;
mod flags;
mod offer;
mod replaced;

pub(crate) use export::export;
use export::{Export, delete};
use flags::{KNOWN_FLAGS, minor_of, unknown_flags};
pub(crate) use flags::{MAYBE_READ_ONLY, PROTECTED, beyond, is_beyond, read_only};
pub(crate) use offer::Offer;
pub(crate) use replaced::{first_deleter, replace_deleter};

/// Either managed struct, that of `dltensor` capsules or that of `dltensor_versioned` ones.
///
/// Fields are read individually through the pointer: in a struct of another major version, memory after `flags` may
/// not even be readable (R29).
pub(crate) trait ManagedTensor: Sized + 'static {
    /// Name of a capsule that owns such a tensor (R1).
    const NAME: &'static CStr;
    /// Name of a consumed capsule (R7).
    const USED: &'static CStr;
    /// The flags that a snapshot adds for what this struct cannot say.
    const UNSAID: u64;

    /// The field with the deleter, which is `None` if NULL (R9).
    ///
    /// # Safety
    ///
    /// `this` points to a live managed tensor.
    unsafe fn deleter(this: NonNull<Self>) -> *mut Option<unsafe extern "C" fn(*mut Self)>;

    /// What its maker keeps for the deleter.
    ///
    /// # Safety
    ///
    /// `this` points to a live managed tensor.
    unsafe fn context(this: NonNull<Self>) -> *mut c_void;

    /// The tensor and its flags, or why they cannot be read.
    ///
    /// # Safety
    ///
    /// `this` points to a managed tensor that lives for `'a` and is not written to.
    unsafe fn read<'a>(this: NonNull<Self>) -> Result<(&'a DLTensor, u64), Error>;

    /// The minor version; 0 if the struct has none.
    ///
    /// # Safety
    ///
    /// As for [`Self::deleter`].
    unsafe fn minor(this: NonNull<Self>) -> u32;

    /// The struct for an export of dlx's.
    fn assemble(
        tensor: DLTensor,
        flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self;
}

impl ManagedTensor for DLManagedTensorVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";
    const UNSAID: u64 = 0;

    unsafe fn deleter(this: NonNull<Self>) -> *mut Option<unsafe extern "C" fn(*mut Self)> {
        // SAFETY: alive, as the caller guarantees; every version has this field.
        unsafe { &raw mut (*this.as_ptr()).deleter }
    }

    unsafe fn context(this: NonNull<Self>) -> *mut c_void {
        // SAFETY: alive, as the caller guarantees; every version has this field.
        unsafe { (*this.as_ptr()).manager_ctx }
    }

    #[inline(always)]
    unsafe fn read<'a>(this: NonNull<Self>) -> Result<(&'a DLTensor, u64), Error> {
        // SAFETY: alive, as the caller guarantees; every version has this field.
        let DLPackVersion { major, minor } = unsafe { (*this.as_ptr()).version };
        if major != DLPACK_MAJOR_VERSION {
            return Err(Error::refused_apart(move || {
                format!(
                    "the tensor has DLPack version {major}.{minor}; dlx reads {DLPACK_MAJOR_VERSION}.x"
                )
            }));
        }
        // SAFETY: alive, and major version 1 means that the struct has this layout.
        let this = unsafe { this.as_ref() };
        match this.flags & !KNOWN_FLAGS {
            0 => Ok((&this.dl_tensor, this.flags)),
            unknown => Err(unknown_flags(unknown)),
        }
    }

    unsafe fn minor(this: NonNull<Self>) -> u32 {
        // SAFETY: alive, as the caller guarantees; every version has this field.
        unsafe { (*this.as_ptr()).version }.minor
    }

    fn assemble(
        dl_tensor: DLTensor,
        flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self {
        let version = DLPackVersion {
            major: DLPACK_MAJOR_VERSION,
            minor: minor_of(flags),
        };
        Self {
            version,
            manager_ctx,
            deleter: Some(deleter),
            // The only place where flags leave dlx.
            flags: flags & KNOWN_FLAGS,
            dl_tensor,
        }
    }
}

impl ManagedTensor for DLManagedTensor {
    const NAME: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";
    const UNSAID: u64 = MAYBE_READ_ONLY;

    unsafe fn deleter(this: NonNull<Self>) -> *mut Option<unsafe extern "C" fn(*mut Self)> {
        // SAFETY: alive, as the caller guarantees.
        unsafe { &raw mut (*this.as_ptr()).deleter }
    }

    unsafe fn context(this: NonNull<Self>) -> *mut c_void {
        // SAFETY: alive, as the caller guarantees.
        unsafe { (*this.as_ptr()).manager_ctx }
    }

    unsafe fn read<'a>(this: NonNull<Self>) -> Result<(&'a DLTensor, u64), Error> {
        // SAFETY: alive, as the caller guarantees.
        Ok((unsafe { &(*this.as_ptr()).dl_tensor }, 0))
    }

    unsafe fn minor(_this: NonNull<Self>) -> u32 {
        0
    }

    fn assemble(
        dl_tensor: DLTensor,
        _flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self {
        Self {
            dl_tensor,
            manager_ctx,
            deleter: Some(deleter),
        }
    }
}

/// Who made a managed tensor.
#[derive(Clone, Copy)]
pub(crate) struct Maker {
    /// The deleter's address, which is that of its library's code for one type of struct.
    pub(crate) deleter: usize,
    /// That struct, and its part that is not the managed tensor: the bytes before it.
    pub(crate) context: *const u8,
    pub(crate) size: usize,
}

/// The sole owner of a managed tensor: dropping it calls the deleter exactly once (R8).
pub(crate) struct Managed<M: ManagedTensor>(NonNull<M>);

/// The owner of a tensor from a table or a `dltensor_versioned` capsule.
pub(crate) type ManagedVersioned = Managed<DLManagedTensorVersioned>;

// SAFETY: dlpack.h lets any thread call the deleter (R13), and the struct is only read until then.
unsafe impl<M: ManagedTensor> Send for Managed<M> {}
// SAFETY: as for `Send`; shared access only reads.
unsafe impl<M: ManagedTensor> Sync for Managed<M> {}

impl<M: ManagedTensor> Managed<M> {
    /// Takes ownership of `tensor`.
    ///
    /// # Safety
    ///
    /// `tensor` points to a managed tensor that the caller owns and gives up; its fields are as its version promises.
    pub(crate) unsafe fn from_raw(tensor: NonNull<M>) -> Self {
        Self(tensor)
    }

    /// Releases ownership; the new owner of the pointer calls the deleter.
    pub(crate) fn into_raw(self) -> NonNull<M> {
        ManuallyDrop::new(self).0
    }

    /// The tensor and its flags, which are empty for the unversioned struct.
    #[inline(always)]
    pub(crate) fn read(&self) -> Result<(&DLTensor, u64), Error> {
        // SAFETY: we own the tensor, so it is alive and unchanged until `self` is dropped or given away (S3).
        unsafe { M::read(self.0) }
    }

    /// The deleter.
    #[inline(always)]
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut M)> {
        // SAFETY: we own the tensor, so it is alive until the deleter is called (S3, managed tensors).
        let place = unsafe { M::deleter(self.0) };
        // SAFETY: as above; nothing else accesses the field.
        unsafe { *place }
    }

    /// Who made it.
    pub(crate) fn maker(&self) -> Maker {
        // SAFETY: as in `deleter`.
        let context = unsafe { M::context(self.0) };
        let deleter = self.deleter().map_or(0, |deleter| deleter as usize);
        let of_dlx: unsafe extern "C" fn(*mut c_void) = replaced::delete::<M>;
        let is_replaced = deleter == of_dlx as usize;
        let first = is_replaced.then(|| first_deleter(self.0.addr().get()));
        Maker {
            deleter: first.flatten().unwrap_or(deleter),
            context: context.cast_const().cast(),
            size: self.0.addr().get().saturating_sub(context.addr()),
        }
    }

    /// The owner, if this is an export of dlx's with one of this type.
    pub(crate) fn owner<O: Send + Sync + 'static>(&self) -> Option<&O> {
        let own: unsafe extern "C" fn(*mut M) = delete::<M, O>;
        if self.maker().deleter != own as usize {
            return None;
        }
        // SAFETY: only `export` installs this deleter, on the start of such an allocation, which lives as long as the
        // tensor that we own (S4). The compiler may give equal functions one address: they drop equal owners.
        let block = unsafe { self.0.cast::<Export<M, O>>().as_ref() };
        Some(&block.owner)
    }

    /// The flags of an export of this tensor, which has its version if DLPack 1.3 does not define all that it is.
    #[inline(always)]
    pub(crate) fn versioned(&self, flags: u64) -> u64 {
        if !is_beyond(flags) {
            return flags;
        }
        // SAFETY: as in `read`.
        beyond(flags, unsafe { M::minor(self.0) })
    }

    /// Calls the deleter of a tensor of dlx's, which need not be counted as a link of a chain.
    pub(crate) fn delete(self) {
        ManuallyDrop::new(self).call_deleter();
    }

    /// Drops it in a release that has no exception set and reports what the deleter sets (`quietly`).
    #[inline(always)]
    pub(crate) fn let_go(self) {
        nested(self, |this| this.call_deleter());
    }

    /// The only call of the deleter.
    #[inline(always)]
    fn call_deleter(&self) {
        if let Some(deleter) = self.deleter() {
            // SAFETY: we own the tensor and never access it again (S3).
            unsafe { deleter(self.0.as_ptr()) };
        }
    }
}

impl<M: ManagedTensor> Drop for Managed<M> {
    // Apart, as the usual releases go by `let_go`.
    #[inline(never)]
    fn drop(&mut self) {
        nested(Self(self.0), |this| {
            quietly_anywhere(|| this.call_deleter())
        });
    }
}

#[cfg(test)]
mod tests;
