/* Makes one allocation of this thread fail: the n-th that Python's allocators are asked for, or the n-th that dlx's
 * library asks malloc for. Loaded by LD_PRELOAD, so that its malloc is everybody's.
 * The few declarations of CPython stand here so that no Python.h is needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  void *ctx;
  void *(*malloc)(void *ctx, size_t size);
  void *(*calloc)(void *ctx, size_t count, size_t size);
  void *(*realloc)(void *ctx, void *old, size_t size);
  void (*free)(void *ctx, void *old);
} Allocator; /* PyMemAllocatorEx */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum { PYTHON, DLX, KINDS };

static __thread __attribute__((tls_model("initial-exec"))) int64_t asked[KINDS];
static __thread __attribute__((tls_model("initial-exec"))) int64_t failing[KINDS] = {-1, -1};
static uintptr_t start, end; /* dlx's library */

/* Counts an allocation; whether it has to fail. */
static int fails(int kind) { return asked[kind]++ == failing[kind]; }

static int is_dlx(void *caller) { return (uintptr_t)caller >= start && (uintptr_t)caller < end; }

#define FAILS (is_dlx(__builtin_return_address(0)) && fails(DLX))

void *malloc(size_t size) {
  if (FAILS) return errno = ENOMEM, NULL;
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  if (FAILS) return errno = ENOMEM, NULL;
  return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
  if (FAILS) return errno = ENOMEM, NULL;
  return __libc_realloc(old, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
  if (FAILS) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size) {
  if (FAILS) return errno = ENOMEM, NULL;
  return __libc_memalign(alignment, size);
}

static Allocator inner[3];

static void *python_malloc(void *ctx, size_t size) {
  Allocator *under = ctx;
  return fails(PYTHON) ? NULL : under->malloc(under->ctx, size);
}

static void *python_calloc(void *ctx, size_t count, size_t size) {
  Allocator *under = ctx;
  return fails(PYTHON) ? NULL : under->calloc(under->ctx, count, size);
}

static void *python_realloc(void *ctx, void *old, size_t size) {
  Allocator *under = ctx;
  return fails(PYTHON) ? NULL : under->realloc(under->ctx, old, size);
}

static void python_free(void *ctx, void *old) {
  Allocator *under = ctx;
  under->free(under->ctx, old);
}

/* Watches the library that is mapped from `first` to `last`, and Python's allocators. */
void faults_watch(uintptr_t first, uintptr_t last) {
  void (*get)(int, Allocator *) = (void (*)(int, Allocator *))dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
  void (*set)(int, Allocator *) = (void (*)(int, Allocator *))dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
  start = first, end = last;
  for (int domain = 0; domain < 3; ++domain) {
    get(domain, &inner[domain]);
    Allocator ours = {&inner[domain], python_malloc, python_calloc, python_realloc, python_free};
    set(domain, &ours);
  }
}

/* Lets the n-th allocation of a kind from now on fail; none if n is negative. */
void faults_arm(int kind, int64_t n) {
  asked[kind] = 0;
  failing[kind] = n;
}

/* Lets none fail any more; returns how many there were since `faults_arm`. */
int64_t faults_disarm(int kind) {
  failing[kind] = -1;
  return asked[kind];
}
