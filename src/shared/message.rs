//! A descriptor that arrives beside bytes of a Unix socket.

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// Words for one descriptor, with the head before it; the kernel closes those that find no room.
const ROOM: usize = 4;

/// Receives at most `length` bytes and a descriptor beside them, without waiting; and whether others had no room.
pub(super) fn received(
    socket: RawFd,
    length: usize,
) -> io::Result<(Vec<u8>, Option<OwnedFd>, bool)> {
    let mut bytes = vec![0_u8; length];
    let mut control = [0_usize; ROOM];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: length,
    };
    // SAFETY: a struct of numbers and pointers, where zeros are none.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: arithmetic.
    let room = unsafe { libc::CMSG_LEN(size_of::<c_int>() as c_uint) };
    message.msg_controllen = room as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the message points to the locals above, with their sizes.
    let count = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
    let Ok(count) = usize::try_from(count) else {
        return Err(io::Error::last_os_error());
    };
    bytes.truncate(count);
    let truncated = message.msg_flags & libc::MSG_CTRUNC != 0;
    Ok((bytes, file(&message, room as usize), truncated))
}

/// The descriptor of a message that the kernel has filled, owned at once. `room` is for one, and its head.
fn file(message: &libc::msghdr, room: usize) -> Option<OwnedFd> {
    // SAFETY: `recvmsg` has filled the message.
    let part = NonNull::new(unsafe { libc::CMSG_FIRSTHDR(message) })?;
    // SAFETY: the macro returns a header within the room of the message, whose words are aligned as headers are.
    let header = unsafe { part.read() };
    let kind = (header.cmsg_level, header.cmsg_type);
    if kind != (libc::SOL_SOCKET, libc::SCM_RIGHTS) || (header.cmsg_len as usize) < room {
        return None;
    }
    // SAFETY: as above.
    let data = unsafe { libc::CMSG_DATA(part.as_ptr()) }.cast::<RawFd>();
    // SAFETY: the kernel has written a number there.
    let number = unsafe { data.read_unaligned() };
    // SAFETY: it is a new descriptor of this process, and is read once (S30).
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
