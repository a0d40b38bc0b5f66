//! Descriptors that arrive beside bytes of a Unix socket.

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Words for one descriptor, with the head before it; the kernel closes those that find no room.
const ROOM: usize = 4;

/// Receives at most `length` bytes and the descriptors beside them, without waiting; and whether some had no room.
pub(super) fn received(socket: RawFd, length: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>, bool)> {
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
    Ok((
        bytes,
        files(&message),
        message.msg_flags & libc::MSG_CTRUNC != 0,
    ))
}

/// The descriptors of a message that the kernel has filled, each owned at once.
fn files(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut files = Vec::new();
    // SAFETY: arithmetic.
    let head = unsafe { libc::CMSG_LEN(0) } as usize;
    // SAFETY: `recvmsg` has filled the message.
    let mut part = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !part.is_null() {
        // SAFETY: the macros return headers within the room of the message, whose words are aligned as headers are.
        let header = unsafe { part.read() };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(part) }.cast::<RawFd>();
            let size = (header.cmsg_len as usize).saturating_sub(head);
            for index in 0..size / size_of::<RawFd>() {
                // SAFETY: the kernel has written as many numbers.
                let number = unsafe { data.wrapping_add(index).read_unaligned() };
                // SAFETY: they are new descriptors of this process, and each is read once (S30).
                files.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
        // SAFETY: a header of this message.
        part = unsafe { libc::CMSG_NXTHDR(message, part) };
    }
    files
}
