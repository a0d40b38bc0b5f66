"""What an installed dlx does with nothing but the standard library beside it."""

import array
import ctypes
import sys

import dlx

assert not {"numpy", "torch", "enum"} & set(sys.modules), "imported too much"

values = array.array("f", range(6))
pointer, _ = values.buffer_info()
tensor = dlx.from_pointer(pointer, (2, 3), "float32", owner=values)
assert (
    repr(tensor) == "dlx.Tensor(float32[2, 3], cpu, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])"
)
elements: object = memoryview(tensor).tolist()
assert elements == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]

again = dlx.from_dlpack(tensor.__dlpack__(max_version=(1, 0)))
assert (again.shape, again.strides, again.data_ptr) == ((2, 3), (3, 1), pointer)
copied = dlx.from_dlpack(tensor, copy=True)
assert copied.is_copied
assert copied.data_ptr % 256 == 0
assert memoryview(copied) == memoryview(tensor)

get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype = ctypes.c_void_p
get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
assert get_pointer(dlx.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")


class Stored(dlx.ExchangeMixin, exchange="tensor"):
    """A class with a table."""

    def __init__(self, tensor: dlx.Tensor) -> None:
        """Keep a tensor."""
        self.tensor = tensor


def call(cls: type[Stored], index: int, *arguments: int | None) -> None:
    """Call a function of a table, after its version and the address of an older one."""
    table = get_pointer(cls.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    address = ctypes.c_void_p.from_address(table + 16 + 8 * index).value or 0
    types = [ctypes.c_void_p] * len(arguments)
    assert ctypes.PYFUNCTYPE(ctypes.c_int, *types)(address)(*arguments) == 0


# Each class has functions of its own, in code that differs by processor.
give_back = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))
for cls in [type("Stored", (Stored,), {}) for _ in range(40)]:
    stored = cls(tensor)
    lent = ctypes.create_string_buffer(48)
    out, given = ctypes.c_void_p(1), ctypes.py_object()
    call(cls, 4, 1, 0, ctypes.addressof(out))
    assert out.value is None
    call(cls, 3, id(stored), ctypes.addressof(lent))
    assert ctypes.c_void_p.from_buffer(lent).value == pointer
    call(cls, 1, id(stored), ctypes.addressof(out))
    call(cls, 2, out.value, ctypes.addressof(given))
    assert (type(given.value), given.value.tensor.data_ptr) == (cls, pointer)
    give_back(given.value)
    call(cls, 0, ctypes.addressof(lent), ctypes.addressof(out), None, None)
    call(cls, 2, out.value, ctypes.addressof(given))
    assert (type(given.value), given.value.tensor.shape) == (cls, (2, 3))
    assert given.value.tensor.data_ptr != pointer
    give_back(given.value)

assert tensor.__dlpack_device__() == (dlx.DeviceType.CPU, 0)
