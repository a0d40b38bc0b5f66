// What torch_checkout.py finds in torch/csrc/Module.cpp: the two structs and the four
// functions by name, here without bodies of their own. So what is compiled for
// the tests went through the same edits as the checkout.

#include <torch/csrc/utils/init.h>

#include <chrono>

struct TorchDLPackExchangeAPI {
  static int DLTensorFromPyObjectNoSync(void* py_obj, DLTensor* out) {
    return -1;
  }

  static int ManagedTensorFromPyObjectNoSync(
      void* py_obj,
      DLManagedTensorVersioned** out) {
    return -1;
  }
};

struct TorchConstDLPackExchangeAPI {
  static int ManagedTensorFromPyObjectNoSync(
      void* py_obj,
      DLManagedTensorVersioned** out) {
    return -1;
  }

  static int DLTensorFromPyObjectNoSync(void* py_obj, DLTensor* out) {
    return -1;
  }
};

extern "C" {

// The installed torch's table with the functions above.
const DLPackExchangeAPI* patched(const DLPackExchangeAPI* api, int read_only) {
  using Plain = TorchDLPackExchangeAPI;
  using Const = TorchConstDLPackExchangeAPI;
  static DLPackExchangeAPI tables[2];
  DLPackExchangeAPI& table = tables[read_only];
  table = *api;
  table.dltensor_from_py_object_no_sync = read_only
      ? Const::DLTensorFromPyObjectNoSync
      : Plain::DLTensorFromPyObjectNoSync;
  table.managed_tensor_from_py_object_no_sync = read_only
      ? Const::ManagedTensorFromPyObjectNoSync
      : Plain::ManagedTensorFromPyObjectNoSync;
  return &table;
}

// Calls a function of a table, and returns the nanoseconds of one call.
double call_dltensor(const DLPackExchangeAPI* api, void* obj, int64_t calls) {
  DLTensor out;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; i++) {
    if (api->dltensor_from_py_object_no_sync(obj, &out)) {
      return -1;
    }
  }
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count() / calls;
}

double call_managed(const DLPackExchangeAPI* api, void* obj, int64_t calls) {
  DLManagedTensorVersioned* out;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; i++) {
    if (api->managed_tensor_from_py_object_no_sync(obj, &out)) {
      return -1;
    }
    out->deleter(out);
  }
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count() / calls;
}

} // extern "C"
