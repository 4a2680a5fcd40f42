/* Declarations shared by the parts of nodectl.kernel._kernel. Each part has a table of methods for kernel.c's module.
 *
 * Each file calls only what stands below it (tests/lint/test_c_sources.py):
 *
 *   kernel.c     the module, and single calls: forks, descriptors, files
 *   lanes.c      runs one command after the other in the slots of a bulk step
 *   lane.c       a slot of a bulk step: the launch of any command there
 *   launch.c     starts a task from its operations
 *   move.c       continues a process in another cgroup
 *   operation.c  carries out the operations of a task between its birth and its program
 *   operation_bind.c     operations that set which CPUs, memory and limits a task may use
 *   operation_confine.c  operations that cannot be undone
 *   operation_open.c     operations that open files
 *   operation_report.c   reports of the operations to the step runner and the trace
 *   clock.c      the hooks' clock, and which process goes on after a hook that forks
 *   devices.c    BPF programs that allow or deny devices
 *   shared.c     memory that processes share
 *   socket.c     system calls on a socket given by its number
 *   trace.c      writes a line of a step's trace
 *   confine.c    capabilities, seccomp, keys, the version of Landlock
 *   namespace.c  nodectl.kernel._namespace: a separate module, which shares only system.h
 *   system.c     errors, openat2, fork with flags
 */
#ifndef NODECTL_KERNEL_H
#define NODECTL_KERNEL_H

#include "system.h"

#include <stdbool.h>

/* capget(2) of the caller: 0, or -1 with errno. */
HIDDEN int capabilities_of(uint64_t *effective, uint64_t *permitted, uint64_t *inheritable);

/* nodectl.kernel._kernel hands these to nodectl.spank._spank_host, too. */
HIDDEN int clock_set(double seconds, double deadline);
HIDDEN int clock_go_on(double seconds, double deadline);
HIDDEN void clock_stop(void);
HIDDEN bool clock_is_over(void);
HIDDEN void successor_expect(void *place);
HIDDEN bool successor_is(void);
HIDDEN bool successor_elsewhere(void);
HIDDEN void successor_await(void) __attribute__((noreturn));
HIDDEN bool trace_line(int fd, long long started, const char *const facts[], const char *rc, const char *note);

/* As trace_line, but uses only the caller's room. Returns 1; 0 for a line not written; -1 for too small a room. */
HIDDEN int trace_line_in(char *room, size_t size, int fd, long long started, const char *const facts[], const char *rc,
                         const char *note);
HIDDEN long long monotonic(void); /* nanoseconds */
/* Each writes at `out` and returns the end of what it wrote. */
HIDDEN char *put_number(char *out, unsigned long long number);
HIDDEN char *put_hex(char *out, uint64_t number, int least);

/* Adds the operations' codes to the module as constants. */
HIDDEN bool name_operations(PyObject *module);

HIDDEN extern PyMethodDef lanes_methods[];
HIDDEN extern PyMethodDef lane_methods[];
HIDDEN extern PyMethodDef launch_methods[];
HIDDEN extern PyMethodDef move_methods[];
HIDDEN extern PyMethodDef trace_methods[];
HIDDEN extern PyMethodDef clock_methods[];
HIDDEN extern PyMethodDef socket_methods[];
HIDDEN extern PyMethodDef confine_methods[];
HIDDEN extern PyMethodDef devices_methods[];
HIDDEN extern PyMethodDef shared_methods[];

#endif
