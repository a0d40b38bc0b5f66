/* A class of one's own, a kernel over arguments of any library, and results in theirs. Also what the tests and benches use. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#ifdef WITH_NUMPY
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#endif
#ifdef COUNTED /* what the headers allocate */
static long allocations;
static void *counted_malloc(size_t n) { allocations++; return malloc(n); }
static void *counted_calloc(size_t n, size_t size) { allocations++; return calloc(n, size); }
#define malloc counted_malloc
#define calloc counted_calloc
#endif
#include "dlpack_exchange_producer.h"

/* ---- consumer ---- */

static PyObject *take(PyObject *module, PyObject *const *xs, Py_ssize_t n) {
    dlx_view views[8];
    (void)module;
    if (n > 8) return PyErr_Format(PyExc_TypeError, "at most 8 arguments");
    if (dlx_borrow_all(xs, NULL, n, NULL, views) < 0) return NULL;
    dlx_release_all(views, n);
    Py_RETURN_NONE;
}

static PyObject *take_typed(PyObject *module, PyObject *const *xs, Py_ssize_t n) {
    static const dlx_want want = {"x", DLX_NDIM | DLX_ROW_MAJOR, 2, {kDLFloat, 32, 1}, kDLCPU};
    dlx_want wants[8];
    dlx_stream on = {{(DLDeviceType)0, 0}, NULL, NULL};
    dlx_view views[8];
    Py_ssize_t i;
    (void)module;
    if (n > 8) return PyErr_Format(PyExc_TypeError, "at most 8 arguments");
    for (i = 0; i < 8; i++) wants[i] = want;
    if (dlx_borrow_all(xs, wants, n, &on, views) < 0) return NULL;
    dlx_release_all(views, n);
    Py_RETURN_NONE;
}

static PyObject *take_writable(PyObject *module, PyObject *const *xs, Py_ssize_t n) {
    static const dlx_want wants[8] = {{0, DLX_WRITE, 0, {0, 0, 0}, 0}, {0, DLX_WRITE, 0, {0, 0, 0}, 0}, {0, DLX_WRITE, 0, {0, 0, 0}, 0}};
    dlx_view views[8];
    (void)module;
    if (n > 3) return PyErr_Format(PyExc_TypeError, "at most 3 arguments");
    if (dlx_borrow_all(xs, wants, n, NULL, views) < 0) return NULL;
    dlx_release_all(views, n);
    Py_RETURN_NONE;
}

static PyObject *take_unasked(PyObject *module, PyObject *const *xs, Py_ssize_t n) {
    static const dlx_want want = {0, DLX_AS_EXPORTED, 0, {0, 0, 0}, 0};
    dlx_view v;
    Py_ssize_t i;
    (void)module;
    for (i = 0; i < n; i++) {
        if (dlx_borrow(xs[i], &want, &v) < 0) return NULL;
        dlx_release(&v);
    }
    Py_RETURN_NONE;
}

/* look(x, flags=0, dtype=None, ndim=0, device=0): what a view says, as (address, shape, strides, dtype, device, flags, row_major, legacy) */
static PyObject *look(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"x", "flags", "dtype", "ndim", "device", NULL};
    PyObject *x, *shape, *strides;
    unsigned flags = 0;
    int code = 0, bits = 0, lanes = 0, ndim = 0, device = 0, i;
    dlx_want want = {"x", 0, 0, {0, 0, 0}, 0};
    dlx_view v;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|I(iii)ii", names, &x, &flags, &code, &bits, &lanes, &ndim, &device)) return NULL;
    want.flags = flags, want.ndim = ndim, want.device_type = device;
    want.dtype.code = (uint8_t)code, want.dtype.bits = (uint8_t)bits, want.dtype.lanes = (uint16_t)lanes;
    if (dlx_borrow(x, &want, &v) < 0) return NULL;
    shape = PyTuple_New(v.tensor.ndim), strides = PyTuple_New(v.tensor.ndim);
    for (i = 0; shape && strides && i < v.tensor.ndim; i++) {
        PyTuple_SetItem(shape, i, PyLong_FromLongLong(v.tensor.shape[i]));
        PyTuple_SetItem(strides, i, PyLong_FromLongLong(v.tensor.strides[i]));
    }
    x = Py_BuildValue("KNN(iii)(ii)Kii", (unsigned long long)(uintptr_t)v.tensor.data, shape, strides, v.tensor.dtype.code, v.tensor.dtype.bits,
                      v.tensor.dtype.lanes, (int)v.tensor.device.device_type, (int)v.tensor.device.device_id, (unsigned long long)v.flags, v.row_major, v.legacy);
    dlx_release(&v);
    return x;
}

/* ---- results ---- */

/* scale(x, by): a new tensor of x's library */
static PyObject *scale(PyObject *module, PyObject *args) {
    static const dlx_want want = {"x", DLX_ROW_MAJOR, 0, {kDLFloat, 32, 1}, kDLCPU};
    PyObject *x;
    float by;
    dlx_view v;
    DLManagedTensorVersioned *out;
    int64_t n = 1, i;
    (void)module;
    if (!PyArg_ParseTuple(args, "Of", &x, &by) || dlx_borrow(x, &want, &v) < 0) return NULL;
    if (dlx_empty_like(x, v.tensor.device, v.tensor.dtype, v.tensor.ndim, v.tensor.shape, &out) < 0) return dlx_release(&v), (PyObject *)NULL;
    for (i = 0; i < v.tensor.ndim; i++) n *= v.tensor.shape[i];
    for (i = 0; i < n; i++) ((float *)out->dl_tensor.data)[i] = by * ((float *)v.tensor.data)[i];
    dlx_release(&v);
    return dlx_export_like(out, x);
}

/* import_like(x, like): x in the library of like (None: the header's own class) */
static PyObject *import_like(PyObject *module, PyObject *args) {
    PyObject *x, *like;
    DLManagedTensorVersioned *m;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &x, &like) || dlx_import(x, NULL, NULL, &m) < 0) return NULL;
    return dlx_export_like(m, like == Py_None ? NULL : like);
}

/* ---- a class of one's own: bytes of an image, rows by columns ---- */

typedef struct { PyObject_HEAD unsigned char *pixels; int64_t shape[2], strides[2]; int readonly; } Image;
static PyTypeObject *Image_Type;

static int image_fill(PyObject *self, DLTensor *t, uint64_t *flags) {
    Image *image = (Image *)self;
    t->data = image->pixels;
    t->device.device_type = kDLCPU;
    t->dtype.code = kDLUInt, t->dtype.bits = 8, t->dtype.lanes = 1;
    t->ndim = 2, t->shape = image->shape, t->strides = image->strides;
    if (image->readonly) *flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    return 0;
}

static PyObject *image_new(int64_t rows, int64_t columns) {
    Image *image = (Image *)PyType_GenericAlloc(Image_Type, 0);
    if (image == NULL) return NULL;
    image->pixels = (unsigned char *)PyMem_Calloc((size_t)(rows * columns) + 1, 1);
    image->shape[0] = rows, image->shape[1] = columns, image->strides[0] = columns, image->strides[1] = 1;
    if (image->pixels == NULL) { Py_DECREF((PyObject *)image); return PyErr_NoMemory(); }
    return (PyObject *)image;
}

static PyObject *image_make(DLManagedTensorVersioned *m) { /* a copy: an Image owns its pixels */
    const DLTensor *t = &m->dl_tensor;
    PyObject *image;
    int64_t i, j;
    if (t->ndim != 2 || t->dtype.code != kDLUInt || t->dtype.bits != 8 || t->dtype.lanes != 1 || t->device.device_type != kDLCPU)
        return PyErr_Format(PyExc_BufferError, "an Image is of two dimensions of bytes");
    if ((image = image_new(t->shape[0], t->shape[1])) == NULL) return NULL;
    for (i = 0; i < t->shape[0]; i++)
        for (j = 0; j < t->shape[1]; j++)
            ((Image *)image)->pixels[i * t->shape[1] + j] =
                ((unsigned char *)t->data)[t->byte_offset + (uint64_t)(i * (t->strides ? t->strides[0] : t->shape[1]) + j * (t->strides ? t->strides[1] : 1))];
    dlx_delete(m);
    return image;
}

DLX_PRODUCER(image, image_fill, image_make)

static PyObject *image_from(PyObject *module, PyObject *args) {
    PyObject *x, *image;
    int readonly = 0;
    DLManagedTensorVersioned *m;
    (void)module;
    if (!PyArg_ParseTuple(args, "O|p", &x, &readonly) || dlx_import(x, NULL, NULL, &m) < 0) return NULL;
    image = image_make(m);
    if (image == NULL) dlx_delete(m);
    else ((Image *)image)->readonly = readonly;
    return image;
}

static void image_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(((Image *)self)->pixels);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot image_slots[] = {{Py_tp_dealloc, __extension__(void *)image_free}, {0, NULL}};
static PyType_Spec image_spec = {"image.Image", sizeof(Image), 0, Py_TPFLAGS_DEFAULT, image_slots};

#define FAST(f) (PyCFunction)(void (*)(void))f
static PyMethodDef functions[] = {
    {"take", FAST(take), METH_FASTCALL, NULL},
    {"take_typed", FAST(take_typed), METH_FASTCALL, NULL},
    {"take_writable", FAST(take_writable), METH_FASTCALL, NULL},
    {"take_unasked", FAST(take_unasked), METH_FASTCALL, NULL},
    {"look", FAST(look), METH_VARARGS | METH_KEYWORDS, NULL},
    {"scale", scale, METH_VARARGS, NULL},
    {"import_like", import_like, METH_VARARGS, NULL},
    {"image", image_from, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
#ifndef MODULE
#define MODULE image
#endif
#define INIT_(name) PyInit_##name
#define INIT(name) INIT_(name)
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, TEXT(MODULE), NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC INIT(MODULE)(void);
PyMODINIT_FUNC INIT(MODULE)(void) {
    PyObject *module;
#ifdef WITH_NUMPY
    import_array();
#endif
    Image_Type = (PyTypeObject *)PyType_FromSpec(&image_spec);
    if (Image_Type == NULL || image_publish(Image_Type) < 0) return NULL;
    module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObject(module, "Image", (PyObject *)Image_Type) < 0) return NULL;
    Py_INCREF((PyObject *)Image_Type);
    if (module != NULL && PyModule_AddIntConstant(module, "limited", DLX__OPAQUE) < 0) return NULL;
#ifdef COUNTED
    if (module != NULL && PyModule_AddObject(module, "allocations", PyLong_FromVoidPtr(&allocations)) < 0) return NULL;
#endif
#ifdef WITH_NUMPY
    if (module != NULL && PyModule_AddIntConstant(module, "numpy", 1) < 0) return NULL;
#endif
#ifdef Py_GIL_DISABLED
    if (module != NULL) PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
