/* What callgrind is told from inside: begin, forget what was counted, write down what was. */
#include <valgrind/callgrind.h>

void callgrind_start(void) { CALLGRIND_START_INSTRUMENTATION; }

void callgrind_zero(void) { CALLGRIND_ZERO_STATS; }

void callgrind_dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
