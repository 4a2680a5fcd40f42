/* Functions that both extension modules use.
 *
 * Owned here: nothing.
 */
#define _GNU_SOURCE
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

PyObject *failed(const char *call)
{
    int number = errno;
    PyObject *words = PyUnicode_FromFormat("%s (%s)", strerror(number), call);
    PyObject *args = words == NULL ? NULL : Py_BuildValue("iN", number, words);
    if (args != NULL) {
        PyErr_SetObject(PyExc_OSError, args);
        Py_DECREF(args);
    }
    return NULL;
}

PyObject *none_or_failed(long result, const char *call)
{
    if (result != 0)
        return failed(call);
    Py_RETURN_NONE;
}

PyObject *number_or_failed(long number, const char *call)
{
    return number < 0 ? failed(call) : PyLong_FromLong(number);
}

void release(PyObject *object)
{
    int saved = errno;
    Py_DECREF(object);
    errno = saved;
}

void shut(int fd)
{
    int saved = errno;
    close(fd);
    errno = saved;
}

PyObject *opened(int directory, PyObject *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve};
    long fd = syscall(SYS_openat2, directory, PyBytes_AsString(path), &how, sizeof how);
    release(path);
    return number_or_failed(fd, "openat2");
}

enum { LARGE = 1 << 16 }; /* bytes: more than malloc serves from its bins, so that it consolidates */

long fork_with(uint64_t flags, int cgroup_fd)
{
    struct clone3_args args = {.flags = flags};
    /* With CLONE_PARENT the child ends with the caller's own exit signal, so it needs none here. */
    if (!(flags & CLONE_PARENT))
        args.exit_signal = SIGCHLD;
    if (cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup_fd;
    }

    /* As fork(3): the kernel writes the child's thread id where libc keeps it, and clears it there at the child's end.
     * libc told the kernel the place at its start (set_tid_address). Without it libc would keep the parent's id, which
     * only matters to robust and priority-inheriting mutexes. */
    unsigned long tid_address = 0;
    if (prctl(PR_GET_TID_ADDRESS, &tid_address, 0, 0, 0) == 0 && tid_address != 0) {
        args.flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
        args.child_tid = tid_address;
    }

    free(malloc(LARGE)); /* sorts the freed chunks now; the child's first malloc would do so, and copy their pages */
    PyOS_BeforeFork();
    long pid = syscall(SYS_clone3, &args, sizeof args);
    int saved = errno;
    if (pid == 0)
        PyOS_AfterFork_Child();
    else
        PyOS_AfterFork_Parent();
    errno = saved;
    return pid;
}
