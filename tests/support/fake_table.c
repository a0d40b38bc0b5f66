/* The parts of the fakes that Python cannot be: functions that run while an exception
 * is pending, on threads that Python does not know, or that leave an exception set.
 * The few declarations of the stable ABI stand here so that no Python.h is needed. */
#include <dlpack/dlpack.h>

typedef struct _object PyObject;
extern PyObject *PyExc_BufferError;
extern PyObject *PyExc_ValueError;
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *state);
extern void PyErr_SetString(PyObject *type, const char *message);
extern int PyCapsule_IsValid(PyObject *capsule, const char *name);
extern void *PyCapsule_GetPointer(PyObject *capsule, const char *name);

/* Deleters: `manager_ctx` is the address of an int64_t that counts the calls. */

static void count(void *manager_ctx) {
  __atomic_add_fetch((int64_t *)manager_ctx, 1, __ATOMIC_SEQ_CST);
}

void delete_versioned(DLManagedTensorVersioned *self) { count(self->manager_ctx); }

void delete_legacy(DLManagedTensor *self) { count(self->manager_ctx); }

/* It leaves an exception set, which deleters must not. */
void delete_with_error(DLManagedTensorVersioned *self) {
  count(self->manager_ctx);
  PyErr_SetString(PyExc_ValueError, "the deleter's");
}

/* A capsule's destructor: calls the deleter while the name is the unused one (R3). */
void destroy_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    DLManagedTensorVersioned *self = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (self->deleter) self->deleter(self);
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    DLManagedTensor *self = PyCapsule_GetPointer(capsule, "dltensor");
    if (self->deleter) self->deleter(self);
  }
}

/* Entries of a table that fail, well or badly. They read no argument, so by the C
 * calling conventions of 64-bit platforms they can stand in any entry. */

int fail_without_exception(void) { return -1; }

int fail_with_buffer_error(void) {
  PyErr_SetString(PyExc_BufferError, "fake buffer error");
  return -1;
}

int fail_with_value_error(void) {
  PyErr_SetString(PyExc_ValueError, "fake value error");
  return -1;
}

/* An allocator that lets other threads run while it says what is wrong. */
int fail_detached(DLTensor *prototype, DLManagedTensorVersioned **out, void *context,
                  void (*set_error)(void *, const char *, const char *)) {
  void *state = PyEval_SaveThread();
  (void)prototype, (void)out;
  set_error(context, "MemoryError", "there is none");
  PyEval_RestoreThread(state);
  return -1;
}

/* Entries of the shape (object, out) that succeed badly. */

int succeed_with_null(void *object, void **out) {
  (void)object;
  *out = NULL;
  return 0;
}

/* What the next `succeed_with_exception` or `fail_with_tensor` writes to its out parameter. */
void *handed_out = NULL;

int succeed_with_exception(void *object, void **out) {
  (void)object;
  *out = handed_out;
  handed_out = NULL;
  PyErr_SetString(PyExc_ValueError, "fake value error after success");
  return 0;
}

int fail_with_tensor(void *object, void **out) {
  (void)object;
  *out = handed_out;
  handed_out = NULL;
  PyErr_SetString(PyExc_ValueError, "fake value error");
  return -1;
}

/* Entries of the shape (tensor, out) that delete what they do not take over (R131). */

int delete_and_fail(DLManagedTensorVersioned *tensor, void **out) {
  (void)out;
  tensor->deleter(tensor);
  PyErr_SetString(PyExc_ValueError, "fake value error");
  return -1;
}

int delete_and_succeed_with_null(DLManagedTensorVersioned *tensor, void **out) {
  tensor->deleter(tensor);
  *out = NULL;
  return 0;
}

/* Without Python: takes memory of an allocator and deletes it, until `*stopped` is not 0. */

typedef struct {
  DLPackManagedTensorAllocator allocator;
  DLTensor *prototype;
  volatile int stopped;
  volatile int64_t rounds;
} Hammer;

static void ignore(void *context, const char *kind, const char *message) {
  (void)context, (void)kind, (void)message;
}

void *hammer(Hammer *self) {
  while (!self->stopped) {
    DLManagedTensorVersioned *made = NULL;
    if (self->allocator(self->prototype, &made, NULL, ignore) == 0) made->deleter(made);
    ++self->rounds;
  }
  return NULL;
}
