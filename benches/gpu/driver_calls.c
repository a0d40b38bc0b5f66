/* The cost of a call of the CUDA driver, in a loop in C, with one thread or several.
 *
 * Each thread has its own stream and event in the primary context of device 0, as when dlx
 * calls the driver from several threads of Python. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

typedef int (*fn)();

enum { IS_CAPTURING, PUSH_POP, RECORD, WAIT, QUERY, CREATE_DESTROY, RECORD_WAIT };

static struct {
    fn cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuCtxPushCurrent_v2,
        cuCtxPopCurrent_v2, cuStreamCreate, cuStreamDestroy_v2, cuStreamIsCapturing,
        cuStreamWaitEvent, cuStreamSynchronize, cuEventCreate, cuEventDestroy_v2,
        cuEventRecord, cuEventQuery;
} cu;
static void *context;
static pthread_barrier_t barrier;

struct job {
    int call;
    long count;
    double ns;
    int code;
};

/* Loads the driver: 0, -1 without a library or a symbol, or the driver's error. */
int driver_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return -1;
#define FIND(name) \
    if (!(*(void **)&cu.name = dlsym(library, #name))) \
        return -1;
    FIND(cuInit) FIND(cuDevicePrimaryCtxRetain) FIND(cuCtxSetCurrent)
    FIND(cuCtxPushCurrent_v2) FIND(cuCtxPopCurrent_v2) FIND(cuStreamCreate)
    FIND(cuStreamDestroy_v2) FIND(cuStreamIsCapturing) FIND(cuStreamWaitEvent)
    FIND(cuStreamSynchronize) FIND(cuEventCreate) FIND(cuEventDestroy_v2)
    FIND(cuEventRecord) FIND(cuEventQuery)
    int code = cu.cuInit(0);
    return code ? code : cu.cuDevicePrimaryCtxRetain(&context, 0);
}

static int once(int call, void *stream, void *other, void *event)
{
    int status = 0, code = 0;
    void *made = 0;
    switch (call) {
    case IS_CAPTURING:
        return cu.cuStreamIsCapturing(stream, &status);
    case PUSH_POP:
        code = cu.cuCtxPushCurrent_v2(context);
        return code | cu.cuCtxPopCurrent_v2(&made);
    case RECORD:
        return cu.cuEventRecord(event, stream);
    case WAIT:
        return cu.cuStreamWaitEvent(other, event, 0);
    case QUERY:
        return cu.cuEventQuery(event);
    case CREATE_DESTROY:
        code = cu.cuEventCreate(&made, 2);
        return code | cu.cuEventDestroy_v2(made);
    default:
        code = cu.cuEventRecord(event, stream);
        return code | cu.cuStreamWaitEvent(other, event, 0);
    }
}

static void *run(void *argument)
{
    struct job *job = argument;
    void *stream = 0, *other = 0, *event = 0;
    struct timespec start, end;
    job->code = cu.cuCtxSetCurrent(context) | cu.cuStreamCreate(&stream, 1) |
                cu.cuStreamCreate(&other, 1) | cu.cuEventCreate(&event, 2);
    if (!job->code)
        job->code = cu.cuEventRecord(event, stream) | cu.cuStreamSynchronize(stream);
    for (int i = 0; i < 100 && !job->code; i++)
        job->code = once(job->call, stream, other, event);
    pthread_barrier_wait(&barrier);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < job->count && !job->code; i++)
        job->code = once(job->call, stream, other, event);
    clock_gettime(CLOCK_MONOTONIC, &end);
    job->ns = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    job->ns /= (double)job->count;
    cu.cuStreamSynchronize(stream);
    cu.cuStreamSynchronize(other);
    cu.cuEventDestroy_v2(event);
    cu.cuStreamDestroy_v2(stream);
    cu.cuStreamDestroy_v2(other);
    return 0;
}

/* ns per call, the mean over the threads; the negative of the driver's error. */
double driver_ns(int call, int threads, long count)
{
    enum { MOST = 64 };
    pthread_t ids[MOST];
    struct job jobs[MOST];
    double sum = 0;
    if (threads < 1 || threads > MOST)
        return -1;
    pthread_barrier_init(&barrier, 0, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        jobs[i] = (struct job){.call = call, .count = count};
        pthread_create(&ids[i], 0, run, &jobs[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], 0);
        sum += jobs[i].ns;
    }
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < threads; i++)
        if (jobs[i].code)
            return -(double)jobs[i].code;
    return sum / threads;
}
