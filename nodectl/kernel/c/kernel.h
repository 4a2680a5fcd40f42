/* What the parts of nodectl.kernel._kernel share. Each part has its table of methods; kernel.c makes the module of them.
 *
 * Each file calls only what stands below it (tests/lint/test_c_sources.py):
 *
 *   kernel.c     the module, and single calls: forks, descriptors, files
 *   launch.c     a task that is started from its operations
 *   move.c       a process that goes on in another cgroup
 *   operation.c  what a task does between its birth and its program
 *   operation_bind.c     of these: what a task may use
 *   operation_confine.c  of these: what cannot be undone
 *   operation_open.c     of these: what opens files
 *   operation_report.c   what is told of it
 *   clock.c      the hooks' clock, and which process comes out of a hook
 *   devices.c    programs that decide about devices
 *   shared.c     memory that processes share
 *   socket.c     a socket by its number
 *   trace.c      a line of a step's trace
 *   confine.c    capabilities, seccomp, keys; whether there is Landlock
 *   namespace.c  nodectl.kernel._namespace: a module of its own, which shares system.h only
 *   system.c     errors, openat2, fork with flags
 */
#ifndef NODECTL_KERNEL_H
#define NODECTL_KERNEL_H

#include "system.h"

#include <stdbool.h>

/* capget(2) of the caller: 0, or -1 with errno. */
HIDDEN int capabilities_of(uint64_t *effective, uint64_t *permitted, uint64_t *inheritable);

/* What nodectl.kernel._kernel hands to nodectl.spank._spank_host, too. */
HIDDEN int clock_set(double seconds, double deadline);
HIDDEN int clock_go_on(double seconds, double deadline);
HIDDEN void clock_stop(void);
HIDDEN bool clock_is_over(void);
HIDDEN void heir_expect(void *place);
HIDDEN bool heir_is(void);
HIDDEN bool heir_elsewhere(void);
HIDDEN void heir_await(void) __attribute__((noreturn));
HIDDEN bool trace_line(int fd, long long started, const char *const facts[], const char *rc, const char *note);

/* As trace_line, in the caller's room, with no memory but that: 1, 0 where it was not written, -1 for too little room. */
HIDDEN int trace_line_in(char *room, size_t size, int fd, long long started, const char *const facts[], const char *rc,
                         const char *note);
HIDDEN long long monotonic(void); /* nanoseconds */
/* Each returns where the text goes on. */
HIDDEN char *put_number(char *out, unsigned long long number);
HIDDEN char *put_hex(char *out, uint64_t number, int least);

/* The codes of operations, as members of the module. */
HIDDEN bool name_operations(PyObject *module);

HIDDEN extern PyMethodDef launch_methods[];
HIDDEN extern PyMethodDef move_methods[];
HIDDEN extern PyMethodDef trace_methods[];
HIDDEN extern PyMethodDef clock_methods[];
HIDDEN extern PyMethodDef socket_methods[];
HIDDEN extern PyMethodDef confine_methods[];
HIDDEN extern PyMethodDef devices_methods[];
HIDDEN extern PyMethodDef shared_methods[];

#endif
