//! `dlpack.h` 1.3 in Rust: its structs, constants and function types under their C names.
//!
//! Declarations only: no behaviour and no Python. C enums are newtypes with constants, so a value added by a newer
//! header is still a valid value of the type (R31).

#![forbid(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

/// `DLPACK_MAJOR_VERSION`: the layout of `DLManagedTensorVersioned`.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// `DLPACK_MINOR_VERSION`: the newest enumeration values that dlx knows.
pub const DLPACK_MINOR_VERSION: u32 = 3;

/// `DLPACK_FLAG_BITMASK_READ_ONLY`: consumers must not write to the memory.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1 << 0;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`: the consumer is the only owner of the memory until it calls the deleter.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 1 << 1;
/// `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`: each sub-byte element is padded to whole bytes.
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u64 = 1 << 2;

/// `DLPackVersion`: the major version fixes the layout, the minor version adds enumeration values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Layout version.
    pub major: u32,
    /// Version of the enumerations.
    pub minor: u32,
}

/// `DLDeviceType`: the kind of memory that a tensor lives in.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDeviceType(pub i32);

/// Ordinary host memory.
pub const kDLCPU: DLDeviceType = DLDeviceType(1);
/// CUDA device memory.
pub const kDLCUDA: DLDeviceType = DLDeviceType(2);
/// Host memory pinned by `cudaMallocHost`.
pub const kDLCUDAHost: DLDeviceType = DLDeviceType(3);
/// OpenCL: `data` is a `cl_mem` handle.
pub const kDLOpenCL: DLDeviceType = DLDeviceType(4);
/// Vulkan buffer handle.
pub const kDLVulkan: DLDeviceType = DLDeviceType(7);
/// Metal buffer handle.
pub const kDLMetal: DLDeviceType = DLDeviceType(8);
/// Verilog simulator buffer.
pub const kDLVPI: DLDeviceType = DLDeviceType(9);
/// ROCm device memory.
pub const kDLROCM: DLDeviceType = DLDeviceType(10);
/// Host memory pinned by `hipMallocHost`.
pub const kDLROCMHost: DLDeviceType = DLDeviceType(11);
/// Reserved for extension devices, which define their own semantics.
pub const kDLExtDev: DLDeviceType = DLDeviceType(12);
/// CUDA managed memory (`cudaMallocManaged`).
pub const kDLCUDAManaged: DLDeviceType = DLDeviceType(13);
/// oneAPI unified shared memory.
pub const kDLOneAPI: DLDeviceType = DLDeviceType(14);
/// WebGPU buffer handle.
pub const kDLWebGPU: DLDeviceType = DLDeviceType(15);
/// Qualcomm Hexagon DSP.
pub const kDLHexagon: DLDeviceType = DLDeviceType(16);
/// Microsoft MAIA.
pub const kDLMAIA: DLDeviceType = DLDeviceType(17);
/// AWS Trainium.
pub const kDLTrn: DLDeviceType = DLDeviceType(18);

/// `DLDevice`: a device type and an index; the index is 0 for host and managed memory (R66).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDevice {
    /// Kind of memory.
    pub device_type: DLDeviceType,
    /// Which device of that kind.
    pub device_id: i32,
}

/// `DLDataTypeCode`, as the `u8` that [`DLDataType`] stores.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDataTypeCode(pub u8);

/// Signed integer.
pub const kDLInt: DLDataTypeCode = DLDataTypeCode(0);
/// Unsigned integer.
pub const kDLUInt: DLDataTypeCode = DLDataTypeCode(1);
/// IEEE floating point.
pub const kDLFloat: DLDataTypeCode = DLDataTypeCode(2);
/// Opaque handle.
pub const kDLOpaqueHandle: DLDataTypeCode = DLDataTypeCode(3);
/// bfloat16.
pub const kDLBfloat: DLDataTypeCode = DLDataTypeCode(4);
/// Complex; `bits` counts the real and imaginary parts together (R104).
pub const kDLComplex: DLDataTypeCode = DLDataTypeCode(5);
/// Boolean, 8 bits (R103).
pub const kDLBool: DLDataTypeCode = DLDataTypeCode(6);
/// FP8, 3 exponent and 4 mantissa bits.
pub const kDLFloat8_e3m4: DLDataTypeCode = DLDataTypeCode(7);
/// FP8, 4 exponent and 3 mantissa bits.
pub const kDLFloat8_e4m3: DLDataTypeCode = DLDataTypeCode(8);
/// FP8 e4m3, bias 11, finite, unsigned zero.
pub const kDLFloat8_e4m3b11fnuz: DLDataTypeCode = DLDataTypeCode(9);
/// FP8 e4m3, finite.
pub const kDLFloat8_e4m3fn: DLDataTypeCode = DLDataTypeCode(10);
/// FP8 e4m3, finite, unsigned zero.
pub const kDLFloat8_e4m3fnuz: DLDataTypeCode = DLDataTypeCode(11);
/// FP8, 5 exponent and 2 mantissa bits.
pub const kDLFloat8_e5m2: DLDataTypeCode = DLDataTypeCode(12);
/// FP8 e5m2, finite, unsigned zero.
pub const kDLFloat8_e5m2fnuz: DLDataTypeCode = DLDataTypeCode(13);
/// FP8, exponent only.
pub const kDLFloat8_e8m0fnu: DLDataTypeCode = DLDataTypeCode(14);
/// FP6, 2 exponent and 3 mantissa bits; `bits` must be 6 (R105).
pub const kDLFloat6_e2m3fn: DLDataTypeCode = DLDataTypeCode(15);
/// FP6, 3 exponent and 2 mantissa bits; `bits` must be 6 (R105).
pub const kDLFloat6_e3m2fn: DLDataTypeCode = DLDataTypeCode(16);
/// FP4, 2 exponent and 1 mantissa bit; `bits` must be 4 (R105).
pub const kDLFloat4_e2m1fn: DLDataTypeCode = DLDataTypeCode(17);

/// `DLDataType`: one element is `lanes` values of `bits` bits in native byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDataType {
    /// What the bits mean.
    pub code: DLDataTypeCode,
    /// Bits of one lane.
    pub bits: u8,
    /// Values in one element.
    pub lanes: u16,
}

/// `DLTensor`: a strided view of memory that it does not own.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// Address or handle of the memory; NULL for size-0 tensors.
    pub data: *mut c_void,
    /// The device that `data` is on.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of one element.
    pub dtype: DLDataType,
    /// `ndim` extents; may be NULL when `ndim == 0`.
    pub shape: *mut i64,
    /// `ndim` strides in elements; may be NULL when `ndim == 0`, and before DLPack 1.2 for compact row-major.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`: the unversioned struct behind a capsule named `dltensor`.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// Private to the producer.
    pub manager_ctx: *mut c_void,
    /// Frees the struct and the memory behind it; may be NULL.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// `DLManagedTensorVersioned`: the fields up to `flags` are stable across major versions.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// Version of this struct.
    pub version: DLPackVersion,
    /// Private to the producer.
    pub manager_ctx: *mut c_void,
    /// Frees the struct and the memory behind it; may be NULL.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// `DLPACK_FLAG_BITMASK_*`.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// The error callback of [`DLPackManagedTensorAllocator`]: context, kind, message.
pub type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// `DLPackManagedTensorAllocator`: a new tensor with the dtype, shape and device of a prototype.
pub type DLPackManagedTensorAllocator = unsafe extern "C" fn(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int;

/// `DLPackManagedTensorFromPyObjectNoSync`: an owned export of a Python object.
pub type DLPackManagedTensorFromPyObjectNoSync =
    unsafe extern "C" fn(py_object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int;

/// `DLPackDLTensorFromPyObjectNoSync`: a borrowed view of a Python object, valid until control returns.
pub type DLPackDLTensorFromPyObjectNoSync =
    unsafe extern "C" fn(py_object: *mut c_void, out: *mut DLTensor) -> c_int;

/// `DLPackCurrentWorkStream`: the stream that the library currently works on.
pub type DLPackCurrentWorkStream = unsafe extern "C" fn(
    device_type: DLDeviceType,
    device_id: i32,
    out_current_stream: *mut *mut c_void,
) -> c_int;

/// `DLPackManagedTensorToPyObjectNoSync`: a Python object that takes ownership of a managed tensor.
pub type DLPackManagedTensorToPyObjectNoSync = unsafe extern "C" fn(
    tensor: *mut DLManagedTensorVersioned,
    out_py_object: *mut *mut c_void,
) -> c_int;

/// `DLPackExchangeAPIHeader`: the part of a table that is the same in every version.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLPackExchangeAPIHeader {
    /// Version of the table that follows.
    pub version: DLPackVersion,
    /// A table of an older version, or NULL.
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// `DLPackExchangeAPI`: the table behind `__dlpack_c_exchange_api__`.
///
/// Every member is nullable here, because a foreign table may leave out even members that the header requires.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLPackExchangeAPI {
    /// Version, and link to older tables.
    pub header: DLPackExchangeAPIHeader,
    /// Allocates a tensor.
    pub managed_tensor_allocator: Option<DLPackManagedTensorAllocator>,
    /// Python object to owned tensor.
    pub managed_tensor_from_py_object_no_sync: Option<DLPackManagedTensorFromPyObjectNoSync>,
    /// Owned tensor to Python object.
    pub managed_tensor_to_py_object_no_sync: Option<DLPackManagedTensorToPyObjectNoSync>,
    /// Python object to borrowed tensor; the header allows NULL.
    pub dltensor_from_py_object_no_sync: Option<DLPackDLTensorFromPyObjectNoSync>,
    /// Current stream.
    pub current_work_stream: Option<DLPackCurrentWorkStream>,
}

const _: () = assert!(
    size_of::<*const c_void>() == 8,
    "dlx supports 64-bit targets"
);
