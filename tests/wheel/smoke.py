"""What an installed dlx does with nothing but the standard library beside it."""

import array
import ctypes
import sys

import dlx

assert not {"numpy", "torch", "enum"} & set(sys.modules), "imported too much"

values = array.array("f", range(6))
pointer, _ = values.buffer_info()
tensor = dlx.from_pointer(pointer, (2, 3), "float32", owner=values)
assert repr(tensor) == "dlx.Tensor(float32[2, 3], cpu)"
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
assert tensor.__dlpack_device__() == (dlx.DeviceType.CPU, 0)

# It imports enum.
from importlib import metadata, util  # noqa: E402

# What pip installs may have another name than the module.
[name] = metadata.packages_distributions()["dlx"]
[plugin] = metadata.distribution(name).entry_points.select(group="pytest11")
assert plugin.value == "dlx_pytest"
assert util.find_spec(plugin.value), "the plugin of pytest is not in the wheel"
