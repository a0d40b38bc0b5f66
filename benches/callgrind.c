/* Requests to callgrind: start counting, set the counts to zero, dump them. */
#include <valgrind/callgrind.h>

void callgrind_start(void) { CALLGRIND_START_INSTRUMENTATION; }

void callgrind_zero(void) { CALLGRIND_ZERO_STATS; }

void callgrind_dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
