/* Functions shared by nodectl.kernel._kernel and _namespace: errors of system calls as Python's exceptions, openat2(2),
 * and fork(2) with flags. The order of the files is in kernel.h. */
#ifndef NODECTL_SYSTEM_H
#define NODECTL_SYSTEM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Raises OSError(errno, "its words (call)"); returns NULL. */
HIDDEN PyObject *failed(const char *call);

/* Returns None for 0; else as failed(). */
HIDDEN PyObject *none_or_failed(long result, const char *call);

/* Returns the number if it is not negative; else as failed(). */
HIDDEN PyObject *number_or_failed(long number, const char *call);

/* Py_DECREF and close(2) that keep errno. */
HIDDEN void release(PyObject *object);
HIDDEN void shut(int fd);

/* openat2(2), Linux 5.6, with O_CLOEXEC. Releases `path`, which is bytes. Returns a descriptor; else as failed(). */
HIDDEN PyObject *opened(int directory, PyObject *path, uint64_t flags, uint64_t mode, uint64_t resolve);

/* clone_args as of Linux 5.7 (clone3(2)); declared here because older uapi headers stop at set_tid_size. */
struct clone3_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal;
    uint64_t stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

/* fork(2) with further flags of clone3(2), between the calls that Python wants around a fork. The child is born in the
 * descriptor's cgroup, or in the caller's for -1. Returns the child's pid, 0 in the child, -1 with errno. */
HIDDEN long fork_with(uint64_t flags, int cgroup_fd);

#endif
