/* The exchange table of a type, remembered by hand. The cache relies on the GIL. */
#ifndef C_TABLE_H
#define C_TABLE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>

#define TABLE_NAME "dlpack_exchange_api"

static PyObject *str_table; /* set at import */

/* Exact type to table, direct-mapped; a slot owns its type, so an address is never reused under it. */
static struct {
    PyTypeObject *type;
    const DLPackExchangeAPI *api;
} cache[64];

static const DLPackExchangeAPI *capsule_table(PyObject *capsule) {
    const DLPackExchangeAPIHeader *header = PyCapsule_GetPointer(capsule, TABLE_NAME);
    if (header == NULL) return NULL;
    while (header != NULL && header->version.major != DLPACK_MAJOR_VERSION) header = header->prev_api;
    if (header == NULL) PyErr_SetString(PyExc_BufferError, "no exchange table of major version 1");
    return (const DLPackExchangeAPI *)header;
}

static __attribute__((noinline)) const DLPackExchangeAPI *lookup_slow(PyTypeObject *type, size_t slot) {
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, str_table);
    if (capsule == NULL) return NULL;
    const DLPackExchangeAPI *api = capsule_table(capsule);
    Py_DECREF(capsule); /* the table is static: it outlives its capsule */
    if (api == NULL) return NULL;
    Py_INCREF(type);
    PyTypeObject *evicted = cache[slot].type;
    cache[slot].type = type;
    cache[slot].api = api;
    Py_XDECREF(evicted);
    return api;
}

static inline const DLPackExchangeAPI *lookup(PyTypeObject *type) {
    size_t slot = ((uintptr_t)type >> 4 ^ (uintptr_t)type >> 10) % (sizeof cache / sizeof *cache);
    return cache[slot].type == type ? cache[slot].api : lookup_slow(type, slot);
}

#endif
