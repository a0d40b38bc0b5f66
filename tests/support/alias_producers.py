"""Fake producers whose memory is on several devices, and oneAPI producers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import dlx

from support.fake_producers import Producer

CPU, CUDA, OPENCL, ONEAPI = (1, 0), (2, 0), (4, 0), (14, 0)


def aliases(tensor: dlx.Tensor) -> tuple[str, ...]:
    """Return `Tensor.device_aliases` as names."""
    return tuple(map(str, tensor.device_aliases))


def names(tensor: dlx.Tensor) -> tuple[str, tuple[str, ...]]:
    """Return the names of all devices that a tensor is on."""
    return str(tensor.device), aliases(tensor)


@dataclass(eq=False, kw_only=True)
class TwoNames(Producer):
    """A oneAPI producer that exports the same memory on each device of `aliases`.

    It raises `refusal` if asked for any other device.
    """

    device: tuple[int, int] = ONEAPI
    aliases: Any = (CUDA,)
    """Result of `__dlpack_device_aliases__`; a function is called for it."""
    refusal: BaseException = field(default_factory=lambda: BufferError("not there"))
    gives: dict[str, Any] = field(default_factory=dict)
    """Fields of the producer that is exported under an alias."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export as is, or under an alias."""
        there = keywords.get("dl_device", self.device)
        if there == self.device:
            return super().__dlpack__(**keywords)
        self.calls.append(("__dlpack__", keywords))
        if there not in self.aliases:
            raise self.refusal
        named = Producer(**{"memory": self.memory, "device": there} | self.gives)
        self.exports.append(named)  # type: ignore[arg-type]
        return named.capsule()

    def __dlpack_device_aliases__(self) -> Any:
        """Return the aliases."""
        self.calls.append(("__dlpack_device_aliases__", {}))
        return self.aliases() if callable(self.aliases) else self.aliases


class Queue:
    """The part of a `dpctl.SyclQueue` that dlx uses."""

    def __init__(self) -> None:
        """Start without waits."""
        self.waited = 0

    def wait(self) -> None:
        """Count the wait."""
        self.waited += 1


@dataclass(eq=False, kw_only=True)
class Usm(Producer):
    """An array like dpnp's: only copies reach the CPU, and queues are streams."""

    device: tuple[int, int] = ONEAPI
    usm_type: Any = "shared"
    sycl_queue: Any = field(default_factory=Queue)
    copies: bool = True
    """Whether it makes copies on the CPU."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export as dpnp does."""
        stream, there = keywords.get("stream"), keywords.get("dl_device", self.device)
        if stream is not None and not isinstance(stream, Queue):
            raise TypeError("stream argument type was expected to be Queue")
        if there == self.device:
            return super().__dlpack__(**keywords)
        self.calls.append(("__dlpack__", keywords))
        if there != CPU or not self.copies:
            raise BufferError("targeting `dl_device` is not yet implemented")
        if keywords.get("copy") is False:
            raise BufferError("array cannot be placed there without a copy")
        return Producer(flags=2).capsule()
