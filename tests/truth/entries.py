"""Every entry point of dlx that takes ``x``, as the text of an expression."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from .libraries import FOUND

TARGETS = {
    "np": "np.ndarray",
    "torch": "torch.Tensor",
    "jax": "jax.Array",
    "tf": "tf.Tensor",
    "mx": "mx.array",
    "paddle": "paddle.Tensor",
    "tvm_ffi": "tvm_ffi.Tensor",
    "xp": "xp",
    "pa": "pa.Array",
    "dlx": "dlx.Tensor",
}
"""Targets of `dlx.convert`, by the name of the library that each needs."""


FORWARDS = ("Forward(x)", "Old(x)", "Proxy(x)", "x.__dlpack__", "grown(")
"""Parts of the entries whose object forwards another object's protocol."""


class Entry(NamedTuple):
    """One entry point, and what it promises."""

    text: str
    copy: bool | None = None
    """Whether it must be a copy (True), must share (False), or may be either."""
    writes: bool = False
    """Whether it asks to write; protected memory must then be refused."""
    lends: bool = False
    """Whether the consumer is one that ignores READ_ONLY."""
    needs: tuple[str, ...] = ()
    to: str = ""
    """The class that the result must have."""
    device: str = ""
    """The device that the result must be on; "" is where ``x`` is."""

    @property
    def lends_gradients(self) -> bool:
        """Whether the tensor goes to a kernel, which records no gradients."""
        return self.text.startswith(("dlx.borrow", "launched"))

    @property
    def is_written_to(self) -> bool:
        """Whether ``x`` is given to something that writes to it."""
        return self.writes or self.text.startswith("out_seen_by")

    @property
    def takes_all_for_writable(self) -> bool:
        """Whether a library is involved that writes unless READ_ONLY is set."""
        return any(name in self.text for name in ("torch", "paddle", "tvm", "echo"))

    @property
    def keeps_device(self) -> bool:
        """Whether a result of the library of ``x`` must be where ``x`` is."""
        direct = self.text.startswith(("dlx.convert(x, jax", "dlx.convert_tree"))
        return direct and "device=" not in self.text

    @property
    def forwards(self) -> bool:
        """Whether dlx sees only what the library's own ``__dlpack__`` returns."""
        return any(way in self.text for way in FORWARDS)

    @property
    def ends_elsewhere(self) -> bool:
        """Whether the first or the last call is a function of a library."""
        return "x.__dlpack__" in self.text or not self.text.startswith(
            ("dlx.", "bridge", "seen", "out", "memoryview", "launched", "grown")
        )


def _imports() -> list[Entry]:
    tensor = "dlx.from_dlpack(x)"
    return [
        Entry(tensor),
        Entry("dlx.from_dlpack(x, copy=True)", True),
        Entry("dlx.from_dlpack(x, copy=False)", False),
        Entry("dlx.from_dlpack(x, device='cpu')"),
        Entry("dlx.from_dlpack(x, device=(1, 0), copy=True)", True),
        Entry(f"{tensor}.numpy()"),
        Entry(f"{tensor}.to(copy=True)", True),
        Entry(f"memoryview({tensor})"),
        Entry(f"np.asarray({tensor})"),
        Entry(f"np.from_dlpack({tensor})"),
        Entry(f"np.from_dlpack({tensor}, copy=True)", True),
        Entry(f"dlx.from_dlpack({tensor}.__dlpack__())"),
        Entry(f"dlx.from_dlpack({tensor}.__dlpack__(max_version=(1, 3)))"),
        Entry(f"dlx.from_dlpack({tensor}.__array_interface__ and {tensor})"),
        Entry(f"torch.from_dlpack({tensor})", lends=True, needs=("torch",)),
        Entry(f"jnp.from_dlpack({tensor})", needs=("jax",)),
        Entry(f"xp.from_dlpack({tensor})", needs=("xp",)),
        Entry(f"tvm_ffi.from_dlpack({tensor})", lends=True, needs=("tvm_ffi",)),
        Entry(f"echo({tensor})", lends=True, needs=("tvm_ffi",)),
        Entry("dlx.from_dlpack(x.__dlpack__())"),
        Entry("dlx.from_dlpack(x.__dlpack__(max_version=(1, 3)))"),
        Entry("dlx.borrow(x)"),
        Entry("dlx.borrow(out=x)", False, writes=True),
        Entry("dlx.borrow(out=dlx.from_dlpack(x))", writes=True),
        Entry("launched(x)", True),
        Entry("launched(x, out=0)", True, writes=True),
        Entry("launched(dlx.from_dlpack(x), out=0)", True, writes=True),
        Entry("dlx.inspect(x) and dlx.from_dlpack(x)"),
    ]


def _conversions() -> list[Entry]:
    found = []
    for name, to in TARGETS.items():
        needs = (name,)
        found += [
            Entry(f"dlx.convert(x, {to})", needs=needs, to=to),
            Entry(f"dlx.convert(x, {to}, copy=True)", True, needs=needs, to=to),
            Entry(f"dlx.convert(x, {to}, copy=False)", False, needs=needs, to=to),
            Entry(f"dlx.convert(x, {to}, device='cpu')", needs=needs, to=to),
            Entry(f"dlx.convert_tree([(x, 1)], {to})[0][0]", needs=needs, to=to),
            Entry(f"grown(lambda tree: dlx.convert_tree(tree, {to}), x)", needs=needs),
            Entry(
                f"grown(lambda tree: dlx.convert_tree(tree, {to}), x, list)",
                needs=needs,
            ),
            Entry(
                f"dlx.convert_tree({{'a': x}}, {to}, copy=True)['a']",
                True,
                needs=needs,
            ),
            Entry(f"seen_by(bridge({to}), x)", needs=needs),
            Entry(f"bridge({to})(x)", needs=needs),
            Entry(f"bridge({to})([x])[0]", needs=needs),
            Entry(f"out_seen_by({to}, x)", False, needs=needs),
            Entry(f"dlx.convert(Held(x), {to})", needs=needs),
            Entry(f"dlx.convert(Given(x), {to})", needs=needs),
            Entry(f"dlx.convert(dlx.from_dlpack(x), {to})", needs=needs),
            Entry(f"dlx.convert(Forward(x), {to})", needs=needs),
        ]
    for device in ("jax.devices()[-1]", "jax.devices()[0]"):
        for ask in ("", ", copy=True"):
            text = f"dlx.convert(x, jax.Array, device={device}{ask})"
            to = "jax.Array"
            made = Entry(text, True if ask else None, needs=("jax",), to=to)
            found.append(made._replace(device=device))
    for name, between in TARGETS.items():
        for last, to in TARGETS.items():
            if name != last:
                text = f"dlx.convert(dlx.convert(x, {between}), {to})"
                found.append(Entry(text, needs=(name, last)))
    return found


def _classes() -> list[Entry]:
    found = []
    for kind in ("Held", "Given"):
        made = f"{kind}(x)"
        found += [
            Entry(f"dlx.from_dlpack({made})"),
            Entry(f"dlx.from_dlpack({made}, copy=True)", True),
            Entry(f"dlx.from_dlpack({made}.__dlpack__(max_version=(1, 1)))"),
            Entry(f"{kind}.from_dlpack(x).data"),
            Entry(f"dlx.convert(x, {kind}).data"),
            Entry(f"np.from_dlpack({made})"),
            Entry(f"dlx.from_dlpack({kind}({made}))"),
            Entry(f"xp.from_dlpack({made})", needs=("xp",)),
            Entry(f"torch.from_dlpack({made})", lends=True, needs=("torch",)),
            Entry(f"jnp.from_dlpack({made})", needs=("jax",)),
            Entry(f"tvm_ffi.from_dlpack({made})", lends=True, needs=("tvm_ffi",)),
            Entry(f"echo({made}).data", lends=True, needs=("tvm_ffi",)),
            Entry(f"echo(Held({made})).data", lends=True, needs=("tvm_ffi",)),
        ]
    return [
        *found,
        Entry("np.asarray(Interface(x))"),
        Entry("np.array(Interface(x), copy=True)", True),
        Entry("dlx.from_dlpack(Interface(x))"),
        Entry("dlx.from_dlpack(Forward(x))"),
        Entry("dlx.from_dlpack(Proxy(x))"),
        Entry("dlx.from_dlpack(Old(x))"),
        Entry("dlx.convert(Old(x), np.ndarray)"),
        Entry("dlx.convert(Proxy(x), np.ndarray)"),
    ]


ENTRIES = {each.text: each for each in (*_imports(), *_conversions(), *_classes())}


@cache
def available(modules: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """Return the entries whose libraries are imported, grouped by kind."""
    kinds: dict[str, list[str]] = {}
    for text, entry in ENTRIES.items():
        if all(need == "dlx" or need in modules for need in entry.needs):
            last = entry.needs[-1] if entry.needs else text.partition("(")[0]
            kinds.setdefault(last, []).append(text)
    return tuple(tuple(texts) for texts in kinds.values())


def present() -> frozenset[str]:
    """Return the names by which programs call the imported libraries."""
    return frozenset(FOUND)
