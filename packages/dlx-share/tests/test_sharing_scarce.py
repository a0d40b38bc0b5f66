"""Sharing where the system has no `/proc`, no descriptor left, or no room."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.python_process import run_python
from support.shared_memory import BEGIN

REFUSES = """
def refuses(words, body):
    try:
        made = body()
    except BufferError as error:
        assert words in str(error), error
    else:
        raise AssertionError(made)
"""
WITHOUT_PROC = """
x = np.arange(3)
h = dlx.share(x)
assert h.is_copied and dlx.attach(h).tolist() == [0, 1, 2]
y = dlx.empty(3, "int8", shared=True)
assert dlx.attach(dlx.share(y, copy=False)).tolist() == [0, 0, 0]
for body in (
    lambda: bytes(h),
    lambda: dlx.share(x, readonly=True),
    lambda: dlx.share(x, name="without-proc"),
    lambda: dlx.attach(data),
    lambda: dlx.share(np.memmap(sys.argv[1], "u1", "r"), copy=False),
):
    refuses("proc", body)
one, other = socket.socketpair()
refuses("proc", lambda: h.send(one))
"""


def test_without_proc_memory_is_copied_and_the_rest_says_what_is_missing() -> None:
    """README.md, What happens when: in a container that does not mount it."""
    apart = ["unshare", "--mount", "sh", "-c"]
    command = 'umount -l /proc && exec "$0" "$@"'
    if subprocess.run([*apart, command, "true"], capture_output=True).returncode:
        pytest.skip("only root can unmount /proc")
    prepare = f"""{BEGIN}{REFUSES}
import subprocess
data = bytes(dlx.share(np.arange(3)))
code = {BEGIN + REFUSES!r} + f"data = {{data!r}}\\n" + {WITHOUT_PROC!r}
command = {[*apart, command, sys.executable, "-c"]!r}
ran = subprocess.run([*command, code, __import__("dlx").__file__], capture_output=True)
assert not ran.returncode, ran.stderr.decode()
"""
    assert run_python(prepare) == (0, "", "")


WITHOUT_DESCRIPTORS = """
import resource
x = np.ones(5)
h = dlx.share(x)
data, pickled = bytes(h), pickle.dumps(h)
y = dlx.empty(3, "int8", shared=True)
one, other = socket.socketpair()
dlx.attach(dlx.share(x, name=f"warm-{os.getpid()}"))
dlx.attach(bytes(h))
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (32, most))
try:
    while True:
        held.append(os.dup(1))
except OSError:
    pass
for body in (
    lambda: dlx.share(x),
    lambda: dlx.share(x, copy=True, readonly=True),
    lambda: dlx.share(x, name="none-left"),
    lambda: dlx.share(y),
    lambda: dlx.empty(3, "int8", shared=True),
    lambda: dlx.attach(data),
    lambda: dlx.attach(pickle.loads(pickled)),
    lambda: Handle(data),
    lambda: h.send(one),
):
    refuses("ulimit -n", body)
assert dlx.attach(h).tolist() == [1] * 5  # It has its mapping, or a descriptor.
os.close(held.pop())
assert dlx.attach(dlx.share(x)).tolist() == [1] * 5
"""


def test_without_descriptors_each_call_says_so_and_goes_on_afterwards() -> None:
    """README.md, What happens when: a `BufferError`, with what helps."""
    code = BEGIN + REFUSES + WITHOUT_DESCRIPTORS
    assert run_python(code) == (0, "", "")


def test_memory_beyond_a_limit_of_file_sizes_is_a_buffer_error() -> None:
    """README.md, What happens when: nothing is left of it."""
    code = f"""{BEGIN}{REFUSES}
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
dlx.attach(dlx.share(np.ones(3)))
before = os.listdir("/proc/self/fd")
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most))
refuses("cannot be shared", lambda: dlx.share(np.ones(1 << 14)))
refuses("segment", lambda: dlx.empty(1 << 17, "int8", shared=True))
assert os.listdir("/proc/self/fd") == before
"""
    assert run_python(code) == (0, "", "")
