/* What `dlx_check` needs of C, as Python cannot do it: deleters that run without the GIL, during exit or with an
 * exception pending, and calls that tell a code apart from the exception that was left. They count, pass on and report;
 * what is right is judged in Python. Nothing here knows dlx.
 *
 * `natives.py` loads it by `ctypes.PyDLL`, with the GIL held at each call. So it is no extension module, and uses what
 * every CPython exports. */
#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) == 8, "addresses travel as 64-bit integers");

/* Of dlpack.h 1.3. */

typedef int32_t DLDeviceType; /* an enum there */

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct {
    uint32_t major;
    uint32_t minor;
} DLPackVersion;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef void (*SetError)(void *error_ctx, const char *kind, const char *message);

/* Any C function of at most four words: on the calling conventions of 64-bit systems a callee ignores words that it
 * does not take, and reads the lower half of one where it takes 32 bits. */
typedef int (*Function)(uint64_t, uint64_t, uint64_t, uint64_t);

/* The tensors of probes. */

/* Lies before the managed tensor of a probe, which is never freed: calls of its deleter that come too often count. */
typedef struct {
    _Atomic uint64_t deleted;
    _Atomic uint64_t destroyed; /* capsules that nobody had consumed */
    uint8_t *memory;            /* what the first deletion overwrites, or NULL */
    uint64_t size;
    uint64_t reserved[4];
} Counter;

_Static_assert(sizeof(Counter) == 64, "probe.py puts the managed tensor 64 bytes behind it");

#define FREED 0xCB
#define NOWHERE ((void *)0xDEAD000000000000) /* no address that can be read */

static Counter *counter_of(void *managed) {
    return (Counter *)managed - 1;
}

/* Who reads a tensor after its deletion finds neither its elements nor its shape. */
static void deleted(void *managed, DLTensor *tensor) {
    Counter *counter = counter_of(managed);
    if (atomic_fetch_add(&counter->deleted, 1) > 0) return;
    if (counter->memory != NULL) memset(counter->memory, FREED, counter->size);
    tensor->data = NOWHERE;
    tensor->shape = NOWHERE;
    tensor->strides = NOWHERE;
}

static void delete_versioned(DLManagedTensorVersioned *self) {
    deleted(self, &self->dl_tensor);
}

static void delete_unversioned(DLManagedTensor *self) {
    deleted(self, &self->dl_tensor);
}

/* The destructor of a probe's capsules (R3, R4). CPython may call it while an exception is pending, which a deleter
 * must not see. */
static void destroy(PyObject *capsule) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        atomic_fetch_add(&counter_of(managed)->destroyed, 1);
        if (managed->deleter != NULL) managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
        atomic_fetch_add(&counter_of(managed)->destroyed, 1);
        if (managed->deleter != NULL) managed->deleter(managed);
    }
    PyErr_Restore(type, value, traceback);
}

void functions(uintptr_t out[3]) {
    out[0] = (uintptr_t)delete_versioned;
    out[1] = (uintptr_t)delete_unversioned;
    out[2] = (uintptr_t)destroy;
}

/* The exchange tables of probes. */

/* Answers their functions. Never released, and neither is one that another replaces: a thread may be calling it. */
static _Atomic(PyObject *) hook;

/* The hook gives a code, or an exception to leave behind a success; what it raises is left behind a failure. */
static int answer(int function, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    if (!Py_IsInitialized()) return -1; /* Python has ended, which C code outlives */
    PyGILState_STATE state = PyGILState_Ensure();
    int code = -1;
    PyObject *found = PyObject_CallFunction(
        atomic_load(&hook), "iKKKK", function, (unsigned long long)a, (unsigned long long)b, (unsigned long long)c,
        (unsigned long long)d
    );
    if (found != NULL && PyExceptionInstance_Check(found)) {
        PyErr_SetObject((PyObject *)Py_TYPE(found), found);
        code = 0;
    } else if (found != NULL) {
        code = (int)PyLong_AsLong(found); /* -1, and a TypeError, for what is no integer */
    }
    Py_XDECREF(found);
    PyGILState_Release(state);
    return code;
}

static int allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx, SetError set_error) {
    return answer(0, (uintptr_t)prototype, (uintptr_t)out, (uintptr_t)error_ctx, (uintptr_t)set_error);
}

static int from_py_object(void *py_object, DLManagedTensorVersioned **out) {
    return answer(1, (uintptr_t)py_object, (uintptr_t)out, 0, 0);
}

static int to_py_object(DLManagedTensorVersioned *tensor, void **out) {
    return answer(2, (uintptr_t)tensor, (uintptr_t)out, 0, 0);
}

static int dltensor_from_py_object(void *py_object, DLTensor *out) {
    return answer(3, (uintptr_t)py_object, (uintptr_t)out, 0, 0);
}

static int current_work_stream(DLDeviceType device_type, int32_t device_id, void **out) {
    return answer(4, (uint64_t)device_type, (uint64_t)device_id, (uintptr_t)out, 0);
}

/* In the order of `DLPackExchangeAPI`. */
void table(PyObject *answering, uintptr_t out[5]) {
    Py_INCREF(answering);
    atomic_store(&hook, answering);
    out[0] = (uintptr_t)allocate;
    out[1] = (uintptr_t)from_py_object;
    out[2] = (uintptr_t)to_py_object;
    out[3] = (uintptr_t)dltensor_from_py_object;
    out[4] = (uintptr_t)current_work_stream;
}

/* Calls of the target's functions. */

/* Take the pending exception, NULL if there is none; the stable ABI of 3.11 has no function for it. */
static PyObject *taken(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL) return NULL;
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) PyException_SetTraceback(value, traceback);
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
}

/* The code of a function, and the exception that it left: ctypes would raise it, and lose the code (R123). */
PyObject *call(uintptr_t address, const uint64_t words[4]) {
    if (address == 0) {
        PyErr_SetString(PyExc_RuntimeError, "NULL");
        return NULL;
    }
    int code = ((Function)address)(words[0], words[1], words[2], words[3]);
    PyObject *left = taken();
    return Py_BuildValue("(iN)", code, left != NULL ? left : Py_NewRef(Py_None));
}

typedef struct {
    Function deleter;
    uint64_t managed;
} Deletion;

static void *deleting(void *given) {
    Deletion *deletion = given;
    deletion->deleter(deletion->managed, 0, 0, 0);
    return NULL;
}

/* On a thread that Python does not know, while this one is detached: a deleter may need the GIL (R13). */
int delete_elsewhere(uintptr_t address, uint64_t managed) {
    Deletion deletion = {(Function)address, managed};
    pthread_t thread;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = pthread_create(&thread, NULL, deleting, &deletion);
    if (!failed) pthread_join(thread, NULL);
    Py_END_ALLOW_THREADS
    return failed;
}

/* Drop the last item of a list while an exception is pending; return the one that is pending afterwards (R5). */
PyObject *drop_pending(PyObject *list) {
    PyObject *last = PyObject_CallMethod(list, "pop", NULL);
    if (last == NULL) return NULL;
    PyErr_SetString(PyExc_KeyError, "pending");
    Py_DECREF(last);
    PyObject *left = taken();
    return left != NULL ? left : Py_NewRef(Py_None);
}

/* Its context is the address of the count (R135). */
static void count_error(void *error_ctx, const char *kind, const char *message) {
    (void)kind;
    (void)message;
    atomic_fetch_add((_Atomic uint64_t *)error_ctx, 1);
}

uintptr_t error_counter(void) {
    return (uintptr_t)count_error;
}

/* The target's tensors: their deleters count, too. */

/* Never freed: a deleter may be called until the process ends, by any thread, and needs no lock to read the list. */
typedef struct Watch {
    uintptr_t managed;
    Function deleter; /* the struct's own, or NULL */
    _Atomic uint64_t count;
    struct Watch *older;
} Watch;

static _Atomic(Watch *) newest;

/* The newest, because memory is reused: a later struct may be at the same address. */
static Watch *watch_of(uintptr_t managed) {
    Watch *each = atomic_load(&newest);
    while (each != NULL && each->managed != managed) each = each->older;
    return each;
}

static void pass_on(void *managed) {
    Watch *watch = watch_of((uintptr_t)managed);
    if (watch == NULL) return;
    atomic_fetch_add(&watch->count, 1);
    if (watch->deleter != NULL) watch->deleter((uintptr_t)managed, 0, 0, 0);
}

/* Put a deleter that counts into the field of a live struct. */
int watch(uintptr_t managed, uintptr_t *field) {
    Watch *made = malloc(sizeof *made);
    if (made == NULL) return -1;
    made->managed = managed;
    made->deleter = (Function)*field;
    if (*field == (uintptr_t)pass_on) {
        /* A struct that its library hands out again: `pass_on` would call itself. */
        Watch *before = watch_of(managed);
        made->deleter = before != NULL ? before->deleter : NULL;
    }
    atomic_init(&made->count, 0);
    made->older = atomic_load(&newest);
    while (!atomic_compare_exchange_weak(&newest, &made->older, made)) {
    }
    *field = (uintptr_t)pass_on;
    return 0;
}

uint64_t watched(uintptr_t managed) {
    Watch *watch = watch_of(managed);
    return watch != NULL ? atomic_load(&watch->count) : 0;
}
