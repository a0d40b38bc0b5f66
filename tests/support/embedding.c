/* A program that embeds Python. Each argument is a step:
 *   start, end       Py_Initialize, Py_FinalizeEx
 *   run CODE         here
 *   thread CODE      in a thread that C has made, with PyGILState_Ensure
 *   take             the tensor of the capsule `capsule` of `__main__`, as a consumer
 *   delete           call its deleter, attached if there is an interpreter
 *   delete-alone     call its deleter in a thread that Python knows nothing of */
#include <Python.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct Managed { /* DLManagedTensorVersioned begins so */
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct Managed *);
} Managed;

static Managed *taken;
static int failed;

static void run(const char *code) { failed |= PyRun_SimpleString(code) != 0; }

static void *attached(void *code) {
  PyGILState_STATE state = PyGILState_Ensure();
  run(code);
  PyGILState_Release(state);
  return NULL;
}

static void *alone(void *unused) {
  taken->deleter(taken);
  return unused;
}

static void in_thread(void *(*body)(void *), const char *argument) {
  pthread_t thread;
  PyThreadState *here = Py_IsInitialized() ? PyEval_SaveThread() : NULL;
  if (pthread_create(&thread, NULL, body, (void *)argument) || pthread_join(thread, NULL)) failed = 1;
  if (here) PyEval_RestoreThread(here);
}

static void take(void) {
  const char *name = "dltensor_versioned";
  PyObject *capsule = PyObject_GetAttrString(PyImport_AddModule("__main__"), "capsule");
  taken = capsule ? PyCapsule_GetPointer(capsule, name) : NULL;
  if (!taken || PyCapsule_SetName(capsule, "used_dltensor_versioned")) failed = 1;
  Py_XDECREF(capsule);
}

int main(int count, char **steps) {
  for (int i = 1; i < count && !failed; ++i) {
    if (!strcmp(steps[i], "start")) Py_Initialize();
    else if (!strcmp(steps[i], "end")) failed |= Py_FinalizeEx();
    else if (!strcmp(steps[i], "run")) run(steps[++i]);
    else if (!strcmp(steps[i], "thread")) in_thread(attached, steps[++i]);
    else if (!strcmp(steps[i], "take")) take();
    else if (!strcmp(steps[i], "delete")) alone(NULL);
    else if (!strcmp(steps[i], "delete-alone")) in_thread(alone, NULL);
    else return 2;
  }
  return failed;
}
