// What cext/dlpack_launch.h takes of cutile's headers and of cuda.h, each of which is this file.
#pragma once
#include <Python.h>
#include <cstdint>
#include <cstring>
#include <vector>

typedef int CUresult;
typedef int CUdevice;
typedef int CUstreamCaptureStatus;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
enum { CUDA_SUCCESS, CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_EVENT_DISABLE_TIMING = 2 };

struct DriverApi {
    CUresult (*cuEventCreate)(CUevent *, unsigned);
    CUresult (*cuEventRecord)(CUevent, CUstream);
    CUresult (*cuEventQuery)(CUevent);
    CUresult (*cuEventSynchronize)(CUevent);
    CUresult (*cuEventDestroy)(CUevent);
    CUresult (*cuStreamWaitEvent)(CUstream, CUevent, unsigned);
    CUresult (*cuStreamIsCapturing)(CUstream, CUstreamCaptureStatus *);
    CUresult (*cuLaunchKernelEx)(const void *, void *, void **, void **);
};

struct OK_t {};
struct ErrorRaised_t {};
static constexpr OK_t OK;
static constexpr ErrorRaised_t ErrorRaised;

struct [[nodiscard]] Status {
    Status(OK_t) : ok(true) {}
    Status(ErrorRaised_t) : ok(false) {}
    explicit operator bool() const { return ok; }
    bool ok;
};

template <class... Text> ErrorRaised_t raise(PyObject *type, const char *text, Text...) {
    PyErr_SetString(type, text);
    return ErrorRaised;
}

inline const char *get_cuda_error(const DriverApi *, CUresult) { return ""; }

template <class T> struct Vec : std::vector<T> {};

inline void mem_set(void *to, int value, size_t n) { memset(to, value, n); }
inline int mem_compare(const void *a, const void *b, size_t n) { return memcmp(a, b, n); }
inline const char *mem_find_string(const char *text, const char *sought) {
    return strstr(text, sought);
}
