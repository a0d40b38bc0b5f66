// SPDX-FileCopyrightText: Copyright (c) <2026> NVIDIA CORPORATION & AFFILIATES. All rights reserved.
//
// SPDX-License-Identifier: Apache-2.0

#pragma once

#include "check.h"
#include "cuda_helper.h"
#include "cuda_loader.h"
#include "memory.h"
#include "py.h"
#include "vec.h"

#include <cuda.h>
#include <dlpack.h>

#include <stdlib.h>
#include <string.h>


// Arrays that other libraries hand over by DLPack, from the first look until the launch is done.
// Only one source file includes this: what waits to be deleted is static.


static const DriverApi* g_dlpack_driver;  // set by dlpack_join(), before any event is needed

#define DLX_EVENT CUevent
#define DLX_EVENT_CREATE(event) \
    g_dlpack_driver->cuEventCreate(event, CU_EVENT_DISABLE_TIMING)
#define DLX_EVENT_RECORD(event, stream) \
    g_dlpack_driver->cuEventRecord(event, static_cast<CUstream>(stream))
#define DLX_EVENT_AWAIT(stream, event) \
    g_dlpack_driver->cuStreamWaitEvent(static_cast<CUstream>(stream), event, 0)
#define DLX_EVENT_PENDING(event) (g_dlpack_driver->cuEventQuery(event) != CUDA_SUCCESS)
#define DLX_EVENT_WAIT(event) g_dlpack_driver->cuEventSynchronize(event)
#define DLX_EVENT_DESTROY(event) g_dlpack_driver->cuEventDestroy(event)

// The extension is linked without a C library, so the header gets CPython's allocator, and our own
// functions of memory. Thread-local caches and a lock would need a library, too: here the GIL or
// g_launch_mutex protects all of it, so the header is told of a GIL.
#pragma push_macro("Py_GIL_DISABLED")
#undef Py_GIL_DISABLED
#define malloc PyMem_RawMalloc
#define calloc PyMem_RawCalloc
#define free PyMem_RawFree
#define memset mem_set
#define memcmp mem_compare
#define strstr mem_find_string
#include "dlpack_exchange_streams.h"
#undef malloc
#undef calloc
#undef free
#undef memset
#undef memcmp
#undef strstr
#pragma pop_macro("Py_GIL_DISABLED")


// Views `array` for work on `stream`, and pushes the view to `views`, which owns the result until
// dlpack_join(); nullptr if an exception is set. An array without a table of C functions orders
// what it has been given before `stream`. If the device is not known (-1), there is no stream, or
// it is the default one.
static const DLTensor* dlpack_borrow(PyObject* array, CUstream stream, CUdevice device,
                                     Vec<dlx_view*>* views) {
    dlx_stream on = {{kDLCUDA, device}, stream, nullptr};
    dlx_view* view = new dlx_view;  // it points into itself, so it must not be moved
    if (dlx_borrow_all(&array, nullptr, 1, device < 0 ? nullptr : &on, view) < 0) {
        delete view;
        return nullptr;
    }
    views->push_back(view);
    return &view->tensor;
}

static void dlpack_release(Vec<dlx_view*>* views) {
    for (dlx_view* view : *views) {
        dlx_release(view);
        delete view;
    }
    views->clear();
}

// Before the launch, in the context of `stream`: `stream` waits for the libraries that work on
// another one.
static Status dlpack_join(const DriverApi* driver, CUstream stream, Vec<dlx_view*>* views) {
    if (views->empty()) return OK;
    g_dlpack_driver = driver;

    CUstreamCaptureStatus capture;
    CUresult res = driver->cuStreamIsCapturing(stream, &capture);
    if (res != CUDA_SUCCESS)
        return raise(PyExc_RuntimeError, "Failed to check stream capturing status: ",
                     get_cuda_error(driver, res));
    bool capturing = capture != CU_STREAM_CAPTURE_STATUS_NONE;

    dlx_stream on = {{kDLCUDA, 0}, stream, nullptr};
    for (dlx_view* view : *views) {
        if (capturing && view->managed
                && (view->legacy || (view->flags & DLPACK_FLAG_BITMASK_IS_COPIED)))
            return raise(PyExc_RuntimeError, "Array argument in CUDAGraph isn't supported yet"
                         " if __dlpack__ may have copied it");
        if (dlx_join(view, 1, &on) < 0) return ErrorRaised;
    }

    // A graph is replayed after the launch, and an event cannot tell when for the last time.
    // So as with torch tensors, it is up to the caller to keep the arrays.
    if (capturing) dlpack_release(views);
    return OK;
}

// After the launch: what the libraries do with the arrays from now on, and the deleters of what
// they handed over, come after what `stream` has been given.
static Status dlpack_release_after(CUstream stream, Vec<dlx_view*>* views) {
    bool failed = false;
    dlx_stream on = {{kDLCUDA, 0}, stream, nullptr};
    for (dlx_view* view : *views) {
        failed |= dlx_release_after(view, 1, &on) < 0;
        delete view;
    }
    views->clear();
    if (failed) return ErrorRaised;
    return OK;
}
