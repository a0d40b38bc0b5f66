/* Tensors that claim a CUDA device where there is none, and the floor of what is done with them.
 *
 * Their library names a stream that `set_stream` sets, and counts how often it is asked. The floor does what cannot be
 * left out: it views or exports each tensor by its table, compares devices and libraries, asks for the stream before
 * and after, and packs addresses. Its driver is null_cuda.c.
 */
#include "c_tensor.h"

#define MOST 64
#define LEGACY ((void *)1)

long driver_calls(void);
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);

static const DLDevice cuda = {kDLCUDA, 0};
static PyObject *stream_keyword; /* set at import */
static void *event;              /* set at import */

/* ---- the library's stream ---- */

static void *current; /* NULL is the default stream, as of torch */
static long asked;

static int work_stream(DLDeviceType type, int32_t id, void **out) {
    (void)type, (void)id;
    asked++;
    *out = current;
    return 0;
}

static PyObject *set_stream(PyObject *module, PyObject *handle) {
    (void)module;
    current = PyLong_AsVoidPtr(handle);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *counts(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    long asks = asked;
    asked = 0;
    return Py_BuildValue("{s:l,s:l}", "asks", asks, "driver calls", driver_calls());
}

/* ---- tensors ---- */

/* A Tensor of 3 by 4 float32 that says it is on a device of this type. */
static PyObject *tensor(PyObject *module, PyObject *type) {
    int64_t shape[] = {3, 4};
    DLTensor prototype = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    DLManagedTensorVersioned *managed;
    (void)module;
    if (table_allocator(&prototype, &managed, NULL, NULL) < 0) return PyErr_NoMemory();
    managed->dl_tensor.device.device_type = (DLDeviceType)PyLong_AsLong(type);
    return new_tensor(managed);
}

/* torch's tensors of this memory claim the device; its others stay where they are. */
static _Alignas(256) char memory[1 << 14];
static DLPackExchangeAPI torch, claiming;

static void claim_view(DLTensor *view) {
    if ((uintptr_t)view->data - (uintptr_t)memory < sizeof memory) view->device = cuda;
}

static int claim_from_py(void *object, DLManagedTensorVersioned **out) {
    int code = torch.managed_tensor_from_py_object_no_sync(object, out);
    if (code == 0) claim_view(&(*out)->dl_tensor);
    return code;
}

static int claim_dltensor_from_py(void *object, DLTensor *out) {
    int code = torch.dltensor_from_py_object_no_sync(object, out);
    if (code == 0) claim_view(out);
    return code;
}

static PyObject *claim(PyObject *module, PyObject *capsule) {
    (void)module;
    const DLPackExchangeAPI *api = capsule_table(capsule);
    if (api == NULL) return NULL;
    torch = claiming = *api;
    claiming.header.prev_api = NULL;
    claiming.managed_tensor_from_py_object_no_sync = claim_from_py;
    claiming.dltensor_from_py_object_no_sync = claim_dltensor_from_py;
    claiming.current_work_stream = work_stream;
    return PyCapsule_New(&claiming, TABLE_NAME, NULL);
}

/* ---- the floor ---- */

static int work_stream_of(const DLPackExchangeAPI *api, DLDevice device, void **out) {
    if (api->current_work_stream(device.device_type, device.device_id, out) != 0) return -1;
    if (*out == NULL) *out = LEGACY;
    return 0;
}

/* A Tensor, by the table of type(x), that is ready on a stream; without one, on no stream. */
static PyObject *from_table(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    DLManagedTensorVersioned *managed;
    void *own;
    (void)module;
    void *stream = nargs == 2 ? PyLong_AsVoidPtr(args[1]) : NULL;
    if (nargs < 1 || PyErr_Occurred()) return NULL;
    const DLPackExchangeAPI *api = lookup(Py_TYPE(args[0]));
    if (api == NULL || api->managed_tensor_from_py_object_no_sync(args[0], &managed) != 0) return NULL;
    const DLDevice *device = &managed->dl_tensor.device;
    if (stream == NULL) return new_tensor(managed);
    if (work_stream_of(api, *device, &own) != 0 ||
        (own != stream && (cuEventRecord(event, own) || cuStreamWaitEvent(stream, event, 0)))) {
        release(managed);
        return PyErr_Format(PyExc_BufferError, "the tensor cannot be ordered");
    }
    return new_tensor(managed);
}

typedef struct {
    const DLPackExchangeAPI *api; /* of the first */
    DLDevice device;              /* of all */
    void *stream;
    uint64_t addresses[MOST + 1];
} Packed;

static int is_plain(const DLTensor *view) {
    int64_t step = 1;
    for (int32_t i = view->ndim - 1; i >= 0; i--) {
        if (view->shape[i] != 1 && view->strides[i] != step) return 0;
        step *= view->shape[i];
    }
    return view->dtype.code == kDLFloat && view->dtype.bits == 32 && view->dtype.lanes == 1;
}

/* The addresses of tensors of one library on one device, row-major and of float32, and that library's stream. */
static int pack(PyObject *const *tensors, Py_ssize_t count, Packed *out) {
    DLTensor view;
    if (count < 1 || count > MOST) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        const DLPackExchangeAPI *api = lookup(Py_TYPE(tensors[i]));
        if (api == NULL || api->dltensor_from_py_object_no_sync(tensors[i], &view) != 0) return -1;
        if (i == 0) {
            out->api = api;
            out->device = view.device;
        }
        if (api->current_work_stream != out->api->current_work_stream || view.device.device_type != kDLCUDA ||
            view.device.device_id != out->device.device_id || !is_plain(&view))
            return -1;
        out->addresses[i] = (uint64_t)(uintptr_t)view.data + view.byte_offset;
    }
    return work_stream_of(out->api, out->device, &out->stream);
}

/* None, if the library names the same stream as before; takes `result`. */
static PyObject *ended(const Packed *packed, PyObject *result) {
    void *after;
    if (result == NULL) return NULL;
    Py_DECREF(result);
    if (work_stream_of(packed->api, packed->device, &after) != 0 || after != packed->stream)
        return PyErr_Format(PyExc_BufferError, "this floor knows one stream");
    Py_RETURN_NONE;
}

static PyObject *refused(void) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_BufferError, "this floor takes plain tensors of one library");
    return NULL;
}

/* In place of the driver's: a pointer to each argument, and nothing is done. */
static __attribute__((noinline)) int launch_kernel(void *stream, void **arguments) {
    __asm__ volatile("" ::"r"(stream), "r"(arguments) : "memory");
    return 0;
}

static PyObject *launch(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    Packed packed;
    void *arguments[MOST];
    (void)module;
    if (pack(args, nargs, &packed) != 0) return refused();
    for (Py_ssize_t i = 0; i < nargs; i++) arguments[i] = &packed.addresses[i];
    PyThreadState *state = PyEval_SaveThread();
    int code = launch_kernel(packed.stream, arguments);
    PyEval_RestoreThread(state);
    return code ? refused() : ended(&packed, Py_NewRef(Py_None));
}

/* launch, by a Python function of the addresses and `stream`. */
static PyObject *call(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    Packed packed;
    PyObject *vector[MOST + 2], *result = NULL;
    Py_ssize_t made = 0, count = nargs - 1;
    size_t flags = (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET;
    (void)module;
    if (pack(args + 1, count, &packed) != 0) return refused();
    packed.addresses[count] = (uint64_t)(uintptr_t)packed.stream; /* the last argument */
    while (made <= count && (vector[made + 1] = PyLong_FromUnsignedLongLong(packed.addresses[made])) != NULL) made++;
    if (made > count) result = PyObject_Vectorcall(args[0], vector + 1, flags, stream_keyword);
    while (made > 0) Py_DECREF(vector[made--]);
    return ended(&packed, result);
}

static PyMethodDef functions[] = {
    {"set_stream", set_stream, METH_O, "set_stream(handle): the libraries' stream from now on."},
    {"counts", counts, METH_NOARGS, "counts(): how often the library and the driver were asked since the last time."},
    {"tensor", tensor, METH_O, "tensor(device_type): Tensor of 3 by 4 float32."},
    {"claim", claim, METH_O, "claim(table): torch's table, which claims CUDA for what lies in `memory`."},
    {"from_table", METHOD(from_table), METH_FASTCALL, "from_table(x[, stream]): Tensor, by the table of type(x)."},
    {"launch", METHOD(launch), METH_FASTCALL, "launch(*tensors): a kernel that does nothing."},
    {"call", METHOD(call), METH_FASTCALL, "call(function, *tensors): function(*addresses, stream=stream)."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "c_device", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_c_device(void) {
    table.current_work_stream = work_stream;
    Tensor_Type.tp_name = "c_device.Tensor";
    stream_keyword = Py_BuildValue("(s)", "stream");
    if (stream_keyword == NULL || cuEventCreate(&event, 0) != 0 || tensor_ready() < 0) return NULL;
    PyObject *view = PyMemoryView_FromMemory(memory, sizeof memory, PyBUF_WRITE);
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || view == NULL || PyModule_AddObjectRef(module, "memory", view) < 0) Py_CLEAR(module);
    Py_XDECREF(view);
    return module;
}
