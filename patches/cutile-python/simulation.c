/* A CUDA driver and an array, both of which write down what happens to them.
 *
 * The driver has a device and a context; functions that are not below succeed and do nothing.
 * Events are done when `finish` says so.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack.h>
#include <stdint.h>
#include <string.h>

static PyObject *journal; /* a list of lines */
static intptr_t events, done;
static int is_capturing, failing_launches;

static void note(const char *format, ...) {
    va_list values;
    va_start(values, format);
    PyObject *line = PyUnicode_FromFormatV(format, values);
    va_end(values);
    if (line == NULL || PyList_Append(journal, line) < 0) PyErr_WriteUnraisable(NULL);
    Py_XDECREF(line);
}

/* ===== the driver ===== */

enum { SUCCESS = 0, NOT_READY = 600, LAUNCH_FAILED = 719 };

static int succeed(void) { return SUCCESS; }

static int error_text(int code, const char **out) {
    *out = code == LAUNCH_FAILED ? "unspecified launch failure" : "no error";
    return SUCCESS;
}

static int version(int *out) { return *out = 13020, SUCCESS; }
static int count(int *out) { return *out = 1, SUCCESS; }
static int device(int *out, int ordinal) { return *out = ordinal, SUCCESS; }
static int attribute(int *out, int which, int of) { return (void)which, (void)of, *out = 9, SUCCESS; }
static int device_of(int *out, void *context) { return (void)context, *out = 0, SUCCESS; }
static int current(void **out) { return *out = (void *)0xC0, SUCCESS; }
static int context_of(void *stream, void **out) { return (void)stream, *out = (void *)0xC0, SUCCESS; }
static int made(void **out) { return *out = (void *)0xE0, SUCCESS; }

static int capturing(void *stream, int *out) { return (void)stream, *out = is_capturing, SUCCESS; }

static int create(intptr_t *out, unsigned flags) {
    return (void)flags, *out = ++events, SUCCESS;
}

static int record(intptr_t event, void *stream) {
    return note("event %zd is recorded on %p", (Py_ssize_t)event, stream), SUCCESS;
}

static int await(void *stream, intptr_t event, unsigned flags) {
    return (void)flags, note("%p waits for event %zd", stream, (Py_ssize_t)event), SUCCESS;
}

static int query(intptr_t event) { return event <= done ? SUCCESS : NOT_READY; }

static int synchronize(intptr_t event) {
    return note("the host waits for event %zd", (Py_ssize_t)event), SUCCESS;
}

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
} Config;

static int launch(const Config *config, void *function, void **parameters, void **extra) {
    (void)function, (void)extra;
    if (failing_launches > 0) return failing_launches--, LAUNCH_FAILED;
    return note("the kernel is launched on %p with %p", config->stream, *(void **)parameters[0]),
           SUCCESS;
}

static int address(const char *name, void **out, int cuda, uint64_t flags, void *status) {
    static const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuGetErrorString", (void *)error_text}, {"cuDriverGetVersion", (void *)version},
        {"cuDeviceGetCount", (void *)count},      {"cuDeviceGet", (void *)device},
        {"cuDeviceGetAttribute", (void *)attribute},
        {"cuCtxGetCurrent", (void *)current},     {"cuStreamGetCtx", (void *)context_of},
        {"cuLibraryLoadData", (void *)made},      {"cuLibraryGetKernel", (void *)made},
        {"cuStreamIsCapturing", (void *)capturing},
        {"cuEventCreate", (void *)create},        {"cuEventRecord", (void *)record},
        {"cuStreamWaitEvent", (void *)await},     {"cuEventQuery", (void *)query},
        {"cuEventSynchronize", (void *)synchronize},
        {"cuLaunchKernelEx", (void *)launch},
    };
    (void)flags, (void)status;
    *out = (void *)succeed;
    if (strcmp(name, "cuCtxGetDevice") == 0 && cuda >= 13000) *out = (void *)device_of;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(name, functions[i].name) == 0) *out = functions[i].function;
    return SUCCESS;
}

/* ===== the array ===== */

static int64_t shape[] = {8}, strides[] = {1};

static DLTensor described(int type, int id) {
    DLTensor t = {(void *)0x1000, {(DLDeviceType)type, id}, 1, {kDLFloat, 32, 1}, shape, strides, 0};
    return t;
}

static void delete_versioned(DLManagedTensorVersioned *self) {
    PyGILState_STATE state = PyGILState_Ensure();
    note("the array is deleted");
    PyGILState_Release(state);
    PyMem_RawFree(self);
}

static void delete_legacy(DLManagedTensor *self) {
    PyGILState_STATE state = PyGILState_Ensure();
    note("the array is deleted");
    PyGILState_Release(state);
    PyMem_RawFree(self);
}

static void destroy(PyObject *capsule) {
    void *managed = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (PyCapsule_IsValid(capsule, "dltensor")) delete_legacy(managed);
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) delete_versioned(managed);
}

/* capsule(versioned, flags, device type, device id) */
static PyObject *capsule(PyObject *module, PyObject *args) {
    int versioned, flags, type, id;
    (void)module;
    if (!PyArg_ParseTuple(args, "piii", &versioned, &flags, &type, &id)) return NULL;
    if (!versioned) {
        DLManagedTensor *m = PyMem_RawCalloc(1, sizeof *m);
        if (m == NULL) return PyErr_NoMemory();
        m->dl_tensor = described(type, id);
        m->deleter = delete_legacy;
        return PyCapsule_New(m, "dltensor", destroy);
    }
    DLManagedTensorVersioned *m = PyMem_RawCalloc(1, sizeof *m);
    if (m == NULL) return PyErr_NoMemory();
    m->version.major = 1;
    m->flags = (uint64_t)flags;
    m->dl_tensor = described(type, id);
    m->deleter = delete_versioned;
    return PyCapsule_New(m, "dltensor_versioned", destroy);
}

/* ===== the table of another class ===== */

static int lend(void *self, DLTensor *out) { return (void)self, *out = described(kDLCUDA, 0), 0; }
static int work_stream(DLDeviceType type, int32_t id, void **out) {
    return (void)type, (void)id, *out = (void *)0x90, 0;
}
static int refuse(void *self, DLManagedTensorVersioned **out) {
    (void)self, (void)out;
    PyErr_SetString(PyExc_BufferError, "it only lends");
    return -1;
}
static DLPackExchangeAPI table = {{{1, 3}, NULL}, NULL, refuse, NULL, lend, work_stream};

/* ===== the module ===== */

static PyObject *finish(PyObject *module, PyObject *none) {
    (void)module, (void)none, done = events;
    Py_RETURN_NONE;
}

static PyObject *capture(PyObject *module, PyObject *is) {
    (void)module, is_capturing = is == Py_True;
    Py_RETURN_NONE;
}

static PyObject *fail_launch(PyObject *module, PyObject *none) {
    (void)module, (void)none, failing_launches++;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"capsule", capsule, METH_VARARGS, NULL},
                                  {"finish", finish, METH_NOARGS, NULL},
                                  {"capture", capture, METH_O, NULL},
                                  {"fail_launch", fail_launch, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "simulation", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_simulation(void) {
    static void *get = (void *)address;
    PyObject *module = PyModule_Create(&definition);
    journal = PyList_New(0);
    if (module == NULL || journal == NULL ||
        PyModule_AddObject(module, "journal", Py_NewRef(journal)) < 0 ||
        PyModule_AddObject(module, "cuGetProcAddress_v2_ptrptr", PyLong_FromVoidPtr(&get)) < 0 ||
        PyModule_AddObject(module, "table", PyCapsule_New(&table, "dlpack_exchange_api", NULL)) < 0)
        return NULL;
    return module;
}
