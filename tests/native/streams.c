/* Streams without a GPU: two classes that say they are on a device, and a driver that writes down what it is asked. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdio.h>
static char text[4096];
static int next, done_until, fail_next, fail_waits;
static void note(const char *what, long a, long b) { size_t n = strlen(text); PyOS_snprintf(text + n, sizeof text - n, "%s(%ld,%ld) ", what, a, b); }
static int create(int *e) { if (fail_next) return fail_next--, 1; *e = ++next; return 0; }
static int record(int e, void *s) { note("record", e, (long)(intptr_t)s); return 0; }
static int await(void *s, int e) { note("await", (long)(intptr_t)s, e); return 0; }
#define DLX_EVENT int
#define DLX_EVENT_CREATE(e) create(e)
#define DLX_EVENT_RECORD(e, s) record(e, s)
#define DLX_EVENT_AWAIT(s, e) await(s, e)
#define DLX_EVENT_PENDING(e) ((e) > done_until)
#define DLX_EVENT_WAIT(e) (note("wait", e, 0), fail_waits)
#define DLX_EVENT_DESTROY(e) ((void)(e))
#define DLX_LATE 4
#include "dlpack_exchange_streams.h"
#include "dlpack_exchange_producer.h"

typedef struct { PyObject_HEAD int64_t shape[1], strides[1]; int id; } Fake;
static void *stream_a = (void *)0x70, *stream_b = (void *)0x80;
static int deleted;

static int fill(PyObject *self, DLTensor *t, uint64_t *flags) {
    Fake *fake = (Fake *)self;
    (void)flags;
    t->data = (void *)(uintptr_t)0x100000;
    t->device.device_type = kDLCUDA, t->device.device_id = fake->id;
    t->dtype.code = kDLFloat, t->dtype.bits = 32, t->dtype.lanes = 1;
    t->ndim = 1, t->shape = fake->shape, t->strides = fake->strides;
    return 0;
}
static PyObject *make(DLManagedTensorVersioned *m) { (void)m; return PyErr_Format(PyExc_BufferError, "nothing is made of it"); }
static int order(PyObject *self, void *stream) { (void)self; note("order", (long)(intptr_t)stream, 0); return 0; }
static int work_a(DLDeviceType t, int32_t i, void **out) { (void)t, (void)i; *out = stream_a; return 0; }
static int work_b(DLDeviceType t, int32_t i, void **out) { (void)t, (void)i; *out = stream_b; return 0; }
DLX_PRODUCER_ON(first, fill, make, order, work_a, dlx_cpu_allocate)
DLX_PRODUCER_ON(second, fill, make, order, work_b, dlx_cpu_allocate)
DLX_PRODUCER_ON(third, fill, make, order, work_b, dlx_cpu_allocate) /* its class loses its table again */

static void fake_free(PyObject *self) { PyTypeObject *type = Py_TYPE(self); deleted++; PyObject_Free(self); Py_DECREF((PyObject *)type); }
static PyTypeObject *types[3];
static PyObject *fake(PyObject *module, PyObject *args) {
    int which, id = 0;
    Fake *f;
    (void)module;
    if (!PyArg_ParseTuple(args, "i|i", &which, &id)) return NULL;
    f = (Fake *)PyType_GenericAlloc(types[which], 0);
    if (f != NULL) f->shape[0] = 3, f->strides[0] = 1, f->id = id;
    return (PyObject *)f;
}
/* run(xs, stream or None, write) -> (status, stream, log, deleted): borrow, join, release_after */
static PyObject *run(PyObject *module, PyObject *args) {
    PyObject *xs, *stream, *drop = NULL;
    int write = 0, status, i;
    dlx_want wants[8];
    dlx_view vs[8];
    dlx_stream on = {{(DLDeviceType)0, 0}, NULL, NULL};
    PyObject *items[8];
    (void)module;
    if (!PyArg_ParseTuple(args, "OO|i", &xs, &stream, &write)) return NULL;
    memset(wants, 0, sizeof wants);
    for (i = 0; i < PyList_Size(xs); i++) items[i] = PyList_GetItem(xs, i), wants[i].flags = write ? DLX_WRITE : 0;
    if (stream != Py_None) on.device.device_type = kDLCUDA, on.handle = PyLong_AsVoidPtr(stream);
    text[0] = 0;
    status = dlx_borrow_all(items, wants, i, &on, vs);
    if (status < 0) return NULL;
    if (status == 1 && dlx_join(vs, i, &on) < 0) return NULL;
    note("kernel", (long)(intptr_t)on.handle, 0);
    if (PyList_SetSlice(xs, 0, i, drop) < 0) return NULL; /* the arguments die here */
    if (dlx_release_after(vs, i, &on) < 0) return NULL;
    return Py_BuildValue("isi", status, text, deleted);
}
/* keep(x, stream or None) -> (status, stream, the library's stream): import and delete */
static PyObject *keep(PyObject *module, PyObject *args) {
    PyObject *x, *stream;
    DLManagedTensorVersioned *kept;
    dlx_stream on = {{(DLDeviceType)0, 0}, NULL, NULL};
    int status;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &x, &stream)) return NULL;
    if (stream != Py_None) on.device.device_type = kDLCUDA, on.handle = PyLong_AsVoidPtr(stream);
    status = dlx_import(x, NULL, &on, &kept);
    if (status < 0) return NULL;
    dlx_delete(kept);
    return Py_BuildValue("iNN", status, PyLong_FromVoidPtr(on.handle), PyLong_FromVoidPtr(on.other));
}
static PyObject *pass(PyObject *module, PyObject *args) {
    (void)module;
    if (!PyArg_ParseTuple(args, "i|ii", &done_until, &fail_next, &fail_waits)) return NULL;
    dlx_collect();
    return Py_BuildValue("ii", deleted, dlx__late_count);
}
static PyMethodDef functions[] = {{"fake", fake, METH_VARARGS, NULL}, {"run", run, METH_VARARGS, NULL}, {"keep", keep, METH_VARARGS, NULL}, {"collect", pass, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "streams", NULL, -1, functions, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_streams(void) {
    static PyType_Slot slots[] = {{Py_tp_dealloc, __extension__(void *)fake_free}, {0, NULL}};
    static PyType_Spec spec = {"streams.Fake", sizeof(Fake), 0, Py_TPFLAGS_DEFAULT, slots};
    int i;
    for (i = 0; i < 3; i++) if ((types[i] = (PyTypeObject *)PyType_FromSpec(&spec)) == NULL) return NULL;
    if (first_publish(types[0]) < 0 || second_publish(types[1]) < 0 || third_publish(types[2]) < 0) return NULL;
    if (PyObject_DelItemString(PyObject_GetAttrString((PyObject *)types[2], "__dict__"), "x") < 0) PyErr_Clear();
    if (PyObject_SetAttrString((PyObject *)types[2], "__dlpack_c_exchange_api__", NULL) < 0) return NULL;
    return PyModule_Create(&definition);
}
