/* A CUDA driver that does nothing and counts its calls: what is left is what dlx itself takes.
 *
 * It is a part of the extension `c_device`, whose file DLX_LIBCUDA names. One device, whose primary context is current
 * in every thread; whatever is queued is done at once, and no stream is capturing. What dlx asks of a driver for
 * copies and other contexts is left out.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define PRIMARY ((void *)0x100)
#define UNUSED __attribute__((unused))

/* Of each thread: dlx has one that asks whether events have passed, and nobody waits for its calls. */
static __thread long calls;

/* The number of calls that this thread has made since it last asked. */
long driver_calls(void) {
    long counted = calls;
    calls = 0;
    return counted;
}

#define NOTHING(name, ...) \
    int name(__VA_ARGS__) { \
        calls++; \
        return 0; \
    }
#define ANSWER(name, answer, ...) \
    int name(__VA_ARGS__) { \
        calls++; \
        *out = answer; \
        return 0; \
    }

NOTHING(cuInit, UNUSED unsigned flags)
NOTHING(cuEventRecord, UNUSED void *event, UNUSED void *stream)
NOTHING(cuEventQuery, UNUSED void *event)
NOTHING(cuEventSynchronize, UNUSED void *event)
NOTHING(cuStreamSynchronize, UNUSED void *stream)
NOTHING(cuStreamWaitEvent, UNUSED void *stream, UNUSED void *event, UNUSED unsigned flags)
ANSWER(cuThreadExchangeStreamCaptureMode, 0, int *out)
ANSWER(cuDeviceTotalMem_v2, (size_t)80 << 30, size_t *out, UNUSED int device)
ANSWER(cuDevicePrimaryCtxRetain, PRIMARY, void **out, UNUSED int device)
ANSWER(cuDevicePrimaryCtxGetState, 1, UNUSED int device, UNUSED unsigned *flags, int *out)
ANSWER(cuCtxGetCurrent, PRIMARY, void **out)
ANSWER(cuCtxGetDevice, 0, int *out)
ANSWER(cuCtxGetId, (uintptr_t)context, void *context, uint64_t *out)
ANSWER(cuEventCreate, malloc(1), void **out, UNUSED unsigned flags)
ANSWER(cuStreamGetCtx, PRIMARY, UNUSED void *stream, void **out)
ANSWER(cuStreamGetId, (uintptr_t)stream, void *stream, uint64_t *out)
ANSWER(cuStreamIsCapturing, 0, UNUSED void *stream, int *out)

int cuEventDestroy_v2(void *event) {
    calls++;
    free(event);
    return 0;
}
