"""Fake producers whose memory is on more devices than one, and those of oneAPI."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import dlx

from support.fake_producers import Producer

CPU, CUDA, OPENCL, ONEAPI = (1, 0), (2, 0), (4, 0), (14, 0)


def aliases(tensor: dlx.Tensor) -> tuple[str, ...]:
    """Give `Tensor.device_aliases` as names."""
    return tuple(map(str, tensor.device_aliases))


def names(tensor: dlx.Tensor) -> tuple[str, tuple[str, ...]]:
    """Give the names of all devices that a tensor is on."""
    return str(tensor.device), aliases(tensor)


@dataclass(eq=False, kw_only=True)
class TwoNames(Producer):
    """A producer of oneAPI that gives the same memory as each device of `aliases`.

    Asked for any other device it raises `refusal`.
    """

    device: tuple[int, int] = ONEAPI
    aliases: Any = (CUDA,)
    """What `__dlpack_device_aliases__` returns, called if it is a function."""
    refusal: BaseException = field(default_factory=lambda: BufferError("not there"))
    gives: dict[str, Any] = field(default_factory=dict)
    """Fields of the producer that is exported under another name."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export as it is, or under another name."""
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
        """Give the other names."""
        self.calls.append(("__dlpack_device_aliases__", {}))
        return self.aliases() if callable(self.aliases) else self.aliases


class Queue:
    """What a `dpctl.SyclQueue` is to dlx."""

    def __init__(self) -> None:
        """Start with nothing waited for."""
        self.waited = 0

    def wait(self) -> None:
        """Note the wait."""
        self.waited += 1


@dataclass(eq=False, kw_only=True)
class Usm(Producer):
    """An array as dpnp makes them: copies alone get to the CPU, queues are streams."""

    device: tuple[int, int] = ONEAPI
    usm_type: Any = "shared"
    sycl_queue: Any = field(default_factory=Queue)
    copies: bool = True
    """Whether it gives copies on the CPU."""

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
