#pragma once

// How torch.Tensor.__dlpack_c_exchange_api__ exports tensors.

#include <ATen/DLConvertor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils.h>

namespace torch::utils {

// Refuses what a DLTensor cannot carry, in the order of Tensor.__dlpack__.
//
// Who reads the table is compiled, and hands the address to a kernel: nothing
// between here and there looks at the tensor. So also refused is a tensor with
// elements but without memory, whose address is its offset from NULL. But the
// kernel may be what a torch.autograd.Function calls, or run on the parameters
// of a model under no_grad: where operators record nothing, nothing is lost.
inline void check_dlpack_export(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  TORCH_CHECK_BUFFER(
      !impl->requires_grad() || !at::GradMode::is_enabled(),
      "Can't export tensors that require gradient, use tensor.detach()");
  // One test of the keys, for what no plain tensor has.
  constexpr c10::DispatchKeySet unusual(
      {c10::DispatchKey::Conjugate,
       c10::DispatchKey::Negative,
       c10::DispatchKey::NestedTensor});
  if (C10_UNLIKELY(impl->key_set().has_any(unusual))) {
    TORCH_CHECK_BUFFER(
        !impl->is_conj(),
        "Can't export tensors with the conjugate bit set, use tensor.resolve_conj()");
    TORCH_CHECK_BUFFER(
        !impl->is_neg(),
        "Can't export tensors with the negative bit set, use tensor.resolve_neg()");
    TORCH_CHECK_BUFFER(!impl->is_nested(), "Can't export nested tensors");
  }
  TORCH_CHECK_BUFFER(
      impl->layout() == at::kStrided,
      "Can't export tensors with layout other than torch.strided");
  // Asking the Tensor would materialize a copy on write, and raise an error of
  // another type for a FakeTensor.
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  TORCH_CHECK_BUFFER(storage, "Can't export tensors without storage");
  TORCH_CHECK_BUFFER(
      storage->_mutable_data_ptr_no_checks().get() ||
          (!impl->has_symbolic_sizes_strides() && impl->numel() == 0),
      "Can't export tensors without memory");
}

// The tensor behind a Python object, which keeps it alive.
inline const at::Tensor& tensor_for_dlpack_export(void* py_obj) {
  PyObject* obj = static_cast<PyObject*>(py_obj);
  // What claims to be an instance, as a mock does, has no tensor.
  TORCH_CHECK_TYPE(
      PyObject_TypeCheck(
          obj, reinterpret_cast<PyTypeObject*>(THPVariableClass)),
      "expected a torch.Tensor, but got ",
      THPUtils_typename(obj));
  const at::Tensor& tensor = THPVariable_Unpack(obj);
  check_dlpack_export(tensor);
  return tensor;
}

template <bool read_only>
int dltensor_from_py_object_no_sync(void* py_obj, DLTensor* out) {
  try {
    at::toDLPackNonOwning(tensor_for_dlpack_export(py_obj), out, read_only);
    return 0;
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
    return -1;
  }
}

template <bool read_only>
int managed_tensor_from_py_object_no_sync(
    void* py_obj,
    DLManagedTensorVersioned** out) {
  try {
    const at::Tensor& tensor = tensor_for_dlpack_export(py_obj);
    *out = read_only ? at::toDLPackVersionedReadOnly(tensor)
                     : at::toDLPackVersioned(tensor);
    return 0;
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
    return -1;
  }
}

} // namespace torch::utils
