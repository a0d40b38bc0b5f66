# Owner(s): ["module: dlpack"]

"""What torch.Tensor.__dlpack_c_exchange_api__ exports, and what it refuses."""

import ctypes
import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.common_utils import (
    run_tests,
    skipIfTorchDynamo,
    TestCase,
)
from torch.utils.dlpack import ReadOnlyTensorWrapper


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    )


FROM_PY_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)


class DLPackExchangeAPI(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("prev_api", ctypes.c_void_p),
        ("managed_tensor_allocator", ctypes.c_void_p),
        ("managed_tensor_from_py_object_no_sync", FROM_PY_OBJECT),
        ("managed_tensor_to_py_object_no_sync", ctypes.c_void_p),
        ("dltensor_from_py_object_no_sync", FROM_PY_OBJECT),
        ("current_work_stream", ctypes.c_void_p),
    )


def exchange_api(cls):
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    capsule = cls.__dlpack_c_exchange_api__
    return DLPackExchangeAPI.from_address(get_pointer(capsule, b"dlpack_exchange_api"))


def described(t):
    return (t.data, t.shape[: t.ndim], t.strides[: t.ndim], t.byte_offset)


def lent(x, cls=torch.Tensor):
    out = DLTensor()
    exchange_api(cls).dltensor_from_py_object_no_sync(x, ctypes.byref(out))
    return described(out)


def exported(x, cls=torch.Tensor):
    out = ctypes.POINTER(DLManagedTensorVersioned)()
    exchange_api(cls).managed_tensor_from_py_object_no_sync(x, ctypes.byref(out))
    found = described(out.contents.dl_tensor), out.contents.flags
    out.contents.deleter(ctypes.addressof(out.contents))
    return found


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


@skipIfTorchDynamo("the functions are compiled")
class TestDLPackExchange(TestCase):
    def refuses(self, x, message, cls=torch.Tensor, error=BufferError):
        for function in (lent, exported):
            with self.assertRaisesRegex(error, message) as raised:
                function(x, cls)
            # Not the frames of C++.
            self.assertNotIn("\n", str(raised.exception))

    def refuses_inside(self, transform, message, *args):
        seen = []

        def look(x):
            seen.append(x)
            self.refuses(x, message)
            return x.sum()

        transform(look)(*args)
        self.assertEqual(len(seen), 1)

    def exports(self, x):
        expected = (x.data_ptr() or None, list(x.shape), list(x.stride()), 0)
        self.assertEqual(lent(x), expected)
        self.assertEqual(exported(x), (expected, 0))

    def test_refuses_a_leaf_that_requires_grad(self):
        self.refuses(torch.ones(3, requires_grad=True), "require gradient")

    def test_refuses_a_parameter_that_requires_grad(self):
        self.refuses(torch.nn.Parameter(torch.ones(3)), "require gradient")

    def test_refuses_a_result_that_requires_grad(self):
        self.refuses(torch.ones(3, requires_grad=True)[1:] * 2, "require gradient")

    def test_refuses_a_view_whose_base_came_to_require_grad(self):
        base = torch.zeros(3)
        view = base[:2]
        base.mul_(torch.ones(3, requires_grad=True))
        self.refuses(view, "require gradient")

    def test_refuses_a_subclass_that_requires_grad(self):
        cls = type("Sub", (torch.Tensor,), {})
        x = torch.ones(3).as_subclass(cls).requires_grad_()
        self.refuses(x, "require gradient")

    def test_refuses_conjugated(self):
        self.refuses(torch.tensor([1 + 2j]).conj(), "conjugate bit")

    def test_refuses_an_adjoint(self):
        self.refuses(torch.tensor([[1 + 2j]]).mH, "conjugate bit")

    def test_refuses_negated(self):
        self.refuses(torch.tensor([1 + 2j]).conj().imag, "negative bit")

    def test_dunder_dlpack_refuses_negated(self):
        x = torch.tensor([1 + 2j]).conj().imag
        for keywords in ({}, {"max_version": (1, 0)}, {"copy": False}):
            with self.assertRaisesRegex(BufferError, "negative bit"):
                x.__dlpack__(**keywords)

    def test_dunder_dlpack_copies_negated(self):
        x = torch.tensor([1 + 2j]).conj().imag
        self.assertEqual(torch.from_dlpack(x.__dlpack__(copy=True)).tolist(), [-2.0])

    def test_refuses_sparse(self):
        self.refuses(torch.eye(2).to_sparse(), "layout other than torch.strided")

    def test_refuses_compressed_sparse(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.eye(2).to_sparse_csr()
        self.refuses(x, "layout other than torch.strided")

    def test_refuses_mkldnn(self):
        self.refuses(torch.ones(3).to_mkldnn(), "layout other than torch.strided")

    def test_refuses_nested(self):
        rows = [torch.ones(2), torch.ones(3)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.nested.nested_tensor(rows, layout=torch.strided)
        self.refuses(x, "nested")

    def test_refuses_jagged(self):
        rows = [torch.ones(2), torch.ones(3)]
        x = torch.nested.nested_tensor(rows, layout=torch.jagged)
        self.refuses(x, "nested|layout")

    def test_refuses_quantized(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8)
        self.refuses(x, "not supported by dlpack")

    def test_refuses_bits(self):
        self.refuses(torch.empty(3, dtype=torch.bits8), "not supported by dlpack")

    def test_refuses_bcomplex32(self):
        x = torch.empty(3, dtype=torch.bcomplex32)
        self.refuses(x, "not supported by dlpack")

    def test_refuses_meta(self):
        self.refuses(torch.empty(3, device="meta"), "memory")

    def test_refuses_meta_without_elements(self):
        self.refuses(torch.empty(0, device="meta"), "meta")

    def test_refuses_fake(self):
        self.refuses(FakeTensorMode().from_tensor(torch.ones(3)), "memory")

    def test_refuses_a_view_of_fake(self):
        self.refuses(FakeTensorMode().from_tensor(torch.ones(3))[1:], "memory")

    def test_refuses_fake_of_symbolic_shape(self):
        x = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(3))
        self.assertIsInstance(x.shape[0], torch.SymInt)
        self.refuses(x, "memory")

    def test_refuses_a_wrapper_subclass(self):
        self.refuses(Wrapper(torch.ones(3)), "memory")

    def test_refuses_functional(self):
        self.refuses(torch._to_functional_tensor(torch.ones(3)), "memory")

    def test_refuses_a_zero_tensor(self):
        self.refuses(torch._efficientzerotensor(3), "memory")

    def test_refuses_freed_memory(self):
        x = torch.ones(3)
        x.untyped_storage().resize_(0)
        self.refuses(x, "memory")

    def test_refuses_a_view_of_freed_memory(self):
        x = torch.ones(3000)
        view = x[2000:]
        x.untyped_storage().resize_(0)
        self.refuses(view, "memory")

    def test_refuses_inside_vmap(self):
        self.refuses_inside(torch.vmap, "storage", torch.ones(2, 3))

    def test_refuses_inside_grad(self):
        self.refuses_inside(torch.func.grad, "require gradient", torch.ones(3))

    def test_refuses_inside_jvp(self):
        def transform(look):
            return lambda x: torch.func.jvp(look, (x,), (x,))

        self.refuses_inside(transform, "storage", torch.ones(3))

    def test_refuses_inside_functionalize(self):
        self.refuses_inside(torch.func.functionalize, "memory", torch.ones(3))

    def test_refuses_what_is_no_tensor(self):
        self.refuses(3, "expected a torch.Tensor, but got int", error=TypeError)

    def test_refuses_what_claims_to_be_a_tensor(self):
        class Claims:
            __class__ = torch.Tensor

        self.refuses(Claims(), "expected a torch.Tensor", error=TypeError)

    def test_read_only_refuses_a_tensor_that_requires_grad(self):
        x = ReadOnlyTensorWrapper(torch.ones(3, requires_grad=True))
        self.refuses(x, "require gradient", ReadOnlyTensorWrapper)

    def test_read_only_refuses_conjugated(self):
        x = ReadOnlyTensorWrapper(torch.tensor([1 + 2j]).conj())
        self.refuses(x, "conjugate bit", ReadOnlyTensorWrapper)

    def test_exports_plain(self):
        for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
            self.exports(torch.ones(2, 3, dtype=dtype))

    def test_exports_views(self):
        x = torch.ones(3, 4)
        for view in (x[1:], x.t(), x[::2, 1:], x[1, 1], x.expand(2, 3, 4)):
            self.exports(view)

    def test_exports_empty(self):
        self.exports(torch.ones(0))
        self.exports(torch.ones(3)[3:])
        self.exports(torch.ones(2, 0, 3))

    def test_exports_detached(self):
        self.exports(torch.ones(3, requires_grad=True).detach())
        self.exports(torch.nn.Parameter(torch.ones(3), requires_grad=False))

    def test_exports_what_requires_grad_while_nothing_is_recorded(self):
        x = torch.nn.Parameter(torch.ones(3))
        with torch.no_grad():
            self.exports(x)
        with torch.inference_mode():
            self.exports(x)

    def test_exports_what_requires_grad_in_the_forward_of_a_function(self):
        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                self.assertTrue(x.requires_grad)
                self.exports(x)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        x = torch.ones(3, requires_grad=True)
        self.assertTrue(Function.apply(x).requires_grad)

    def test_exports_inference(self):
        with torch.inference_mode():
            self.exports(torch.ones(3)[1:])

    def test_exports_a_subclass(self):
        self.exports(torch.ones(3).as_subclass(type("Sub", (torch.Tensor,), {})))

    def test_exports_conjugated_twice(self):
        self.exports(torch.tensor([1 + 2j]).conj().conj())

    def test_exports_read_only_without_a_copy(self):
        clone = torch._lazy_clone(torch.ones(3))
        x = ReadOnlyTensorWrapper(clone)
        self.assertEqual(
            exported(x, ReadOnlyTensorWrapper), (lent(x, ReadOnlyTensorWrapper), 1)
        )
        self.assertTrue(torch._C._is_cow_tensor(clone))


if __name__ == "__main__":
    run_tests()
