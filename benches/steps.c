/* Steps a process that this one traces, instruction by instruction, to its next SIGSTOP. */
#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#ifdef __aarch64__
#define ADDRESS pc
#else
#define ADDRESS rip
#endif

/* Return the number of instructions, or -1 if the process has ended or cannot be traced. `*inside` counts those
   between `begin` and `end`. */
long steps(pid_t pid, unsigned long begin, unsigned long end, long *inside) {
  struct user_regs_struct registers;
  struct iovec into = {&registers, sizeof registers};
  int status, signal = 0;
  long all = 0;
  for (*inside = 0;; all++) {
    if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &into)) return -1;
    *inside += registers.ADDRESS >= begin && registers.ADDRESS < end;
    if (ptrace(PTRACE_SINGLESTEP, pid, 0, signal)) return -1;
    if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status)) return -1;
    signal = WSTOPSIG(status);
    if (signal == SIGSTOP) return all;
    if (signal == SIGTRAP) signal = 0;
  }
}
