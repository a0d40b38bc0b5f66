/* Prints the layout and the constants of dlpack.h, one `name value` a line; layout.rs
 * prints the same lines of src/abi.rs in the same order. */
#include <dlpack/dlpack.h>
#include <stdio.h>

#define PRINT(name, value) printf("%s %llu\n", name, (unsigned long long)(value))
#define CONSTANT(name) PRINT(#name, name)
#define STRUCT(type)                         \
  PRINT("sizeof(" #type ")", sizeof(type)); \
  PRINT("alignof(" #type ")", _Alignof(type))
#define FIELD(type, field)                                        \
  PRINT("offsetof(" #type "." #field ")", offsetof(type, field)); \
  PRINT("sizeof(" #type "." #field ")", sizeof(((type *)0)->field))

int main(void) {
  STRUCT(DLPackVersion);
  FIELD(DLPackVersion, major);
  FIELD(DLPackVersion, minor);

  STRUCT(DLDevice);
  FIELD(DLDevice, device_type);
  FIELD(DLDevice, device_id);

  STRUCT(DLDataType);
  FIELD(DLDataType, code);
  FIELD(DLDataType, bits);
  FIELD(DLDataType, lanes);

  STRUCT(DLTensor);
  FIELD(DLTensor, data);
  FIELD(DLTensor, device);
  FIELD(DLTensor, ndim);
  FIELD(DLTensor, dtype);
  FIELD(DLTensor, shape);
  FIELD(DLTensor, strides);
  FIELD(DLTensor, byte_offset);

  STRUCT(DLManagedTensor);
  FIELD(DLManagedTensor, dl_tensor);
  FIELD(DLManagedTensor, manager_ctx);
  FIELD(DLManagedTensor, deleter);

  STRUCT(DLManagedTensorVersioned);
  FIELD(DLManagedTensorVersioned, version);
  FIELD(DLManagedTensorVersioned, manager_ctx);
  FIELD(DLManagedTensorVersioned, deleter);
  FIELD(DLManagedTensorVersioned, flags);
  FIELD(DLManagedTensorVersioned, dl_tensor);

  STRUCT(DLPackExchangeAPIHeader);
  FIELD(DLPackExchangeAPIHeader, version);
  FIELD(DLPackExchangeAPIHeader, prev_api);

  STRUCT(DLPackExchangeAPI);
  FIELD(DLPackExchangeAPI, header);
  FIELD(DLPackExchangeAPI, managed_tensor_allocator);
  FIELD(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync);
  FIELD(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync);
  FIELD(DLPackExchangeAPI, dltensor_from_py_object_no_sync);
  FIELD(DLPackExchangeAPI, current_work_stream);

  CONSTANT(DLPACK_MAJOR_VERSION);
  CONSTANT(DLPACK_MINOR_VERSION);

  CONSTANT(DLPACK_FLAG_BITMASK_READ_ONLY);
  CONSTANT(DLPACK_FLAG_BITMASK_IS_COPIED);
  CONSTANT(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);

  CONSTANT(kDLCPU);
  CONSTANT(kDLCUDA);
  CONSTANT(kDLCUDAHost);
  CONSTANT(kDLOpenCL);
  CONSTANT(kDLVulkan);
  CONSTANT(kDLMetal);
  CONSTANT(kDLVPI);
  CONSTANT(kDLROCM);
  CONSTANT(kDLROCMHost);
  CONSTANT(kDLExtDev);
  CONSTANT(kDLCUDAManaged);
  CONSTANT(kDLOneAPI);
  CONSTANT(kDLWebGPU);
  CONSTANT(kDLHexagon);
  CONSTANT(kDLMAIA);
  CONSTANT(kDLTrn);

  CONSTANT(kDLInt);
  CONSTANT(kDLUInt);
  CONSTANT(kDLFloat);
  CONSTANT(kDLOpaqueHandle);
  CONSTANT(kDLBfloat);
  CONSTANT(kDLComplex);
  CONSTANT(kDLBool);
  CONSTANT(kDLFloat8_e3m4);
  CONSTANT(kDLFloat8_e4m3);
  CONSTANT(kDLFloat8_e4m3b11fnuz);
  CONSTANT(kDLFloat8_e4m3fn);
  CONSTANT(kDLFloat8_e4m3fnuz);
  CONSTANT(kDLFloat8_e5m2);
  CONSTANT(kDLFloat8_e5m2fnuz);
  CONSTANT(kDLFloat8_e8m0fnu);
  CONSTANT(kDLFloat6_e2m3fn);
  CONSTANT(kDLFloat6_e3m2fn);
  CONSTANT(kDLFloat4_e2m1fn);
  return 0;
}
