//! Prints the layout and the constants of `src/abi.rs`, one `name value` a line; layout.c prints the same
//! lines of `dlpack.h` in the same order.

#[path = "../../src/abi.rs"]
#[allow(dead_code)]
mod abi;

use std::mem::{align_of, offset_of, size_of};

use abi::*;

/// Size of the field that `_get` projects to.
fn size_of_field<Struct, Field>(_get: fn(&Struct) -> &Field) -> usize {
    size_of::<Field>()
}

macro_rules! layout {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        println!("sizeof({}) {}", stringify!($type), size_of::<$type>());
        println!("alignof({}) {}", stringify!($type), align_of::<$type>());
        $(
            let name = concat!(stringify!($type), ".", stringify!($field));
            println!("offsetof({name}) {}", offset_of!($type, $field));
            println!("sizeof({name}) {}", size_of_field(|it: &$type| &it.$field));
        )+
    };
}

macro_rules! constants {
    ($($name:ident),+ $(,)?) => { $(println!("{} {}", stringify!($name), $name);)+ };
}

/// Constants of the newtypes that stand for the enums.
macro_rules! members {
    ($($name:ident),+ $(,)?) => { $(println!("{} {}", stringify!($name), $name.0);)+ };
}

fn main() {
    layout!(DLPackVersion { major, minor });
    layout!(DLDevice {
        device_type,
        device_id
    });
    layout!(DLDataType { code, bits, lanes });
    layout!(DLTensor {
        data,
        device,
        ndim,
        dtype,
        shape,
        strides,
        byte_offset,
    });
    layout!(DLManagedTensor {
        dl_tensor,
        manager_ctx,
        deleter
    });
    layout!(DLManagedTensorVersioned {
        version,
        manager_ctx,
        deleter,
        flags,
        dl_tensor,
    });
    layout!(DLPackExchangeAPIHeader { version, prev_api });
    layout!(DLPackExchangeAPI {
        header,
        managed_tensor_allocator,
        managed_tensor_from_py_object_no_sync,
        managed_tensor_to_py_object_no_sync,
        dltensor_from_py_object_no_sync,
        current_work_stream,
    });

    constants!(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
    constants!(
        DLPACK_FLAG_BITMASK_READ_ONLY,
        DLPACK_FLAG_BITMASK_IS_COPIED,
        DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    );
    members!(
        kDLCPU,
        kDLCUDA,
        kDLCUDAHost,
        kDLOpenCL,
        kDLVulkan,
        kDLMetal,
        kDLVPI,
        kDLROCM,
        kDLROCMHost,
        kDLExtDev,
        kDLCUDAManaged,
        kDLOneAPI,
        kDLWebGPU,
        kDLHexagon,
        kDLMAIA,
        kDLTrn,
    );
    members!(
        kDLInt,
        kDLUInt,
        kDLFloat,
        kDLOpaqueHandle,
        kDLBfloat,
        kDLComplex,
        kDLBool,
        kDLFloat8_e3m4,
        kDLFloat8_e4m3,
        kDLFloat8_e4m3b11fnuz,
        kDLFloat8_e4m3fn,
        kDLFloat8_e4m3fnuz,
        kDLFloat8_e5m2,
        kDLFloat8_e5m2fnuz,
        kDLFloat8_e8m0fnu,
        kDLFloat6_e2m3fn,
        kDLFloat6_e3m2fn,
        kDLFloat4_e2m1fn,
    );
}
