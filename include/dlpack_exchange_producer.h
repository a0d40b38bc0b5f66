/* SPDX-License-Identifier: Apache-2.0
 *
 * dlpack_exchange_producer.h: classes whose tensors every Python array library takes, and results
 * in the library of an argument, by DLPack 1.3.
 *
 * Copy this file beside dlpack_exchange.h, which it includes, and whose first comment holds here.
 *
 *   DLX_PRODUCER                        a class with an exchange table and __dlpack__
 *   dlx_empty_like, dlx_export_like     a result in the library of an argument
 *   dlx_object                          a result without an argument to go by */
#ifndef DLPACK_EXCHANGE_PRODUCER_H
#define DLPACK_EXCHANGE_PRODUCER_H
#include "dlpack_exchange.h"

/* ===== results ===== */

/* Allocates elements that the caller fills: in memory of like's library if that has an exchange
 * table with an allocator, else, and for NULL, of the CPU. `shape` has ndim extents, and is copied;
 * strides are row-major, in elements. *out is the caller's until he gives it to dlx_export_like or
 * dlx_delete. Raises what the allocator says, BufferError or MemoryError, and BufferError if it
 * gives other memory than that.
 *
 *     DLManagedTensorVersioned *out;
 *     const DLTensor *t = &view.tensor;
 *     if (dlx_empty_like(x, t->device, t->dtype, t->ndim, t->shape, &out) < 0) return NULL;
 *     scale(t, (float *)out->dl_tensor.data);
 *     return dlx_export_like(out, x); */
static inline int dlx_empty_like(PyObject *like, DLDevice device, DLDataType dtype, int32_t ndim,
                                 const int64_t *shape, DLManagedTensorVersioned **out);

/* Makes an object of like's library: by its table, or by from_dlpack of its namespace or module. A
 * `like` of NULL is dlx_object's class. `managed` is taken over whatever happens: a failure, which
 * returns NULL, has deleted it. Raises what the library raises, and BufferError if that has no
 * from_dlpack, or takes the elements as narrower ones, as JAX does without jax_enable_x64. */
static inline PyObject *dlx_export_like(DLManagedTensorVersioned *managed, PyObject *like);

/* Makes an object that does nothing but export: it has a table, and __dlpack__. It takes `managed`
 * over if it succeeds; strides are required where there are dimensions, else BufferError. */
static inline PyObject *dlx_object(DLManagedTensorVersioned *managed);

/* ===== a class ===== */

/* Describes self: data, device, dtype, ndim, and shape and strides, in elements, which self keeps
 * unchanged (strides are required where there are dimensions); *flags may become READ_ONLY. Both
 * come zeroed. Returns -1 with an exception if self cannot be described. */
typedef int (*dlx_fill)(PyObject *self, DLTensor *out, uint64_t *flags);

/* Makes an object of a tensor, which it takes over; or sets an exception, leaves the tensor alone,
 * and returns NULL. */
typedef PyObject *(*dlx_make)(DLManagedTensorVersioned *managed);

/* Makes `stream` (1: CUDA's default one) wait for the work on self; -1 with an exception. */
typedef int (*dlx_order_self)(PyObject *self, void *stream);

typedef struct dlx_producer {
    PyTypeObject *type;
    dlx_fill fill;
    dlx_make make;
    dlx_order_self order; /* NULL: it orders no streams */
} dlx_producer;

/* For the tables of classes in host memory: managed_tensor_allocator and current_work_stream, as in
 * dlpack.h. They need no thread that is attached. */
typedef void (*dlx_set_error)(void *context, const char *kind, const char *message);
static inline int dlx_cpu_allocate(DLTensor *prototype, DLManagedTensorVersioned **out,
                                   void *context, dlx_set_error set_error);
static inline int dlx_cpu_stream(DLDeviceType type, int32_t id, void **out);

/* Defines name_table, a DLPackExchangeAPI, and name_publish(type), which gives a type the table,
 * __dlpack__ and __dlpack_device__: once, before others use the type, which then lives as long as
 * the process.
 *
 *     static int fill(PyObject *self, DLTensor *t, uint64_t *flags) {
 *         Image *image = (Image *)self;
 *         t->data = image->pixels;
 *         t->device.device_type = kDLCPU;
 *         t->dtype.code = kDLUInt, t->dtype.bits = 8, t->dtype.lanes = 1;
 *         t->ndim = 2, t->shape = image->shape, t->strides = image->strides;
 *         return 0;
 *     }
 *     DLX_PRODUCER(image, fill, make)
 *     ...
 *     if (image_publish(Image_Type) < 0) return NULL; */
#define DLX_PRODUCER(name, fill, make)                                                            \
    DLX_PRODUCER_ON(name, fill, make, NULL, dlx_cpu_stream, dlx_cpu_allocate)

/* The same for a class on devices: `order` is a dlx_order_self, `stream` and `allocate` are entries
 * of the table. */
#define DLX_PRODUCER_ON(name, fill, make, order, stream, allocate)                                \
    static dlx_producer name##_producer = {NULL, fill, make, order};                              \
    static inline int name##_from_py(void *x, DLManagedTensorVersioned **out) {                   \
        return dlx__from_py(&name##_producer, x, out);                                            \
    }                                                                                             \
    static inline int name##_to_py(DLManagedTensorVersioned *managed, void **out) {               \
        return dlx__to_py(&name##_producer, managed, out);                                        \
    }                                                                                             \
    static inline int name##_lend(void *x, DLTensor *out) {                                       \
        uint64_t flags;                                                                           \
        return dlx__describe(&name##_producer, x, out, &flags);                                   \
    }                                                                                             \
    static inline PyObject *name##_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n,    \
                                          PyObject *names) {                                      \
        return dlx__dlpack(&name##_producer, self, args, n, names);                               \
    }                                                                                             \
    static inline PyObject *name##_device(PyObject *self, PyObject *unused) {                     \
        (void)unused;                                                                             \
        return dlx__dlpack_device(&name##_producer, self);                                        \
    }                                                                                             \
    static PyMethodDef name##_methods[] = {                                                       \
        {"__dlpack__", (PyCFunction)(void (*)(void))name##_dlpack, METH_FASTCALL | METH_KEYWORDS, \
         "Exports the tensor as a DLPack capsule."},                                              \
        {"__dlpack_device__", name##_device, METH_NOARGS, "(device type, device id)"},            \
        {NULL, NULL, 0, NULL}};                                                                   \
    static DLPackExchangeAPI name##_table = {{{DLPACK_MAJOR_VERSION, 3}, NULL}, allocate,         \
        name##_from_py, name##_to_py, name##_lend, stream};                                       \
    static inline int name##_publish(PyTypeObject *type) {                                        \
        return dlx__publish(type, &name##_producer, &name##_table, name##_methods);               \
    }

/* What follows is how it works: managed tensors, exports, __dlpack__, tables; then results. */

/* ===== managed tensors ===== */

typedef struct dlx__made { /* of either generation, with its dimensions behind it */
    union { DLManagedTensorVersioned versioned; DLManagedTensor legacy; } as; /* first */
    PyObject *owner;                                                          /* or NULL */
    int64_t dims[1];
} dlx__made;

/* Gives an object back in any thread; leaks it once the interpreter is going (R13, R14). */
static inline void dlx__give_back(PyObject *owner) {
    PyObject *error, *value, *trace;
    PyGILState_STATE state;
    if (owner == NULL || !Py_IsInitialized()) return;
#if !DLX__OPAQUE && PY_VERSION_HEX < 0x030D0000
    if (_Py_IsFinalizing()) return;
#elif !defined(Py_LIMITED_API) || Py_LIMITED_API >= 0x030D0000
    if (Py_IsFinalizing()) return;
#endif
    state = PyGILState_Ensure();
    PyErr_Fetch(&error, &value, &trace);
    Py_DECREF(owner);
    PyErr_Restore(error, value, trace);
    PyGILState_Release(state);
}

static inline void dlx__delete_versioned(DLManagedTensorVersioned *self) {
    dlx__give_back(((dlx__made *)self)->owner);
    free(self);
}

static inline void dlx__delete_legacy(DLManagedTensor *self) {
    dlx__give_back(((dlx__made *)self)->owner);
    free(self);
}

/* A copy of t in row-major order with room for `bytes` of elements; or, if that is 0, t itself. */
static inline dlx__made *dlx__make(const DLTensor *t, uint64_t flags, size_t bytes, int legacy) {
    size_t n = (size_t)t->ndim, head = sizeof(dlx__made) + 2 * n * sizeof(int64_t);
    dlx__made *made = (dlx__made *)malloc(bytes != 0 ? head + 255 + bytes : head);
    uint64_t step = 1;
    DLTensor *out;
    if (made == NULL) return NULL;
    memset(made, 0, sizeof *made);
    out = legacy ? &made->as.legacy.dl_tensor : &made->as.versioned.dl_tensor;
    *out = *t;
    out->shape = made->dims;
    out->strides = made->dims + n;
    if (n != 0) memcpy(out->shape, t->shape, n * sizeof(int64_t));
    if (n != 0 && t->strides != NULL) memcpy(out->strides, t->strides, n * sizeof(int64_t));
    for (; (bytes != 0 || t->strides == NULL) && n > 0; n--) {
        out->strides[n - 1] = (int64_t)step;
        step *= (uint64_t)t->shape[n - 1];
    }
    if (bytes != 0) { /* aligned to 256 bytes (R96) */
        out->data = (void *)(((uintptr_t)made + head + 255) & ~(uintptr_t)255);
        out->byte_offset = 0;
    }
    if (legacy) {
        made->as.legacy.deleter = dlx__delete_legacy;
    } else {
        made->as.versioned.version.major = DLPACK_MAJOR_VERSION;
        made->as.versioned.version.minor = 3;
        made->as.versioned.flags = flags;
        made->as.versioned.deleter = dlx__delete_versioned;
    }
    return made;
}

static inline int dlx_cpu_allocate(DLTensor *prototype, DLManagedTensorVersioned **out,
                                   void *context, dlx_set_error set_error) {
    DLTensor t = *prototype;
    dlx__made *made = NULL;
    double bits = (double)t.dtype.bits * t.dtype.lanes;
    int32_t i;
    int bad, is_odd = t.device.device_type != kDLCPU || !dlx__is_dtype(t.dtype) || t.ndim < 0 ||
                      (t.ndim > 0 && t.shape == NULL);
    for (i = 0; !is_odd && i < t.ndim; i++) {
        is_odd = t.shape[i] < 0;
        bits *= (double)t.shape[i];
    }
    bad = is_odd || !(bits < 4e18);
    t.data = NULL;
    t.strides = NULL;
    t.byte_offset = 0;
    if (!bad) made = dlx__make(&t, 0, (size_t)((bits + 7) / 8), 0);
    if (made != NULL) *out = &made->as.versioned;
    else if (set_error != NULL && is_odd) /* exactly if it fails (R137) */
        set_error(context, "BufferError", "no host memory has this device, dtype or shape");
    else if (set_error != NULL)
        set_error(context, bad ? "BufferError" : "MemoryError",
                  "it does not fit into host memory");
    return made != NULL ? 0 : -1;
}

static inline int dlx_cpu_stream(DLDeviceType type, int32_t id, void **out) {
    (void)type, (void)id;
    *out = NULL;
    return 0;
}

/* ===== exports ===== */

static inline int dlx__describe(const dlx_producer *p, void *self, DLTensor *t, uint64_t *flags) {
    int32_t i;
    if (p->type == NULL || !PyObject_TypeCheck((PyObject *)self, p->type))
        return DLX__MISTAKE(NULL, "the table is of %R, and asked for one of %R",
                            (PyObject *)p->type, (PyObject *)Py_TYPE((PyObject *)self));
    memset(t, 0, sizeof *t);
    *flags = 0;
    if (p->fill((PyObject *)self, t, flags) < 0) return -1;
    if (t->ndim < 0 || (t->ndim > 0 && (t->shape == NULL || t->strides == NULL)))
        return DLX__REFUSE(NULL, "%R gives no shape or no strides", (PyObject *)p->type);
    for (i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0)
            return DLX__REFUSE(NULL, "extent %d is negative: %lld", (int)i, (long long)t->shape[i]);
        if (t->shape[i] == 0) t->data = NULL, t->byte_offset = 0; /* R93 */
    }
    return 0;
}

/* Copies elements of whole bytes to memory in row-major order. */
static inline void dlx__copy(char **to, const char *from, const DLTensor *t, int32_t dim,
                             size_t size) {
    int64_t i;
    if (dim == t->ndim) {
        memcpy(*to, from, size);
        *to += size;
        return;
    }
    for (i = 0; i < t->shape[dim]; i++)
        dlx__copy(to, from + i * t->strides[dim] * (int64_t)size, t, dim + 1, size);
}

static inline dlx__made *dlx__export(const dlx_producer *p, PyObject *self, int legacy, int copy) {
    dlx__made *made;
    DLTensor t;
    uint64_t flags;
    size_t bits, bytes;
    double size = 1;
    char *to;
    int32_t i;
    if (dlx__describe(p, self, &t, &flags) < 0) return NULL;
    if (legacy && flags & DLPACK_FLAG_BITMASK_READ_ONLY && !copy) { /* R40 */
        DLX__REFUSE(NULL, "read-only memory needs a versioned capsule: pass max_version=(1, 3)");
        return NULL;
    }
    bits = (size_t)t.dtype.bits * t.dtype.lanes;
    if (copy && (!dlx__is_host((int)t.device.device_type) || bits % 8 != 0)) {
        DLX__REFUSE(NULL, "a copy is made of whole bytes in host memory only");
        return NULL;
    }
    bytes = copy ? bits / 8 : 0;
    for (i = 0; i < t.ndim; i++) {
        size *= (double)t.shape[i];
        bytes *= (size_t)t.shape[i];
    }
    if (copy && !(size * (double)bits < 4e18)) { /* broadcast: the tensor itself is small */
        DLX__REFUSE(NULL, "it does not fit into host memory");
        return NULL;
    }
    if (copy) {
        flags = DLPACK_FLAG_BITMASK_IS_COPIED;
        t.device.device_type = kDLCPU; /* of pinned memory, too */
        t.device.device_id = 0;
    }
    made = dlx__make(&t, flags, bytes, legacy);
    if (made == NULL) {
        PyErr_NoMemory();
    } else if (!copy) {
        Py_INCREF(self);
        made->owner = self;
    } else if (bytes != 0) {
        to = (char *)(legacy ? made->as.legacy.dl_tensor.data : made->as.versioned.dl_tensor.data);
        dlx__copy(&to, (char *)t.data + t.byte_offset, &t, 0, bits / 8);
    }
    return made;
}

/* ===== __dlpack__ ===== */

static inline void dlx__destroy_capsule(PyObject *capsule) { /* R3-R5 */
    int legacy = PyCapsule_IsValid(capsule, "dltensor");
    const char *name = legacy ? "dltensor" : "dltensor_versioned";
    if (PyCapsule_IsValid(capsule, name))
        dlx__delete_attached(PyCapsule_GetPointer(capsule, name), legacy);
}

static inline int dlx__pair(PyObject *value, const char *name, long pair[2]) {
    if (!PyTuple_Check(value) || PyTuple_Size(value) != 2)
        return DLX__MISTAKE(NULL, "%s is %R, expected is None or a pair of ints", name, value);
    pair[0] = PyLong_AsLong(PyTuple_GetItem(value, 0));
    pair[1] = PyLong_AsLong(PyTuple_GetItem(value, 1));
    return PyErr_Occurred() ? -1 : 0;
}

/* Does what stream= asks for (R70-R79). */
static inline int dlx__order_export(const dlx_producer *p, PyObject *self, int device_type,
                                    PyObject *stream) {
    int is_rocm = device_type == kDLROCM;
    long long s = is_rocm ? 0 : 1;
    if (stream == NULL) {
        if (!dlx__has_streams(device_type)) return 0;
    } else {
        if (!PyLong_Check(stream) || PyBool_Check(stream))
            return DLX__MISTAKE(NULL, "stream is %R, expected is None or an int", stream);
        s = PyLong_AsLongLong(stream);
        if (s == -1) return PyErr_Occurred() ? -1 : 0;
        if (s < 0 || !dlx__has_streams(device_type) || (is_rocm ? s == 1 || s == 2 : s == 0))
            return DLX__REFUSE(NULL, "stream=%lld means nothing on this device", s);
    }
    if (p->order == NULL)
        return DLX__REFUSE(NULL, "%R cannot order streams: pass stream=-1", (PyObject *)p->type);
    return p->order(self, (void *)(uintptr_t)s);
}

static inline PyObject *dlx__dlpack(const dlx_producer *p, PyObject *self, PyObject *const *args,
                                    Py_ssize_t positional, PyObject *names) {
    enum { STREAM, VERSION, DEVICE, COPY, KEYWORDS };
    static const char *const keywords[] = {"stream", "max_version", "dl_device", "copy"};
    PyObject *given[KEYWORDS] = {NULL, NULL, NULL, NULL}, *capsule;
    Py_ssize_t i, k, n = names != NULL ? PyTuple_Size(names) : 0;
    long version[2] = {0, 0}, device[2];
    int copy = 0, legacy;
    uint64_t flags;
    DLTensor t;
    dlx__made *made;
    if (positional != 0) { /* R19 */
        DLX__MISTAKE(NULL, "__dlpack__ takes keywords only");
        return NULL;
    }
    for (i = 0; i < n; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        for (k = 0; k < KEYWORDS && PyUnicode_CompareWithASCIIString(name, keywords[k]) != 0;) k++;
        if (k == KEYWORDS) {
            DLX__MISTAKE(NULL, "__dlpack__ got an unexpected keyword argument %R", name);
            return NULL;
        }
        given[k] = args[i] != Py_None ? args[i] : NULL;
    }
    if (given[VERSION] != NULL && dlx__pair(given[VERSION], "max_version", version) < 0)
        return NULL;
    if (dlx__describe(p, self, &t, &flags) < 0) return NULL;
    device[0] = (long)t.device.device_type;
    device[1] = (long)t.device.device_id;
    if (given[DEVICE] != NULL && dlx__pair(given[DEVICE], "dl_device", device) < 0) return NULL;
    if (device[0] != (long)t.device.device_type || device[1] != (long)t.device.device_id) {
        DLX__REFUSE(NULL, "the tensor is on device (%d, %d), and not moved to (%ld, %ld)",
                    (int)t.device.device_type, (int)t.device.device_id, device[0], device[1]);
        return NULL;
    }
    if (given[COPY] != NULL && (copy = PyObject_IsTrue(given[COPY])) < 0) return NULL;
    if (dlx__order_export(p, self, (int)t.device.device_type, given[STREAM]) < 0) return NULL;
    legacy = version[0] < 1;
    if ((made = dlx__export(p, self, legacy, copy)) == NULL) return NULL;
    capsule = PyCapsule_New(made, legacy ? "dltensor" : "dltensor_versioned", dlx__destroy_capsule);
    if (capsule == NULL) dlx__delete_attached(made, legacy);
    return capsule;
}

static inline PyObject *dlx__dlpack_device(const dlx_producer *p, PyObject *self) {
    DLTensor t;
    uint64_t flags;
    if (dlx__describe(p, self, &t, &flags) < 0) return NULL;
    return Py_BuildValue("(ii)", (int)t.device.device_type, (int)t.device.device_id);
}

/* ===== tables ===== */

static inline int dlx__from_py(const dlx_producer *p, void *self, DLManagedTensorVersioned **out) {
    dlx__made *made = dlx__export(p, (PyObject *)self, 0, 0);
    if (made == NULL) return -1;
    *out = &made->as.versioned;
    return 0;
}

static inline int dlx__to_py(const dlx_producer *p, DLManagedTensorVersioned *managed, void **out) {
    PyObject *object;
    if (managed->version.major != DLPACK_MAJOR_VERSION)
        return DLX__REFUSE(NULL, "it came as DLPack %u.%u, expected is 1.x",
                           (unsigned)managed->version.major, (unsigned)managed->version.minor);
    if ((object = p->make(managed)) == NULL) return -1;
    *out = object;
    return 0;
}

static inline int dlx__publish(PyTypeObject *type, dlx_producer *p, DLPackExchangeAPI *table,
                               PyMethodDef *methods) {
    static const char *const names[] = {"__dlpack_c_exchange_api__", "__dlpack__",
                                        "__dlpack_device__"};
    PyObject *made[3];
    int i, failed = 0;
    made[0] = PyCapsule_New(table, "dlpack_exchange_api", NULL);
    made[1] = PyDescr_NewMethod(type, &methods[0]);
    made[2] = PyDescr_NewMethod(type, &methods[1]);
    for (i = 0; i < 3; i++) {
        if (failed || made[i] == NULL) failed = -1;
#if !DLX__OPAQUE
        else if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) /* setattr refuses static types */
            failed = PyDict_SetItemString(type->tp_dict, names[i], made[i]);
#endif
        else failed = PyObject_SetAttrString((PyObject *)type, names[i], made[i]);
        Py_XDECREF(made[i]);
    }
    PyType_Modified(type);
    if (failed) return -1;
    Py_INCREF((PyObject *)type);
    p->type = type;
    return 0;
}

/* ===== results ===== */

typedef struct dlx__object { PyObject_HEAD DLManagedTensorVersioned *managed; } dlx__object;

static inline int dlx__object_fill(PyObject *self, DLTensor *out, uint64_t *flags) {
    const DLManagedTensorVersioned *managed = ((dlx__object *)self)->managed;
    *out = managed->dl_tensor;
    *flags = managed->flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED;
    return 0;
}

static inline void dlx__object_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    dlx_delete(((dlx__object *)self)->managed);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

DLX_PRODUCER(dlx__object, dlx__object_fill, dlx_object)

static inline PyObject *dlx_object(DLManagedTensorVersioned *managed) {
    dlx__object *self;
    if (dlx__object_producer.type == NULL) {
        /* C has no cast from a function to void *. */
        union { void (*function)(PyObject *); void *pointer; } dealloc = {dlx__object_free};
        PyType_Slot slots[] = {{Py_tp_dealloc, NULL}, {0, NULL}};
        PyType_Spec spec = {"dlpack_exchange.Tensor", sizeof(dlx__object), 0, Py_TPFLAGS_DEFAULT,
                            NULL};
        PyObject *type;
        slots[0].pfunc = dealloc.pointer;
        spec.slots = slots;
        type = PyType_FromSpec(&spec);
        if (type == NULL || dlx__object_publish((PyTypeObject *)type) < 0) {
            Py_XDECREF(type);
            return NULL;
        }
    }
    if (managed->dl_tensor.strides == NULL && managed->dl_tensor.ndim > 0) {
        DLX__REFUSE(NULL, "the tensor has no strides");
        return NULL;
    }
    self = (dlx__object *)PyType_GenericAlloc(dlx__object_producer.type, 0);
    if (self != NULL) self->managed = managed;
    return (PyObject *)self;
}

#if defined(_MSC_VER)
#include <intrin.h>
#define DLX__SHARES_LEFT(count) _InterlockedDecrement(count)
#else
#define DLX__SHARES_LEFT(count) __atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL)
#endif

/* What a foreign to_py is given: it may fail with the tensor deleted, or not (R131). */
typedef struct dlx__offer {
    DLManagedTensorVersioned shell;  /* first */
    DLManagedTensorVersioned *inner; /* NULL once it is deleted */
    long shares;                     /* the library's and ours; whoever is second frees this */
} dlx__offer;

static inline void dlx__delete_offered(DLManagedTensorVersioned *self) {
    dlx__offer *offer = (dlx__offer *)self;
    DLManagedTensorVersioned *inner = offer->inner;
    offer->inner = NULL;
    if (inner->deleter != NULL) inner->deleter(inner);
    if (DLX__SHARES_LEFT(&offer->shares) == 0) free(offer);
}

static inline PyObject *dlx__by_to_py(const DLPackExchangeAPI *api,
                                      DLManagedTensorVersioned *managed) {
    void *object = NULL;
    PyObject *error, *value, *trace;
    dlx__offer *offer = (dlx__offer *)malloc(sizeof *offer);
    int failed;
    if (offer == NULL) {
        dlx_delete(managed);
        return PyErr_NoMemory();
    }
    offer->shell = *managed;
    offer->shell.deleter = dlx__delete_offered;
    offer->inner = managed;
    offer->shares = 2;
    failed = api->managed_tensor_to_py_object_no_sync(&offer->shell, &object) != 0 || !object;
    if (failed && !PyErr_Occurred()) DLX__REFUSE(NULL, "to_py failed without an exception");
    if (failed && offer->inner != NULL) { /* once, whatever the library did */
        PyErr_Fetch(&error, &value, &trace);
        dlx__delete_offered(&offer->shell);
        PyErr_Restore(error, value, trace);
    }
    if (DLX__SHARES_LEFT(&offer->shares) == 0) free(offer);
    return failed ? NULL : (PyObject *)object;
}

/* The function from_dlpack of an array's namespace, or of the module of its class. */
static inline PyObject *dlx__find_from(PyObject *like) {
    PyObject *space = NULL, *from, *name, *top;
    if (PyObject_HasAttrString((PyObject *)Py_TYPE(like), "__array_namespace__")) {
        space = PyObject_CallMethod(like, "__array_namespace__", NULL);
    } else if ((name = PyObject_GetAttrString((PyObject *)Py_TYPE(like), "__module__")) != NULL) {
        top = PyObject_CallMethod(name, "partition", "s", "."); /* of "numpy.ma" the first part */
        Py_DECREF(name);
        if (top != NULL) space = PyImport_Import(PyTuple_GetItem(top, 0));
        Py_XDECREF(top);
    }
    from = space != NULL ? PyObject_GetAttrString(space, "from_dlpack") : NULL;
    if (from == NULL && space != NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        DLX__REFUSE(NULL, "%R has no from_dlpack, so no result can be of its library", space);
    }
    Py_XDECREF(space);
    return from;
}

/* Refuses a result that has lost bits of the elements; where it does not tell, it is believed. */
static inline PyObject *dlx__whole(PyObject *result, DLDataType t) {
    PyObject *dtype = PyObject_GetAttrString(result, "dtype");
    PyObject *size = dtype != NULL ? PyObject_GetAttrString(dtype, "itemsize") : NULL;
    long bytes = size != NULL && PyLong_Check(size) ? PyLong_AsLong(size) : -1;
    char name[40];
    Py_XDECREF(size);
    PyErr_Clear();
    if (bytes >= 0 && bytes < t.bits * t.lanes / 8) {
        DLX__REFUSE(NULL, "the result is %s, and %R took it as %R", dlx__dtype_name(name, t),
                    (PyObject *)Py_TYPE(result), dtype);
        Py_CLEAR(result);
    }
    Py_XDECREF(dtype);
    return result;
}

/* The same, remembered for each type: NumPy's __array_namespace__ imports modules at each call. */
static inline PyObject *dlx__from(PyObject *like) {
    typedef struct { PyTypeObject *type; uintptr_t tag; PyObject *from; } entry;
    DLX__LOCAL entry cache[8];
    PyTypeObject *type = Py_TYPE(like);
    entry *slot = &cache[(uintptr_t)type / 64 % 8], made = {type, dlx__tag(type), NULL}, old;
    if (slot->type == type && slot->tag == made.tag && made.tag != 0) {
        Py_INCREF(slot->from);
        return slot->from;
    }
    if ((made.from = dlx__find_from(like)) == NULL) return NULL;
    if (made.tag == 0 || made.tag != dlx__tag(type)) return made.from;
    if (DLX__OPAQUE && made.tag != 1) return made.from; /* a type that is not held may die */
    old = *slot;
    *slot = made;
    Py_INCREF(made.from);
    Py_XDECREF(old.from);
    return made.from;
}

static inline PyObject *dlx_export_like(DLManagedTensorVersioned *managed, PyObject *like) {
    const DLDataType dtype = managed->dl_tensor.dtype;
    PyObject *holder, *from, *result = NULL;
    dlx__type type = {NULL, 0, NULL, 0, 0, NULL};
    if (like != NULL && dlx__lookup(Py_TYPE(like), &type) < 0) {
        dlx_delete(managed);
        return NULL;
    }
    if (type.api != NULL && type.api->managed_tensor_to_py_object_no_sync != NULL)
        return dlx__by_to_py(type.api, managed);
    holder = dlx_object(managed);
    if (holder == NULL) dlx_delete(managed);
    if (holder == NULL || like == NULL) return holder;
    if ((from = dlx__from(like)) != NULL)
        result = PyObject_CallFunctionObjArgs(from, holder, NULL);
    Py_XDECREF(from);
    Py_DECREF(holder);
    return result != NULL && dtype.bits > 32 ? dlx__whole(result, dtype) : result;
}

static inline void dlx__set_error(void *context, const char *kind, const char *message) {
    PyGILState_STATE state = PyGILState_Ensure();
    int is_memory = strcmp(kind, "MemoryError") == 0, is_buffer = strcmp(kind, "BufferError") == 0;
    (void)context;
    if (is_memory || is_buffer)
        PyErr_SetString(is_memory ? PyExc_MemoryError : PyExc_BufferError, message);
    else PyErr_Format(PyExc_BufferError, "%s: %s", kind, message);
    PyGILState_Release(state);
}

/* Whether an allocator made what a caller fills from `data` on, in row-major order. */
static inline int dlx__is_as_asked(const DLManagedTensorVersioned *made, const DLTensor *asked) {
    const DLTensor *t = &made->dl_tensor;
    uint64_t step = 1;
    int32_t i;
    if (made->version.major != DLPACK_MAJOR_VERSION || t->byte_offset != 0) return 0;
    if (t->ndim != asked->ndim || (t->ndim > 0 && (t->shape == NULL || t->strides == NULL)))
        return 0;
    for (i = t->ndim - 1; i >= 0; i--) {
        int means = t->shape[i] > 1 && step != 0; /* else any stride does */
        if (t->shape[i] != asked->shape[i] || (means && (uint64_t)t->strides[i] != step)) return 0;
        step *= (uint64_t)t->shape[i];
    }
    return memcmp(&t->dtype, &asked->dtype, sizeof t->dtype) == 0;
}

static inline int dlx_empty_like(PyObject *like, DLDevice device, DLDataType dtype, int32_t ndim,
                                 const int64_t *shape, DLManagedTensorVersioned **out) {
    DLPackManagedTensorAllocator allocate = dlx_cpu_allocate;
    DLTensor t = {NULL, device, ndim, dtype, (int64_t *)(uintptr_t)shape, NULL, 0};
    dlx__type type = {NULL, 0, NULL, 0, 0, NULL};
    if (like != NULL && dlx__lookup(Py_TYPE(like), &type) < 0) return -1;
    if (type.api != NULL && type.api->managed_tensor_allocator != NULL)
        allocate = type.api->managed_tensor_allocator;
    *out = NULL;
    if (allocate(&t, out, NULL, dlx__set_error) == 0 && *out != NULL) {
        if (dlx__is_as_asked(*out, &t)) return 0;
        dlx_delete(*out);
        return DLX__REFUSE(NULL, "the allocator of %R gave other memory than was asked for",
                           (PyObject *)Py_TYPE(like));
    }
    if (PyErr_Occurred()) return -1;
    return DLX__REFUSE(NULL, "the allocator of %R failed", (PyObject *)Py_TYPE(like));
}

#endif
