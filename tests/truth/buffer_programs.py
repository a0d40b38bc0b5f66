"""Programs of Python's own buffers."""

from __future__ import annotations

from random import Random

from .program import Library, one_of

STARTS = (
    "x = bytes(range(1, 13))",
    "x = bytearray(range(1, 13))",
    "x = b''",
    "x = bytearray()",
    "x = array('{code}', range(1, 13))",
    "x = array('{code}')",
    "x = array('u', 'abc')",
    "x = (ctypes.{kind} * 6)(*range(1, 7))",
    "x = (ctypes.{kind} * 3 * 2)((1, 2, 3), (4, 5, 6))",
    "x = (ctypes.{kind} * 0)()",
    "x = (ctypes.c_bool * 3)(1, 0, 1)",
    "x = (ctypes.c_char * 3)(b'a', b'b', b'c')",
    "x = (ctypes.c_wchar * 3)('a', 'b', 'c')",
    "x = (ctypes.c_void_p * 3)(1, 2, 3)",
    "x = (ctypes.c_short.__ctype_be__ * 3)(1, 2, 3)",
    "x = (ctypes.c_double.__ctype_be__ * 3)(1, 2, 3)",
    "x = ctypes.c_double(1.5)",
    "x = ctypes.create_string_buffer(b'abc')",
    "x = type('S', (ctypes.Structure,), {{'_fields_': [('a', ctypes.c_int)]}})(3)",
    "x = (type('S', (ctypes.Structure,), {{'_fields_': [('a', ctypes.c_int)]}}) * 2)()",
    "x = mapped_bytes(12)",
    "x = mapped_bytes(12, False)",
    "x = memoryview(bytes(range(1, 13)))",
    "x = memoryview(bytearray(range(1, 49))).cast('{code}')",
    "x = memoryview(bytearray(range(1, 49))).cast('B').cast('{code}', (2, {columns}))",
    "x = memoryview(np.arange(1, 7.).reshape(2, 3)).toreadonly()",
    "x = memoryview(np.arange(1, 7.).reshape(2, 3).T)",
    "x = memoryview(np.arange(1, 7.).reshape(2, 3)[::-1])",
    "x = memoryview(np.arange(1, 7).astype('>i4'))",
    "x = memoryview(np.arange(1, 7).astype('f2'))",
    "x = memoryview(np.arange(1, 7) * (1 + 2j))",
    "x = memoryview(np.array(1.5))",
    "x = memoryview(np.zeros(3, 'i4,f4'))",
    "x = memoryview(np.zeros(3, 'V4'))",
    "x = memoryview(np.arange(1, 7).astype('f4').view('m8[s]').view('i8'))",
    "x = pa.py_buffer(bytes(range(1, 13)))",
    "x = pa.py_buffer(bytearray(range(1, 13)))",
)
CODES = "dfiIlLqQhHbB"
KINDS = "c_double c_float c_int c_uint8 c_int16 c_int64 c_long c_byte"

STEPS = (
    "x = memoryview(x)",
    "x = memoryview(x).toreadonly()",
    "x = memoryview(x)[1:]",
    "x = memoryview(x)[::2]",
    "x = memoryview(x)[::-1]",
    "x = memoryview(x)[::-3]",
    "x = memoryview(x)[:0]",
    "x = memoryview(x).cast('B')",
    "x = memoryview(x).cast('b')",
    "x = memoryview(x).cast('c')",
    "x = memoryview(x).cast('?')",
    "x = memoryview(x).cast('B')[4:].cast('i')",
    "x = memoryview(x).cast('B')[1:5].cast('i')",
    "x = memoryview(x).cast('B').cast('h')",
    "x = memoryview(x).cast('B').cast('B', (2, len(memoryview(x).cast('B')) // 2))",
    "x = memoryview(x).cast('B').cast('B', (1, 1, len(memoryview(x).cast('B'))))",
    "x = bytes(x)",
    "x = bytearray(x)",
    "x = mapped_bytes(12)",
    "x[0] = 5",
    "x = dlx.from_dlpack(x)",
    "x = np.frombuffer(x, 'u1')",
    "x = copy.copy(x)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    code = r.choice(CODES)
    columns = 24 // {"d": 8, "l": 8, "L": 8, "q": 8, "Q": 8}.get(
        code, {"f": 4, "i": 4, "I": 4, "h": 2, "H": 2}.get(code, 1)
    )
    return r.choice(STARTS).format(
        code=code, kind=r.choice(KINDS.split()), columns=columns
    )


step = one_of(STEPS)
LIBRARY = Library(start, step, ("look(memoryview(x), TEXT)",))
