/* Static types, which Python code cannot change: their instances hold an object that exports for them. `Plain` has no
 * other attributes, `Asking` gives all that the object has, and instances of `Open` have a dict. */
#include <Python.h>
#include <stddef.h>

typedef struct {
  PyObject_HEAD PyObject *held;
  PyObject *dict;
} Holder;

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  PyObject *held;
  if (!PyArg_ParseTuple(arguments, "O", &held)) return NULL;
  Holder *made = (Holder *)type->tp_alloc(type, 0);
  if (made) made->held = Py_NewRef(held);
  return (PyObject *)made;
}

static void end(PyObject *self) {
  Py_CLEAR(((Holder *)self)->held);
  Py_CLEAR(((Holder *)self)->dict);
  Py_TYPE(self)->tp_free(self);
}

static PyObject *called(PyObject *self, const char *name, PyObject *arguments, PyObject *keywords) {
  PyObject *method = PyObject_GetAttrString(((Holder *)self)->held, name);
  PyObject *answer = method ? PyObject_Call(method, arguments, keywords) : NULL;
  Py_XDECREF(method);
  return answer;
}

static PyObject *dlpack(PyObject *self, PyObject *arguments, PyObject *keywords) {
  return called(self, "__dlpack__", arguments, keywords);
}

static PyObject *dlpack_device(PyObject *self, PyObject *arguments, PyObject *keywords) {
  return called(self, "__dlpack_device__", arguments, keywords);
}

static PyObject *asked(PyObject *self, PyObject *name) {
  PyObject *own = PyObject_GenericGetAttr(self, name);
  if (own || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(((Holder *)self)->held, name);
}

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", (PyCFunction)(void (*)(void))dlpack_device, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

#define STATIC_TYPE(variable, name, ...) \
  static PyTypeObject variable = { \
      PyVarObject_HEAD_INIT(NULL, 0).tp_name = "static_types." name, \
      .tp_basicsize = sizeof(Holder), \
      .tp_flags = Py_TPFLAGS_DEFAULT, \
      .tp_new = make, \
      .tp_dealloc = end, \
      .tp_methods = methods, \
      __VA_ARGS__}

STATIC_TYPE(plain, "Plain", .tp_getattro = PyObject_GenericGetAttr);
STATIC_TYPE(asking, "Asking", .tp_getattro = asked);
STATIC_TYPE(open, "Open", .tp_dictoffset = offsetof(Holder, dict));

/* Return the three types, in a new tuple. */
PyObject *static_types(void) {
  if (PyType_Ready(&plain) || PyType_Ready(&asking) || PyType_Ready(&open)) return NULL;
  return PyTuple_Pack(3, &plain, &asking, &open);
}
