/* SPDX-License-Identifier: Apache-2.0
 *
 * dlpack_exchange_streams.h: the streams of arguments around a launch on a device, by DLPack 1.3.
 *
 * Copy this file beside dlpack_exchange.h, which it includes, and whose first comment holds here.
 * Include cuda_runtime_api.h or cuda.h before. A project that loads its driver itself, or HIP,
 * defines DLX_EVENT, the type of events, and six macros; what they give is 0 if it succeeded, and
 * DLX_EVENT_PENDING is 0 only if the work before the event is known to be done.
 *
 *   dlx_join             the work waits for the libraries that the arguments are of
 *   dlx_release_after    the libraries wait for the work, without anybody's thread waiting
 *
 *     dlx_stream on = {{kDLCUDA, 0}, my_stream, NULL};  (or zeroed: the stream of the libraries)
 *     int status = dlx_borrow_all(args, wants, n, &on, views);
 *     if (status < 0) return NULL;
 *     if (status == 1 && dlx_join(views, n, &on) < 0) return dlx_release_all(views, n), NULL;
 *     launch(views[0].tensor.data, on.handle);
 *     if (dlx_release_after(views, n, &on) < 0) return NULL;
 *
 * From dlx_join on the streams' device is current. A driver that fails is a RuntimeError. */
#ifndef DLPACK_EXCHANGE_STREAMS_H
#define DLPACK_EXCHANGE_STREAMS_H
#include "dlpack_exchange.h"

#if !defined(DLX_EVENT) && defined(CUDART_VERSION)
#define DLX_EVENT cudaEvent_t
#define DLX_EVENT_CREATE(event) cudaEventCreateWithFlags(event, cudaEventDisableTiming)
#define DLX_EVENT_RECORD(event, stream) cudaEventRecord(event, (cudaStream_t)(stream))
#define DLX_EVENT_AWAIT(stream, event) cudaStreamWaitEvent((cudaStream_t)(stream), event, 0)
#define DLX_EVENT_PENDING(event) (cudaEventQuery(event) != cudaSuccess)
#define DLX_EVENT_WAIT(event) cudaEventSynchronize(event)
#define DLX_EVENT_DESTROY(event) cudaEventDestroy(event)
#elif !defined(DLX_EVENT) && defined(CUDA_VERSION)
#define DLX_EVENT CUevent
#define DLX_EVENT_CREATE(event) cuEventCreate(event, CU_EVENT_DISABLE_TIMING)
#define DLX_EVENT_RECORD(event, stream) cuEventRecord(event, (CUstream)(stream))
#define DLX_EVENT_AWAIT(stream, event) cuStreamWaitEvent((CUstream)(stream), event, 0)
#define DLX_EVENT_PENDING(event) (cuEventQuery(event) != CUDA_SUCCESS)
#define DLX_EVENT_WAIT(event) cuEventSynchronize(event)
#define DLX_EVENT_DESTROY(event) cuEventDestroy(event)
#endif

#ifndef DLX_EVENT
#error "include cuda_runtime_api.h or cuda.h before dlpack_exchange_streams.h, or define DLX_EVENT"
#endif

/* After a dlx_borrow_all that returned 1: `on` waits for the libraries. */
static inline int dlx_join(const dlx_view *vs, Py_ssize_t n, const dlx_stream *on);

/* Releases views whose elements `on` works on, lent ones too: on every path after a launch, instead
 * of dlx_release_all. A library that works on another stream waits for `on`, so it may write to the
 * memory afterwards, or reuse it; what is to be deleted and is not ordered so waits for an event.
 * If the driver fails, that memory is kept for good, never freed too early. While `on` is captured
 * into a graph, only libraries that work on it may lend: the events would join the capture. */
static inline int dlx_release_after(dlx_view *vs, Py_ssize_t n, const dlx_stream *on);

/* `waiter` waits for what `signaller` has been given so far. */
static inline int dlx_order(void *waiter, void *signaller);

/* Deletes what waited for work that is done by now, the oldest first, up to one whose work is not;
 * if DLX_LATE wait, waits for the oldest. dlx_release_after calls it; so may others, with a current
 * device and outside of captures, where no further launch comes that would. */
static inline void dlx_collect(void);

/* ===== how it works ===== */

static inline int dlx_order(void *waiter, void *signaller) {
    DLX_EVENT event;
    int failed;
    if (waiter == signaller) return 0;
    if (DLX_EVENT_CREATE(&event)) return dlx__fail(NULL, PyExc_RuntimeError, "no event was made");
    failed = DLX_EVENT_RECORD(event, signaller) || DLX_EVENT_AWAIT(waiter, event);
    (void)DLX_EVENT_DESTROY(event); /* the driver keeps it until it has passed */
    if (!failed) return 0;
    return dlx__fail(NULL, PyExc_RuntimeError, "stream %p cannot wait for %p", waiter, signaller);
}

static inline int dlx_join(const dlx_view *vs, Py_ssize_t n, const dlx_stream *on) {
    for (; n > 0; n--, vs++) {
        int has_stream = dlx__has_streams(vs->tensor.device.device_type);
        if (has_stream && dlx_order(on->handle, vs->stream) < 0) return -1;
    }
    return 0;
}

#ifndef DLX_LATE
#define DLX_LATE 256
#endif
typedef struct dlx__late {
    DLX_EVENT event;
    void *managed;
    int legacy;
} dlx__late;
static dlx__late dlx__late_ring[DLX_LATE]; /* of all threads: one may end before its tensors do */
static int dlx__late_first, dlx__late_count;
#ifdef Py_GIL_DISABLED
static PyMutex dlx__late_lock;
#define DLX__LOCK() PyMutex_Lock(&dlx__late_lock)
#define DLX__UNLOCK() PyMutex_Unlock(&dlx__late_lock)
#else
#define DLX__LOCK() (void)0
#define DLX__UNLOCK() (void)0
#endif

static inline void dlx_collect(void) {
    for (;;) {
        dlx__late late;
        int full, taken, failed = 0;
        DLX__LOCK();
        late = dlx__late_ring[dlx__late_first];
        full = dlx__late_count == DLX_LATE;
        taken = full || (dlx__late_count > 0 && !DLX_EVENT_PENDING(late.event));
        if (taken) dlx__late_first = (dlx__late_first + 1) % DLX_LATE, dlx__late_count--;
        DLX__UNLOCK();
        if (!taken) return;
        if (full) {
            Py_BEGIN_ALLOW_THREADS
            failed = DLX_EVENT_WAIT(late.event) != 0;
            Py_END_ALLOW_THREADS
        }
        (void)DLX_EVENT_DESTROY(late.event);
        if (!failed) dlx__delete_attached(late.managed, late.legacy);
    }
}

/* Leaves v's tensor to the ring, until the work that `stream` has been given is done. */
static inline int dlx__delete_late(dlx_view *v, void *stream) {
    dlx__late late;
    int has_room = 0;
    late.managed = v->managed;
    late.legacy = v->legacy;
    v->managed = NULL; /* from here on it is the ring's, or nobody's */
    if (DLX_EVENT_CREATE(&late.event) || DLX_EVENT_RECORD(late.event, stream))
        return dlx__fail(NULL, PyExc_RuntimeError, "no event was recorded; memory is kept");
    while (!has_room) {
        dlx_collect();
        DLX__LOCK();
        has_room = dlx__late_count < DLX_LATE;
        if (has_room) dlx__late_ring[(dlx__late_first + dlx__late_count++) % DLX_LATE] = late;
        DLX__UNLOCK();
    }
    return 0;
}

static inline int dlx_release_after(dlx_view *vs, Py_ssize_t n, const dlx_stream *on) {
    int failed = 0;
    for (; n > 0; n--, vs++) {
        int same = vs->api != NULL && vs->stream == on->handle;
        if (dlx__has_streams(vs->tensor.device.device_type) && !same) {
            if (vs->api != NULL) failed |= dlx_order(vs->stream, on->handle) < 0;
            if (vs->managed != NULL) failed |= dlx__delete_late(vs, on->handle) < 0;
        }
        dlx_release(vs);
    }
    return failed ? -1 : 0;
}

#endif
