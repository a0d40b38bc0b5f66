"""The Rust extension module of dlx, re-exported by ``dlx``."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from types import EllipsisType, ModuleType
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, CapsuleType

from ._device_type import DeviceType
from ._errors import CopyRefused, CudaError
from .types import SupportsDLPack, SupportsExchangeAPI

__all__ = [
    "CopyRefused",
    "CudaError",
    "DType",
    "Device",
    "Kind",
    "Stream",
    "Tensor",
    "Types",
    "__version__",
    "allocate",
    "array_interface",
    "array_type",
    "borrow",
    "bridged_type",
    "convert",
    "current_stream",
    "current_work_stream",
    "deferred",
    "dlpack",
    "dlpack_device",
    "dlpack_device_aliases",
    "empty",
    "exchange_api",
    "exported",
    "from_buffer",
    "from_dlpack",
    "from_pointer",
    "import_tensor",
    "increment_version",
    "is_tensor",
    "launched_type",
    "map_tree",
    "mixin",
    "only_exports",
    "placed",
    "publish",
    "register",
    "stream",
    "trace_with",
    "type_name",
    "unpublish",
    "written",
]
if sys.platform == "linux":
    __all__ += ["LinkedFile", "MappedFile", "OpenFile", "covering", "end_links"]

__version__: Final[str]

class _DeviceOfTorch(Protocol):
    """A ``torch.device``."""

    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int: ...

class _DeviceOfJax(Protocol):
    """A ``jax.Device``."""

    @property
    def platform(self) -> str: ...
    @property
    def local_hardware_id(self) -> int: ...

class _DeviceOfCupy(Protocol):
    """A ``cupy.cuda.Device``."""

    @property
    def id(self) -> int: ...
    @property
    def pci_bus_id(self) -> str: ...

class _DeviceOfTvm(Protocol):
    """A ``tvm_ffi.Device``."""

    @property
    def index(self) -> int: ...
    def dlpack_device_type(self) -> int: ...

class _SaysDevice(Protocol):
    """An object of any library that says which device it is."""

    def __dlpack_device__(self) -> tuple[int, int]: ...

_DeviceLike: TypeAlias = (
    Device
    | str
    | tuple[int | str, int]
    | _DeviceOfTorch
    | _DeviceOfJax
    | _DeviceOfCupy
    | _SaysDevice
    | _DeviceOfTvm
)
_DTypeLike: TypeAlias = DType | str | tuple[int, int, int] | object
_Index: TypeAlias = SupportsIndex | slice | EllipsisType | None
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_Instance = TypeVar("_Instance", bound=SupportsDLPack | SupportsExchangeAPI)

class _Namespace(Protocol):
    """An array API namespace that is not a module."""

    def __array_namespace_info__(self) -> Any: ...

class _OfTensors(Protocol[_T_co]):
    """A namespace whose arrays are its ``Tensor``, such as ``torch``."""

    @property
    def Tensor(self) -> type[_T_co]: ...

class _OfArrays(Protocol[_T_co]):
    """A namespace whose arrays are its ``Array``, such as ``jax``."""

    @property
    def Array(self) -> type[_T_co]: ...

class _OfNdarrays(Protocol):
    """A namespace whose arrays are NumPy's."""

    @property
    def ndarray(self) -> type[NDArray[Any]]: ...

class _Queue(Protocol):
    """A queue of oneAPI, such as ``dpctl.SyclQueue``."""

    def wait(self) -> object: ...

class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

_StreamLike: TypeAlias = Stream | int | _CudaStream | _Queue | object
_Release: TypeAlias = Literal["auto", "record_stream", "none"]

@final
class Stream:
    """A stream of a device, whose work runs in order."""

    def __new__(
        cls, stream: _StreamLike, /, *, device: _DeviceLike | None = None
    ) -> Stream: ...
    @property
    def handle(self) -> int:
        """The handle as DLPack numbers it."""
    @property
    def device(self) -> Device:
        """The device that the stream belongs to."""
    def synchronize(self) -> None:
        """Block until all work queued on the stream is done."""
    def wait(self, stream: _StreamLike, /) -> None:
        """Make this stream wait for all work queued on ``stream`` so far."""
    def __cuda_stream__(self) -> tuple[int, int]:
        """``(0, handle)``, by which other libraries accept the stream."""
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class stream:
    """``with dlx.stream(s):`` makes ``s`` dlx's current stream of its device."""

    def __new__(
        cls, stream: _StreamLike, /, *, device: _DeviceLike | None = None
    ) -> Self: ...
    def __enter__(self) -> Stream: ...
    def __exit__(self, *_exception: object) -> None: ...

_Lent = TypeVar("_Lent", bound=tuple[object, ...], covariant=True)
_Out: TypeAlias = list[Any] | tuple[Any, ...]
# None if no tensor is on a device with streams, which whoever launches a kernel knows.
_Launch: TypeAlias = Stream | Any

@final
class borrow(Generic[_Lent]):
    """``with dlx.borrow(a, out=c, stream=None) as (ta, tc, s):`` lends to a kernel."""

    @overload
    def __new__(
        cls,
        a: object,
        /,
        *,
        out: None = None,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Tensor, _Launch]]: ...
    @overload
    def __new__(
        cls,
        a: object,
        b: object,
        /,
        *,
        out: None = None,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Tensor, Tensor, _Launch]]: ...
    @overload
    def __new__(
        cls,
        a: object,
        b: object,
        c: object,
        /,
        *,
        out: None = None,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Tensor, Tensor, Tensor, _Launch]]: ...
    # A sequence of unknown length: the names in the ``with`` decide.
    @overload
    def __new__(
        cls,
        *tensors: object,
        out: _Out,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Any, ...]]: ...
    @overload
    def __new__(
        cls,
        *,
        out: object,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Tensor, _Launch]]: ...
    @overload
    def __new__(
        cls,
        a: object,
        /,
        *,
        out: object,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Tensor, Tensor, _Launch]]: ...
    @overload
    def __new__(
        cls,
        a: object,
        b: object,
        /,
        *,
        out: object,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Tensor, Tensor, Tensor, _Launch]]: ...
    @overload
    def __new__(
        cls,
        a: object,
        b: object,
        c: object,
        /,
        *,
        out: object,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Tensor, Tensor, Tensor, Tensor, _Launch]]: ...
    @overload
    def __new__(
        cls,
        *tensors: object,
        out: object | None = None,
        stream: _StreamLike | None = None,
        dtype: _DTypeLike | list[_DTypeLike | None] | None = None,
        contiguous: bool = False,
        align: int | None = None,
    ) -> borrow[tuple[Any, ...]]: ...
    def __enter__(self) -> _Lent: ...
    def __exit__(
        self,
        kind: object = None,
        error: object = None,
        traceback: object = None,
        /,
    ) -> None: ...

def current_stream(device: _DeviceLike, /) -> Stream:
    """Return dlx's current stream of ``device`` in this thread."""

@final
class Device:
    """Where memory lives: a device type and an id."""

    def __new__(cls, spec: _DeviceLike | int, id: int | None = None, /) -> Device: ...
    @property
    def type(self) -> DeviceType:
        """The kind of memory."""
    @property
    def id(self) -> int:
        """Which device of that kind."""
    def __dlpack_device__(self) -> tuple[DeviceType, int]:
        """``(type, id)``, as proposed for the array API."""
    def __int__(self) -> int:
        """The type of the CPU, for ``tvm_ffi.device``; others have an id, too."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class DType:
    """The type of one element: a DLPack code, the bits of a lane, and the lanes."""

    def __new__(cls, spec: _DTypeLike, /) -> DType: ...
    @property
    def code(self) -> int:
        """``DLDataTypeCode``: 0 int, 1 uint, 2 float, ... up to 17, and later ones."""
    @property
    def bits(self) -> int:
        """Bits of one lane; for complex types, of both parts together."""
    @property
    def lanes(self) -> int:
        """Values in one element; 1 unless the type is a vector."""
    @property
    def itemsize(self) -> int:
        """Bytes of one element, rounded up for sub-byte types."""
    @property
    def name(self) -> str:
        """The name, equal to ``str()``."""
    @property
    def __numpy_dtype__(self) -> np.dtype[Any]: ...
    def __dlpack_data_type__(self) -> tuple[int, int, int]:
        """``(code, bits, lanes)``, as proposed for the array API."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class Tensor(Buffer):
    """A fixed, strided description of memory that it keeps alive."""

    __dlpack_c_exchange_api__: ClassVar[CapsuleType]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension, in elements."""
    @property
    def strides(self) -> tuple[int, ...]:
        """Stride of each dimension, in elements; never None."""
    @property
    def ndim(self) -> int:
        """Number of dimensions."""
    @property
    def size(self) -> int:
        """Number of elements."""
    @property
    def nbytes(self) -> int:
        """Bytes of the elements alone."""
    @property
    def itemsize(self) -> int:
        """Bytes of one element, rounded up for sub-byte types."""
    @property
    def dtype(self) -> DType:
        """Type of one element."""
    @property
    def device(self) -> Device:
        """Device that the memory is on."""
    @property
    def device_aliases(self) -> tuple[Device, ...]:
        """Further devices that can address the memory, accepted as ``device=``."""
    @property
    def data_ptr(self) -> int:
        """Address of the first element; 0 if there are no elements."""
    @property
    def readonly(self) -> bool:
        """Whether the memory must not be written (READ_ONLY)."""
    @property
    def is_copied(self) -> bool:
        """Whether the memory is a copy made for this tensor (IS_COPIED)."""
    @property
    def is_padded(self) -> bool:
        """Whether elements of less than a byte take one each."""
    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are row-major without gaps."""
    @property
    def span(self) -> tuple[int, int]:
        """Address and length of the smallest run of bytes that holds all elements."""
    def raw(self) -> memoryview:
        """Return the bytes of `span` as a ``memoryview`` that shares the memory."""
    @property
    def stream(self) -> Stream | None:
        """The stream that the elements are used or become ready on, or None."""
    def use(
        self, *, stream: _StreamLike | None = None
    ) -> AbstractContextManager[Tensor]:
        """Use the tensor on another stream, in a ``with`` block."""
    def synchronize(self, *, stream: _StreamLike | None = None) -> None:
        """Block until the elements are ready and their stream's work is done."""
    def numpy(self) -> NDArray[Any]:
        """Return a NumPy array that shares the memory."""
    def to(
        self, *, device: _DeviceLike | None = None, copy: bool | None = None
    ) -> Tensor:
        """Return the tensor on ``device``, or a copy if ``copy=True``."""
    def __array__(
        self, dtype: Any | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        """Return a NumPy array that shares the memory, or a copy on request."""
    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
    def tobytes(self) -> bytes:
        """Return the bytes of the elements in row-major order."""
    def __reduce_ex__(self, protocol: SupportsIndex, /) -> tuple[Any, ...]: ...
    def __copy__(self) -> Tensor: ...
    def __deepcopy__(self, memo: Any, /) -> Tensor: ...
    def __len__(self, /) -> int: ...
    def __getitem__(self, index: _Index | tuple[_Index, ...], /) -> Tensor:
        """Elements chosen by ints, slices, ``None`` and ``...``, not copied."""
    def __iter__(self, /) -> Iterator[Tensor]: ...
    def __contains__(self, value: object, /) -> NoReturn: ...
    def __eq__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any: ...
    def __hash__(self, /) -> int: ...
    def __bool__(self) -> bool: ...
    def __index__(self) -> int: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __dlpack__(
        self,
        *,
        stream: _StreamLike | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """Export a capsule with its own managed tensor over the same memory."""
    def __dlpack_device__(self) -> tuple[DeviceType, int]:
        """``(DeviceType, id)``."""
    def __dlpack_device_aliases__(self) -> tuple[tuple[DeviceType, int], ...]:
        """`device_aliases` as pairs ``(DeviceType, id)``."""
    @property
    def __numpy_dtype__(self) -> np.dtype[Any]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3, for memory on the CPU."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3, for memory on CUDA devices."""
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...
        def __release_buffer__(self, buffer: memoryview, /) -> None: ...

def from_dlpack(
    x: object,
    /,
    *,
    device: _DeviceLike | None = None,
    copy: bool | None = None,
    stream: _StreamLike | None = None,
    release: _Release = "auto",
) -> Tensor:
    """Import ``x`` as a `Tensor` that shares its memory."""

def from_buffer(
    buffer: Buffer | NDArray[Any],  # which is a Buffer from Python 3.12 on
    shape: Sequence[int],
    dtype: _DTypeLike,
    *,
    strides: Sequence[int] | None = None,
    offset: SupportsIndex | None = None,
    copy: bool | None = None,
    readonly: bool = False,
    padded: bool = False,
) -> Tensor:
    """Make a `Tensor` over the bytes of ``buffer``, which it holds."""

def from_pointer(
    ptr: SupportsIndex,
    shape: Sequence[int],
    dtype: _DTypeLike,
    *,
    device: _DeviceLike | None = None,
    strides: Sequence[int] | None = None,
    owner: object | None = None,
    readonly: bool = False,
    stream: _StreamLike | None = None,
) -> Tensor:
    """Make a `Tensor` over memory that dlx does not own."""

# A namespace comes before a class: Pyright takes a module for a ``type``, too. Of one
# that is only known to be a module, the first says ``Any``.
@overload
def convert(
    x: object,
    /,
    to: _OfTensors[_T] | _OfArrays[_T],
    *,
    device: _DeviceLike | None = None,
    copy: bool | None = None,
    dtype: _DTypeLike | Mapping[Any, _DTypeLike] | None = None,
    detach: bool = False,
    share_readonly: bool = False,
) -> _T:
    """Convert ``x`` to a tensor of another library, sharing the memory if possible."""

@overload
def convert(
    x: object,
    /,
    to: NDArray[Any] | _OfNdarrays,
    *,
    device: _DeviceLike | None = None,
    copy: bool | None = None,
    dtype: _DTypeLike | Mapping[Any, _DTypeLike] | None = None,
    detach: bool = False,
    share_readonly: bool = False,
) -> NDArray[Any]: ...
@overload
def convert(
    x: object,
    /,
    to: ModuleType | _Namespace | str,
    *,
    device: _DeviceLike | None = None,
    copy: bool | None = None,
    dtype: _DTypeLike | Mapping[Any, _DTypeLike] | None = None,
    detach: bool = False,
    share_readonly: bool = False,
) -> Any: ...
@overload
def convert(
    x: object,
    /,
    to: type[_T],
    *,
    device: _DeviceLike | None = None,
    copy: bool | None = None,
    dtype: _DTypeLike | Mapping[Any, _DTypeLike] | None = None,
    detach: bool = False,
    share_readonly: bool = False,
) -> _T: ...
@overload
def convert(
    x: object,
    /,
    to: _Instance,
    *,
    device: _DeviceLike | None = None,
    copy: bool | None = None,
    dtype: _DTypeLike | Mapping[Any, _DTypeLike] | None = None,
    detach: bool = False,
    share_readonly: bool = False,
) -> _Instance: ...
@overload
def empty(
    shape: SupportsIndex | Sequence[int],
    dtype: _DTypeLike,
    *,
    device: _DeviceLike | None = None,
    like: None = None,
    shared: bool = False,
) -> Tensor:
    """Make a tensor with uninitialized elements."""

@overload
def empty(
    shape: SupportsIndex | Sequence[int],
    dtype: _DTypeLike,
    *,
    device: _DeviceLike | None = None,
    like: ModuleType | str,
    shared: bool = False,
) -> Any: ...
@overload
def empty(
    shape: SupportsIndex | Sequence[int],
    dtype: _DTypeLike,
    *,
    device: _DeviceLike | None = None,
    like: type[_T],
    shared: bool = False,
) -> _T: ...
@overload
def empty(
    shape: SupportsIndex | Sequence[int],
    dtype: _DTypeLike,
    *,
    device: _DeviceLike | None = None,
    like: NDArray[Any],
    shared: bool = False,
) -> NDArray[Any]: ...
@overload
def empty(
    shape: SupportsIndex | Sequence[int],
    dtype: _DTypeLike,
    *,
    device: _DeviceLike | None = None,
    like: _T,
    shared: bool = False,
) -> _T: ...
def deferred() -> int:
    """Return the number of tensors whose memory waits for a stream.

    What has passed is released now.
    """

def is_tensor(x: object, /) -> bool:
    """Whether ``x`` is a tensor of some library."""

def map_tree(
    tree: object,
    leaf: Callable[..., Any],
    more: tuple[Any, ...],
    other: Callable[[Any], Any] | None,
    odd: tuple[
        Callable[[Any], list[Any] | None],
        Callable[[Any, dict[int, Any], bool, list[Any] | None], Any],
        Callable[[Any, list[Any]], bool],
    ],
    rebuilt: list[Any] | None,
    way: list[tuple[Any, int, Any]],
    /,
) -> Any:
    """Apply ``leaf`` to the tensors in ``tree``, and ``other`` to the other leaves."""

def exchange_api(cls: type, /) -> CapsuleType:
    """Return the capsule with the exchange table of a type."""

def publish(cls: type, /) -> None:
    """Set the table that dlx provides for ``cls`` on the class."""

def unpublish(cls: type, /) -> None:
    """Remove the table that `publish` set on ``cls``."""

# What owns shared memory, for `dlx_share.sharing`.

if sys.platform == "linux":
    @final
    class OpenFile:
        """A file descriptor, closed with this object at the latest."""

        @staticmethod
        def segment(name: str, size: int, data: Buffer | None = None) -> OpenFile:
            """Make a sealed file in memory that holds ``data``, or zeros."""

        @staticmethod
        def open(path: str | PathLike[str], flags: int) -> OpenFile:
            """Open a file by its path."""

        @staticmethod
        def received(socket: int, length: int) -> tuple[bytes, list[OpenFile], bool]:
            """Receive bytes and descriptors, and whether there were more of these."""

        def duplicate(self) -> OpenFile:
            """Return another descriptor of the same open file."""

        def fileno(self) -> int:
            """Return the number; raises ``BufferError`` if it is closed."""

        @property
        def closed(self) -> bool:
            """Whether it is closed."""

        def close(self) -> None:
            """Close the descriptor, once."""

        def __enter__(self) -> Self:
            """Return itself."""

        def __exit__(self, *_raised: object) -> None:
            """Close it."""

    class MappedFile(Buffer):
        """Bytes of a file in the memory of this process, unmapped with this object."""

        def __new__(
            cls, file: OpenFile, size: int, protection: int, flags: int, offset: int
        ) -> Self:
            """Map ``size`` bytes of a file from byte ``offset`` on."""

        @property
        def address(self) -> int:
            """The first address."""

        @property
        def size(self) -> int:
            """How many bytes are mapped."""

        @property
        def is_writable(self) -> bool:
            """Whether one can write to it."""

    @final
    class LinkedFile:
        """A locked file that `link` gives its path, unlinked with this object."""

        def __new__(cls, path: str | PathLike[str], data: bytes) -> Self:
            """Make the file, without a path yet."""

        def link(self) -> bool:
            """Give the file its path; return False if that is in use."""

        def close(self) -> None:
            """Unlink it, and end the lock."""

    def covering(address: int, length: int) -> int | None:
        """Return where the shared mapping of dlx begins that holds these bytes."""

    def end_links() -> None:
        """Unlink the names of this process; in a fork, close those of its parent."""

# The parts of `bridge`.

def increment_version(x: object, lent: Tensor, /) -> None:
    """Tell torch or Paddle that ``x``, if it has their memory, was written to."""

def written(x: object, /) -> tuple[Any, Tensor]:
    """Return ``x`` for writing, or else what is lent of it; and what is lent of it."""

def placed(x: object, /) -> tuple[int, tuple[int, ...], tuple[int, ...], str, str]:
    """Return address, shape, strides (in elements), dtype and device of a tensor."""

@final
class Types:
    """A map from the first 32 types that a function meets to their kinds."""

    def __new__(cls) -> Self: ...
    def get(self, cls: type) -> Any:
        """The kind of ``cls``, or None."""

    def add(self, cls: type, kind: Kind | None) -> None:
        """Add ``cls``, if it is not there and a slot is free."""

class Kind:
    """A tensor type ``to`` that arguments or results are converted to."""

    def __new__(cls, to: type, known: Types, default: object | None) -> Self: ...
    @property
    def to(self) -> type: ...
    @property
    def known(self) -> Types: ...
    def likes(self, x: object) -> bool:
        """Whether the class of ``x`` has a ``__dlx_like__`` of its own."""

def only_exports(x: object, /) -> bool:
    """Whether ``x`` is a tensor of torch that can be exported, and nothing else."""

def bridged_type() -> type[Any]: ...
def launched_type() -> type[Any]: ...
def array_type(namespace: object, /) -> type[Any]:
    """Find the array type of a namespace, such as ``torch`` or ``jax.numpy``.

    Raises ``TypeError`` if it has none.
    """

# Called by the methods of the mixins.

def mixin(class_: type[_T]) -> type[_T]:
    """Return the mixin of this process: the first class passed, with its table."""

def register(class_: type) -> str | None:
    """Assign the mixin or a subclass its table; return a warning if it shares one."""

def dlpack(
    x: object,
    *,
    stream: _StreamLike | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> CapsuleType:
    """Export a capsule of the object that ``x`` exports."""

def exported(x: object) -> Tensor:
    """Return the tensor that ``x`` exports through ``__dlx_export__``."""

def dlpack_device(x: object) -> tuple[DeviceType, int]:
    """``(DeviceType, id)`` of the object that ``x`` exports."""

def dlpack_device_aliases(x: object) -> tuple[tuple[DeviceType, int], ...]:
    """Device aliases of the object that ``x`` exports."""

def import_tensor(cls: type[_T], tensor: Tensor) -> _T:
    """Build an instance of ``cls`` over ``tensor``, through ``__dlx_import__``."""

def current_work_stream(cls: type, device: _DeviceLike) -> int:
    """Return the stream of the library whose tensor ``cls`` exported last."""

def allocate(
    shape: Sequence[int], dtype: DType | str | tuple[int, int, int], device: _DeviceLike
) -> Tensor:
    """Allocate uninitialized memory from dlx."""

def array_interface(tensor: Tensor) -> dict[str, Any]:
    """NumPy's array interface whose ``data`` is a buffer that owns the memory."""

def trace_with(
    hook: Callable[[str, int, object, int, int, int, type | None], object] | None,
    ends: list[tuple[int, int, int]],
) -> None: ...
def type_name(cls: type, /) -> str:
    """The name of ``cls``, with its module if it has one."""
