// A function of C++ code that knows tensors by DLPack alone.
//
// `y` is allocated by the class of the argument, through its exchange table, and goes back to Python as an
// instance of that class.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

namespace {

tvm::ffi::Tensor Doubled(tvm::ffi::TensorView x) {
  TVM_FFI_CHECK((x.dtype() == DLDataType{kDLFloat, 32, 1}), TypeError) << "float32 is accepted";
  TVM_FFI_CHECK((x.device().device_type == kDLCPU && x.IsContiguous()), ValueError)
      << "contiguous memory on the CPU is accepted";
  auto y = tvm::ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.shape(), x.dtype(), x.device());
  const auto* from = static_cast<const float*>(x.data_ptr());
  auto* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return y;
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(doubled, Doubled)
