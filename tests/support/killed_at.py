"""The end of this process at a call of the system, before the kernel does it."""

from __future__ import annotations

import ctypes
import platform
import resource
import struct

# Of x86-64 and of AArch64.
CALLS = {
    "openat": (257, 56),
    "memfd_create": (319, 279),
    "fchmod": (91, 52),
    "ftruncate": (77, 46),
    "pwrite64": (18, 68),
    "fcntl": (72, 25),
    "write": (1, 64),
    "linkat": (265, 37),
    "unlinkat": (263, 35),
    "unlink": (87, 35),
    "readlinkat": (267, 78),
    "readlink": (89, 78),
    "newfstatat": (262, 79),
    "fstat": (5, 80),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "close": (3, 57),
}
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_KILL, _ALLOW = 0x80000000, 0x7FFF0000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2


def kill_at(*names: str) -> None:
    """Have the kernel end this process by ``SIGSYS`` when it makes one of these calls.

    Raises ``OSError`` where a process may not ask for that.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    here = platform.machine() == "aarch64"
    numbers = [CALLS[name][here] for name in names]
    lines = [(_LOAD, 0, 0, 0)]  # the number of the call
    for after, number in enumerate(reversed(numbers)):
        lines.insert(1, (_EQUAL, after + 1, 0, number))
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL)]
    text = b"".join(struct.pack("<HBBI", *line) for line in lines)
    held = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("@HP", len(lines), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, program):
        raise OSError(ctypes.get_errno(), "no filter of system calls")
