//! Functions by name and version.

use crate::abi::{Address, Out, Text, exports};
use crate::code::{Answer, INVALID_VALUE, NOT_FOUND};
use crate::cuda::{context::*, event::*, green::*, memory::*, peer::*, pointer::*, stream::*};
use crate::sim::Sim;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_VARIANTS: u64 = 2;

/// A function under its name without suffix, and the versions in which that name means this one.
struct Function {
    name: &'static str,
    since: i32,
    /// The first version in which the name means a function with other parameters.
    until: i32,
    address: Address,
}

macro_rules! functions {
    ($($since:literal $(.. $until:literal)? $name:literal $function:ident;)*) => {
        [$(Function {
            name: $name,
            since: $since,
            until: functions!(@until $($until)?),
            address: $function as *const () as Address,
        }),*]
    };
    (@until $until:literal) => { $until };
    (@until) => { i32::MAX };
}

fn functions() -> impl Iterator<Item = Function> {
    functions! {
        2000 "cuInit" cuInit;
        2020 "cuDriverGetVersion" cuDriverGetVersion;
        6000 "cuGetErrorName" cuGetErrorName;
        6000 "cuGetErrorString" cuGetErrorString;
        11030..12000 "cuGetProcAddress" cuGetProcAddress;
        12000 "cuGetProcAddress" cuGetProcAddress_v2;
        2000 "cuDeviceGet" cuDeviceGet;
        2000 "cuDeviceGetCount" cuDeviceGetCount;
        3020 "cuDeviceTotalMem" cuDeviceTotalMem_v2;
        7000 "cuDevicePrimaryCtxRetain" cuDevicePrimaryCtxRetain;
        11000 "cuDevicePrimaryCtxRelease" cuDevicePrimaryCtxRelease_v2;
        11000 "cuDevicePrimaryCtxReset" cuDevicePrimaryCtxReset_v2;
        7000 "cuDevicePrimaryCtxGetState" cuDevicePrimaryCtxGetState;
        3020..11040 "cuCtxCreate" cuCtxCreate_v2;
        4000 "cuCtxDestroy" cuCtxDestroy_v2;
        4000 "cuCtxGetCurrent" cuCtxGetCurrent;
        4000 "cuCtxSetCurrent" cuCtxSetCurrent;
        4000 "cuCtxPushCurrent" cuCtxPushCurrent_v2;
        4000 "cuCtxPopCurrent" cuCtxPopCurrent_v2;
        2000..13000 "cuCtxGetDevice" cuCtxGetDevice;
        2000..13000 "cuCtxSynchronize" cuCtxSynchronize;
        2000 "cuStreamCreate" cuStreamCreate;
        5050 "cuStreamCreateWithPriority" cuStreamCreateWithPriority;
        4000 "cuStreamDestroy" cuStreamDestroy_v2;
        2000 "cuStreamSynchronize" cuStreamSynchronize;
        2000 "cuStreamQuery" cuStreamQuery;
        9020..12050 "cuStreamGetCtx" cuStreamGetCtx;
        12050 "cuStreamGetCtx" cuStreamGetCtx_v2;
        12040 "cuStreamGetGreenCtx" cuStreamGetGreenCtx;
        12040 "cuDeviceGetDevResource" cuDeviceGetDevResource;
        12040 "cuDevResourceGenerateDesc" cuDevResourceGenerateDesc;
        12040 "cuGreenCtxCreate" cuGreenCtxCreate;
        12040 "cuGreenCtxDestroy" cuGreenCtxDestroy;
        12040 "cuCtxFromGreenCtx" cuCtxFromGreenCtx;
        12050 "cuGreenCtxStreamCreate" cuGreenCtxStreamCreate;
        12000 "cuCtxGetId" cuCtxGetId;
        12000 "cuStreamGetId" cuStreamGetId;
        12080 "cuStreamGetDevice" cuStreamGetDevice;
        10000 "cuStreamIsCapturing" cuStreamIsCapturing;
        11030..12030 "cuStreamGetCaptureInfo" cuStreamGetCaptureInfo_v2;
        10010 "cuStreamBeginCapture" cuStreamBeginCapture_v2;
        10000 "cuStreamEndCapture" cuStreamEndCapture;
        10000..13010 "cuLaunchHostFunc" cuLaunchHostFunc;
        10000 "cuGraphDestroy" cuGraphDestroy;
        10010 "cuThreadExchangeStreamCaptureMode" cuThreadExchangeStreamCaptureMode;
        2000 "cuEventCreate" cuEventCreate;
        2000 "cuEventRecord" cuEventRecord;
        11010 "cuEventRecordWithFlags" cuEventRecordWithFlags;
        2000 "cuEventQuery" cuEventQuery;
        2000 "cuEventSynchronize" cuEventSynchronize;
        4000 "cuEventDestroy" cuEventDestroy_v2;
        3020 "cuStreamWaitEvent" cuStreamWaitEvent;
        4000 "cuPointerGetAttribute" cuPointerGetAttribute;
        7000 "cuPointerGetAttributes" cuPointerGetAttributes;
        3020 "cuMemAlloc" cuMemAlloc_v2;
        6000 "cuMemAllocManaged" cuMemAllocManaged;
        3020 "cuMemFree" cuMemFree_v2;
        2020 "cuMemHostAlloc" cuMemHostAlloc;
        2000 "cuMemFreeHost" cuMemFreeHost;
        11020 "cuMemAllocAsync" cuMemAllocAsync;
        11020 "cuMemFreeAsync" cuMemFreeAsync;
        3020 "cuMemsetD8Async" cuMemsetD8Async;
        4000 "cuMemcpyAsync" cuMemcpyAsync;
        3020 "cuMemcpyDtoHAsync" cuMemcpyDtoHAsync_v2;
        3020 "cuMemcpyHtoDAsync" cuMemcpyHtoDAsync_v2;
        3020 "cuMemcpyDtoDAsync" cuMemcpyDtoDAsync_v2;
        4000 "cuMemcpyPeerAsync" cuMemcpyPeerAsync;
        3020 "cuMemcpy2DAsync" cuMemcpy2DAsync_v2;
        3020 "cuMemcpy3DAsync" cuMemcpy3DAsync_v2;
        4000 "cuMemcpy3DPeerAsync" cuMemcpy3DPeerAsync;
        4000 "cuDeviceCanAccessPeer" cuDeviceCanAccessPeer;
        4000 "cuCtxEnablePeerAccess" cuCtxEnablePeerAccess;
        4000 "cuCtxDisablePeerAccess" cuCtxDisablePeerAccess;
        11020 "cuDeviceGetDefaultMemPool" cuDeviceGetDefaultMemPool;
        11020 "cuMemPoolSetAccess" cuMemPoolSetAccess;
    }
    .into_iter()
}

/// The function, or `CUdriverProcAddressQueryResult`.
fn found(sim: &Sim, name: &str, version: i32, flags: u64) -> Result<Address, i32> {
    let hidden = flags & PER_THREAD_VARIANTS != 0 || sim.hidden.iter().any(|hidden| hidden == name);
    let mut named = functions()
        .filter(|function| function.name == name && !hidden)
        .peekable();
    if named.peek().is_none() {
        return Err(1);
    }
    named
        .find(|function| (function.since..function.until).contains(&version))
        .map(|function| function.address)
        .ok_or(2)
}

fn look_up(
    sim: &mut Sim,
    name: Text,
    place: Out<Address>,
    version: i32,
    flags: u64,
) -> Answer<i32> {
    let name = name.read()?;
    if version > VERSION {
        return Err(INVALID_VALUE);
    }
    match found(sim, &name, version, flags) {
        Ok(address) => place.set(address).map(|()| 0),
        Err(status) => place.set(0).map(|()| status),
    }
}

exports! {
    /// Address of the function that had this name, without suffix, in a version of CUDA.
    fn cuGetProcAddress_v2(
        symbol: Text, place: Out<Address>, version: i32, flags: u64, status: Out<i32>,
    ) in sim {
        let found = look_up(sim, symbol, place, version, flags)?;
        if !status.is_null() {
            sim.give(status, found)?;
        }
        if found == 0 { Ok(()) } else { Err(NOT_FOUND) }
    }

    /// The same before CUDA 12.
    fn cuGetProcAddress(symbol: Text, place: Out<Address>, version: i32, flags: u64) in sim {
        match look_up(sim, symbol, place, version, flags)? {
            0 => Ok(()),
            _ => Err(NOT_FOUND),
        }
    }
}
