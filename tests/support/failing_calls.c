/* Foreign C functions, whose n-th call goes wrong: those of an exchange table, deleters, buffers, and Arrow's.
 * Each does what the function behind it does, unless it is told otherwise (`failing_arm`).
 * The few declarations of CPython and Arrow stand here so that no other header is needed. */
#include <dlpack/dlpack.h>
#include <stddef.h>

typedef struct _object PyObject;
typedef struct _typeobject PyTypeObject;
typedef struct {
  void *buf;
  PyObject *obj;
  ptrdiff_t len, itemsize;
  int readonly, ndim;
  char *format;
  ptrdiff_t *shape, *strides, *suboffsets;
  void *internal;
} Py_buffer;
extern int PyGILState_Check(void);
extern PyObject *PyErr_Occurred(void);
extern void PyErr_SetObject(PyObject *type, PyObject *value);
extern void PyErr_Clear(void);
extern PyObject *PyObject_Type(PyObject *object);
extern PyObject *PyObject_CallObject(PyObject *callable, PyObject *arguments);
extern int PyBuffer_FillInfo(Py_buffer *view, PyObject *exporter, void *buf, ptrdiff_t len, int readonly, int flags);
extern void Py_DecRef(PyObject *object);

struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  struct ArrowSchema **children, *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};
struct ArrowArray {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void **buffers;
  struct ArrowArray **children, *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

/* The functions, in the order of `support.failing_calls.FUNCTIONS`. */
enum {
  ALLOCATE,
  FROM,
  TO,
  BORROW,
  STREAM,
  DELETE,
  GET_BUFFER,
  RELEASE_BUFFER,
  GET_SCHEMA,
  GET_NEXT,
  GET_LAST_ERROR,
  RELEASE_STREAM,
  RELEASE_ARRAY,
  RELEASE_SCHEMA,
  METHOD, /* a method or property in Python */
  FUNCTIONS
};

/* What goes wrong. */
enum {
  SET = 1,     /* sets the exception */
  FAIL = 2,    /* does nothing, and returns an error */
  EMPTY = 4,   /* does nothing, and returns success without a result */
  REPORT = 8,  /* calls SetError */
  GARBAGE = 16, /* with FAIL: writes to the place for the result */
  RUN = 32     /* runs code that raises, and leaves its exception set */
};

static int64_t calls[FUNCTIONS], dirty, wrong_at;
static int wrong_function = -1, wrong;
static PyObject *error, *code;

/* Lets the n-th call of a function from now on go wrong. */
void failing_arm(int function, int what, int64_t at, PyObject *exception, PyObject *callable) {
  for (int each = 0; each < FUNCTIONS; ++each) calls[each] = 0;
  dirty = 0;
  wrong_function = function, wrong = what, wrong_at = at, error = exception, code = callable;
}

/* Lets none go wrong any more; returns how many calls of the function there were. */
int64_t failing_disarm(void) {
  int function = wrong_function;
  wrong_function = -1;
  return function < 0 ? 0 : calls[function];
}

/* How many functions were called while an exception was set. */
int64_t failing_dirty(void) { return dirty; }

static void set(void) {
  PyObject *type = PyObject_Type(error);
  PyErr_SetObject(type, error);
  Py_DecRef(type);
}

/* Counts a call; what goes wrong in it. */
int failing_begin(int function) {
  if (PyGILState_Check() && PyErr_Occurred()) ++dirty;
  int is_it = function == wrong_function && calls[function] == wrong_at;
  ++calls[function];
  return is_it ? wrong : 0;
}

static void end(int what) {
  if (!PyGILState_Check()) return;
  if (what & SET) set();
  if (what & RUN) {
    PyObject *answer = PyObject_CallObject(code, NULL);
    if (answer) Py_DecRef(answer);
  }
}

/* The table. */

static const DLPackExchangeAPI *behind;

#define GUARDED(function, out, nothing, answer)                           \
  int what = failing_begin(function);                                     \
  int result = 0;                                                         \
  if (what & GARBAGE) *(out) = (void *)8;                                 \
  if (what & EMPTY) nothing;                                              \
  if (what & FAIL) result = -1;                                           \
  if (!(what & (EMPTY | FAIL))) result = (answer);                        \
  end(what);                                                              \
  return result;

static int allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *context,
                    void (*set_error)(void *, const char *, const char *)) {
  int what = failing_begin(ALLOCATE);
  int result = 0;
  if (what & GARBAGE) *out = (void *)8;
  if (what & EMPTY) *out = NULL;
  if (what & FAIL) result = -1;
  if (what & REPORT) set_error(context, "ValueError", "reported by the allocator");
  if (!(what & (EMPTY | FAIL))) result = behind->managed_tensor_allocator(prototype, out, context, set_error);
  end(what);
  return result;
}

static int from_object(void *object, DLManagedTensorVersioned **out) {
  GUARDED(FROM, out, *out = NULL, behind->managed_tensor_from_py_object_no_sync(object, out))
}

static int to_object(DLManagedTensorVersioned *tensor, void **out) {
  GUARDED(TO, out, *out = NULL, behind->managed_tensor_to_py_object_no_sync(tensor, out))
}

static int lend(void *object, DLTensor *out) {
  GUARDED(BORROW, &out->data, *out = (DLTensor){0}, behind->dltensor_from_py_object_no_sync(object, out))
}

static int stream(DLDeviceType type, int32_t id, void **out) {
  GUARDED(STREAM, out, *out = NULL, behind->current_work_stream(type, id, out))
}

/* A table whose functions stand before those of another. There is one for each process. */
const DLPackExchangeAPI *failing_table(const DLPackExchangeAPI *other) {
  static DLPackExchangeAPI table;
  behind = other;
  table = *other;
  table.header.prev_api = NULL;
  table.managed_tensor_allocator = other->managed_tensor_allocator ? allocate : NULL;
  table.managed_tensor_from_py_object_no_sync = from_object;
  table.managed_tensor_to_py_object_no_sync = other->managed_tensor_to_py_object_no_sync ? to_object : NULL;
  table.dltensor_from_py_object_no_sync = other->dltensor_from_py_object_no_sync ? lend : NULL;
  table.current_work_stream = other->current_work_stream ? stream : NULL;
  return &table;
}

/* A deleter: `manager_ctx` is the address of an int64_t that counts the calls. */
void failing_delete(DLManagedTensorVersioned *self) {
  int what = failing_begin(DELETE);
  ++*(int64_t *)self->manager_ctx;
  end(what);
}

void failing_delete_legacy(DLManagedTensor *self) {
  int what = failing_begin(DELETE);
  ++*(int64_t *)self->manager_ctx;
  end(what);
}

/* Calls a function of an exchange table as a consumer does, and says how it breaks the rules: "" if not. A proper
 * failure leaves its exception set. */
const char *failing_consume(int (*function)(void *, void *), void *object, void *out) {
  int result = function(object, out);
  int is_set = PyErr_Occurred() != NULL;
  if (result == 0 && is_set) return PyErr_Clear(), "success with an exception set";
  if (result != 0 && !is_set) return "failure without an exception";
  return "";
}

const char *failing_consume_stream(int (*function)(int, int, void *), int type, int id, void *out) {
  int result = function(type, id, out);
  int is_set = PyErr_Occurred() != NULL;
  if (result == 0 && is_set) return PyErr_Clear(), "success with an exception set";
  if (result != 0 && !is_set) return "failure without an exception";
  return "";
}

/* Python's buffers: the slots of a type. */

static char memory[24];
static int64_t held;

int failing_get_buffer(PyObject *self, Py_buffer *view, int flags) {
  int what = failing_begin(GET_BUFFER);
  int result = 0;
  view->obj = NULL;
  if (what & FAIL) result = -1;
  if (!(what & FAIL)) result = PyBuffer_FillInfo(view, self, memory, sizeof memory, 0, flags);
  if (!(what & FAIL) && result == 0) ++held;
  end(what);
  return result;
}

void failing_release_buffer(PyObject *self, Py_buffer *view) {
  int what = failing_begin(RELEASE_BUFFER);
  (void)self, (void)view;
  --held;
  end(what);
}

/* How many buffers are held. */
int64_t failing_held(void) { return held; }

/* Arrow: the functions of a struct are exchanged for those below, which call the ones of the library behind. */

static struct ArrowArrayStream stream_behind;
static void (*array_behind)(struct ArrowArray *);
static void (*schema_behind)(struct ArrowSchema *);

static void release_array(struct ArrowArray *self) {
  int what = failing_begin(RELEASE_ARRAY);
  --held;
  array_behind(self);
  end(what);
}

static void release_schema(struct ArrowSchema *self) {
  int what = failing_begin(RELEASE_SCHEMA);
  --held;
  schema_behind(self);
  end(what);
}

void failing_array(struct ArrowArray *array) {
  if (!array->release) return;
  array_behind = array->release;
  array->release = release_array;
  ++held;
}

void failing_schema(struct ArrowSchema *schema) {
  if (!schema->release) return;
  schema_behind = schema->release;
  schema->release = release_schema;
  ++held;
}

static int get_schema(struct ArrowArrayStream *self, struct ArrowSchema *out) {
  int what = failing_begin(GET_SCHEMA);
  int result = 0;
  if (what & FAIL) result = 5;
  if (what & EMPTY) *out = (struct ArrowSchema){0};
  if (!(what & (EMPTY | FAIL))) result = stream_behind.get_schema(self, out), failing_schema(out);
  end(what);
  return result;
}

static int get_next(struct ArrowArrayStream *self, struct ArrowArray *out) {
  int what = failing_begin(GET_NEXT);
  int result = 0;
  if (what & FAIL) result = 5;
  if (what & EMPTY) *out = (struct ArrowArray){0};
  if (!(what & (EMPTY | FAIL))) result = stream_behind.get_next(self, out), failing_array(out);
  end(what);
  return result;
}

static const char *get_last_error(struct ArrowArrayStream *self) {
  int what = failing_begin(GET_LAST_ERROR);
  (void)self;
  end(what);
  return what & EMPTY ? NULL : "said by the stream";
}

static void release_stream(struct ArrowArrayStream *self) {
  int what = failing_begin(RELEASE_STREAM);
  --held;
  stream_behind.release(self);
  end(what);
}

void failing_stream(struct ArrowArrayStream *given) {
  stream_behind = *given;
  given->get_schema = get_schema, given->get_next = get_next;
  given->get_last_error = get_last_error, given->release = release_stream;
  ++held;
}
