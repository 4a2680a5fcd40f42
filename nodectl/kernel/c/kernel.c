/* nodectl.kernel._kernel: the system calls that Python's os module does not offer.
 *
 * Used in the forkserver, the stepd and the tasks, which must not import ctypes: mapping libffi doubles the price of
 * every later fork. Every function raises a plain OSError, "<reason> (<call>)", so that callers can say
 * `except PermissionError`. Calls of one subject have a file of their own; this file has the other calls, and makes the
 * module.
 *
 * Owned here: nothing. Descriptors that these functions return belong to their callers.
 */
#define _GNU_SOURCE
#include "kernel.h"
#include "kernel_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <unistd.h>

PyDoc_STRVAR(fork_into_doc,
"fork_into(cgroup_fd: int) -> int\n\n"
"fork(2) with the child born in the cgroup that cgroup_fd (an O_PATH or O_RDONLY directory descriptor)\n"
"stands for: clone3(2) with CLONE_INTO_CGROUP, Linux 5.7. Returns the child's pid, 0 in the child.\n"
"Raises OSError: ENOSYS or E2BIG (old kernel), EBUSY, EOPNOTSUPP, EACCES (see clone3(2)).\n"
"The caller has one thread.");

static PyObject *fork_into(PyObject *self, PyObject *arg)
{
    (void)self;
    int cgroup;
    if (!PyArg_Parse(arg, "i", &cgroup))
        return NULL;
    if (cgroup < 0) {
        errno = EBADF;
        return failed("clone3");
    }
    return number_or_failed(fork_with(0, cgroup), "clone3");
}

PyDoc_STRVAR(entries_doc,
"entries(directory_fd: int) -> int\n\n"
"How many directories lie in the one that the descriptor stands for: its links but two. Of /proc/PID/task: the\n"
"process's threads, proc(5). Raises OSError.");

static PyObject *entries(PyObject *self, PyObject *arg)
{
    (void)self;
    int fd;
    struct stat status;
    if (!PyArg_Parse(arg, "i", &fd))
        return NULL;
    if (fstat(fd, &status) != 0)
        return failed("fstat");
    return PyLong_FromLong((long)status.st_nlink - 2);
}

PyDoc_STRVAR(cloexec_from_doc,
"cloexec_from(first: int) -> None\n\n"
"Marks every descriptor from first upwards close-on-exec: close_range(2), Linux 5.11. A task's program sees\n"
"0, 1 and 2 and nothing that a plugin or nodectl had open.");

static PyObject *cloexec_from(PyObject *self, PyObject *arg)
{
    (void)self;
    int first;
    if (!PyArg_Parse(arg, "i", &first))
        return NULL;
    return none_or_failed(syscall(SYS_close_range, (unsigned)first, ~0U, CLOSE_RANGE_CLOEXEC), "close_range");
}

static void interrupt(int number)
{
    (void)number;
}

PyDoc_STRVAR(close_in_time_doc,
"close_in_time(fds: list[int], microseconds: int) -> None\n\n"
"Closes each, but interrupts a close(2) that waits longer than that: the descriptor is free all the same. Errors that\n"
"close(2) reports are not raised. Uses SIGALRM and its timer, in the thread that signals go to.");

static PyObject *close_in_time(PyObject *self, PyObject *args)
{
    (void)self;
    long long microseconds;
    PyObject *fds;
    if (!PyArg_ParseTuple(args, "O!L", &PyList_Type, &fds, &microseconds))
        return NULL;
    struct sigaction before, now = {.sa_handler = interrupt};
    struct timeval pause = {microseconds / 1000000, microseconds % 1000000};
    struct itimerval again = {pause, pause}, never = {{0, 0}, {0, 0}};
    if (sigaction(SIGALRM, &now, &before) != 0 || setitimer(ITIMER_REAL, &again, NULL) != 0)
        return failed("setitimer");
    for (Py_ssize_t i = 0; i < PyList_Size(fds); i++) {
        int fd = (int)PyLong_AsLong(PyList_GetItem(fds, i));
        Py_BEGIN_ALLOW_THREADS
        close(fd);
        Py_END_ALLOW_THREADS
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(default_signals_doc,
"default_signals() -> None\n\n"
"The signals that libc keeps for itself (32, 33) have their default actions: posix_spawn(3) leaves them ignored, and so\n"
"does every exec. sigaction(2) by number, which libc's own refuses. The caller has one thread.");

static PyObject *default_signals(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    /* The kernel's sigaction: handler, flags, restorer, mask, in the machine's order. All are 0, as SIG_DFL is. */
    const uint64_t as_by_default[8] = {0};
    for (int number = 32; number < SIGRTMIN; number++)
        if (syscall(SYS_rt_sigaction, number, as_by_default, NULL, sizeof(uint64_t)) != 0)
            return failed("rt_sigaction");
    Py_RETURN_NONE;
}

PyDoc_STRVAR(open_named_doc,
"open_named(path: str, flags: int, mode: int) -> int\n\n"
"Opens what a user has named, closed at an exec, but nothing by way of what a process has open or where it is: /proc's\n"
"magic links are not followed. openat2(2), Linux 5.6. Raises OSError: ELOOP for such a link.");

static PyObject *open_named(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *path;
    unsigned long long flags, mode;
    if (!PyArg_ParseTuple(args, "O&KK", PyUnicode_FSConverter, &path, &flags, &mode))
        return NULL;
    return opened(AT_FDCWD, path, flags, mode, RESOLVE_NO_MAGICLINKS);
}

PyDoc_STRVAR(stamp_doc,
"stamp(path: str) -> bytes\n\n"
"What is different when the file that the path leads to has changed: its times, size, number, owner and mode as one\n"
"opaque value, to be compared; b\"\" where there is none. Asked for every plugin at every step.");

static PyObject *stamp(PyObject *self, PyObject *arg)
{
    (void)self;
    PyObject *path;
    if (!PyUnicode_FSConverter(arg, &path))
        return NULL;
    struct stat status;
    bool found = stat(PyBytes_AsString(path), &status) == 0;
    Py_DECREF(path);
    if (!found)
        return PyBytes_FromString("");
    const int64_t facts[] = {
        status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec, status.st_size,
        (int64_t)status.st_dev, (int64_t)status.st_ino, status.st_uid, status.st_mode,
    };
    return PyBytes_FromStringAndSize((const char *)facts, sizeof facts);
}

PyDoc_STRVAR(own_cgroup_doc,
"own_cgroup() -> str\n\n"
"The caller's place in the cgroup2 hierarchy: the \"0::\" line of /proc/self/cgroup, cgroups(7). \"\" where it has none.");

static PyObject *own_cgroup(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    char lines[1 << 16];
    size_t size = 0;
    ssize_t more = 0;
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return PyUnicode_FromString("");
    while (size < sizeof lines - 1 && (more = read(fd, lines + size, sizeof lines - 1 - size)) > 0)
        size += (size_t)more;
    close(fd);
    lines[size] = '\0';
    for (char *line = lines, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        if (strncmp(line, "0::", 3) == 0)
            return PyUnicode_DecodeFSDefaultAndSize(line + 3, end - line - 3);
    return PyUnicode_FromString("");
}

PyDoc_STRVAR(sync_all_of_doc,
"sync_all_of(fd: int) -> None\n\n"
"Everything that was written to the file system of an open file goes to its disk: syncfs(2).");

static PyObject *sync_all_of(PyObject *self, PyObject *arg)
{
    (void)self;
    int fd, result;
    if (!PyArg_Parse(arg, "i", &fd))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    result = syncfs(fd);
    Py_END_ALLOW_THREADS
    return none_or_failed(result, "syncfs");
}

PyDoc_STRVAR(watcher_doc,
"watcher() -> int\n\n"
"A descriptor which is readable when a watched file or directory changes: inotify(7), without waiting, closed at an exec.");

static PyObject *watcher(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return number_or_failed(inotify_init1(IN_CLOEXEC | IN_NONBLOCK), "inotify_init1");
}

PyDoc_STRVAR(watch_doc,
"watch(watcher: int, path: str, is_directory: bool) -> None\n\n"
"Watch a file for writes, truncation and removal, or a directory for new names. A second watch of the same file changes\n"
"nothing.");

static PyObject *watch(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *path;
    int fd, is_directory;
    if (!PyArg_ParseTuple(args, "iO&p", &fd, PyUnicode_FSConverter, &path, &is_directory))
        return NULL;
    uint32_t changes = is_directory ? IN_CREATE | IN_MOVED_TO : IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF;
    int result = inotify_add_watch(fd, PyBytes_AsString(path), changes);
    release(path);
    return none_or_failed(result < 0, "inotify_add_watch");
}

PyDoc_STRVAR(file_system_doc,
"file_system(fd: int) -> int\n\n"
"The magic number of the file system in which a file lies: statfs(2). The descriptor may be one of O_PATH.");

static PyObject *file_system(PyObject *self, PyObject *number)
{
    (void)self;
    long fd = PyLong_AsLong(number);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    struct statfs told;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = fstatfs((int)fd, &told);
    Py_END_ALLOW_THREADS
    return result != 0 ? failed("fstatfs") : PyLong_FromUnsignedLong((unsigned long)told.f_type & 0xffffffff);
}

PyDoc_STRVAR(trim_doc,
"trim() -> None\n\n"
"Gives the kernel back what the heap does not need: malloc_trim(3), where libc has it.");

static PyObject *trim(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    Py_RETURN_NONE;
}

PyDoc_STRVAR(account_errno_doc,
"account_errno(group: bool, name: str | None, number: int) -> int\n\n"
"Why getpwuid_r(3), or getpwnam_r(3) where there is a name, or the same of a group, has found nothing: an errno where\n"
"the look-up failed, 0 where there is no such account. EAGAIN where it finds the account now.");

enum { ROOM_OF_ACCOUNT = 1 << 14, MOST_OF_ACCOUNT = 1 << 24 };

static int look_up(bool group, const char *name, unsigned number, char *room, size_t size)
{
    struct passwd user, *found_user = NULL;
    struct group other, *found_group = NULL;
    int error;
    if (group)
        error = name ? getgrnam_r(name, &other, room, size, &found_group)
                     : getgrgid_r(number, &other, room, size, &found_group);
    else
        error = name ? getpwnam_r(name, &user, room, size, &found_user)
                     : getpwuid_r(number, &user, room, size, &found_user);
    return found_user != NULL || found_group != NULL ? EAGAIN : error;
}

/* If a source of accounts cannot be opened and the next one lacks the account, nsswitch reports only "not found". So
 * opens "/" to learn why no file can be opened now: returns the errno, or 0. */
static int why_nothing_opens(void)
{
    int fd = open("/", O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static PyObject *account_errno(PyObject *self, PyObject *args)
{
    (void)self;
    int group;
    const char *name;
    unsigned number;
    if (!PyArg_ParseTuple(args, "pzI:account_errno", &group, &name, &number))
        return NULL;
    int error = ERANGE;
    Py_BEGIN_ALLOW_THREADS
    for (size_t size = ROOM_OF_ACCOUNT; error == ERANGE && size <= MOST_OF_ACCOUNT; size *= 4) {
        char *room = malloc(size);
        error = room == NULL ? ENOMEM : look_up(group, name, number, room, size);
        free(room);
    }
    /* getpwnam(3) lists these as further errors that mean "not found". */
    if (error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM)
        error = why_nothing_opens();
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(error);
}

static PyMethodDef methods[] = {
    {"account_errno", account_errno, METH_VARARGS, account_errno_doc},
    {"fork_into", fork_into, METH_O, fork_into_doc},
    {"entries", entries, METH_O, entries_doc},
    {"own_cgroup", own_cgroup, METH_NOARGS, own_cgroup_doc},
    {"stamp", stamp, METH_O, stamp_doc},
    {"cloexec_from", cloexec_from, METH_O, cloexec_from_doc},
    {"close_in_time", close_in_time, METH_VARARGS, close_in_time_doc},
    {"default_signals", default_signals, METH_NOARGS, default_signals_doc},
    {"open_named", open_named, METH_VARARGS, open_named_doc},
    {"sync_all_of", sync_all_of, METH_O, sync_all_of_doc},
    {"watcher", watcher, METH_NOARGS, watcher_doc},
    {"watch", watch, METH_VARARGS, watch_doc},
    {"file_system", file_system, METH_O, file_system_doc},
    {"trim", trim, METH_NOARGS, trim_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernel", "System calls that Python's os module does not offer.", -1, methods,
    NULL, NULL, NULL, NULL,
};

static const struct kernel_calls calls = {
    clock_go_on, clock_stop, clock_is_over, successor_expect, successor_is, successor_elsewhere, successor_await, trace_line,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    PyObject *made = PyModule_Create(&module);
    PyMethodDef *parts[] = {lanes_methods, lane_methods, launch_methods, move_methods, trace_methods, clock_methods,
                            socket_methods, confine_methods, devices_methods, shared_methods};
    for (size_t i = 0; made != NULL && i < sizeof parts / sizeof parts[0]; i++)
        if (PyModule_AddFunctions(made, parts[i]) != 0)
            Py_CLEAR(made);
    if (made != NULL && !name_operations(made))
        Py_CLEAR(made);
    if (made == NULL)
        return NULL;
    PyObject *capsule = PyCapsule_New((void *)&calls, KERNEL_CALLS, NULL);
    if (capsule == NULL || PyModule_AddObjectRef(made, "calls", capsule) != 0)
        Py_CLEAR(made);
    Py_XDECREF(capsule);
    return made;
}
