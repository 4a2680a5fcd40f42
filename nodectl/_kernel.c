/* nodectl._kernel: the system calls that Python's os module does not offer.
 *
 * Keeps no state but the clock of plugins' hooks. Used in the forkserver, the stepd and the tasks, which must not import
 * ctypes: mapping libffi doubles the price of every later fork. Every function raises a plain
 * OSError(errno, "<call>") so that callers can say `except PermissionError`.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

/* clone_args as of Linux 5.7 (clone3(2)); declared here because older uapi headers stop at set_tid_size. */
struct clone3_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal;
    uint64_t stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

static PyObject *failed(const char *call)
{
    PyObject *args = Py_BuildValue("is", errno, call);
    if (args != NULL) {
        PyErr_SetObject(PyExc_OSError, args);
        Py_DECREF(args);
    }
    return NULL;
}

PyDoc_STRVAR(fork_into_doc,
"fork_into(cgroup_fd: int) -> int\n\n"
"fork(2) with the child born in the cgroup that cgroup_fd (an O_PATH or O_RDONLY directory descriptor)\n"
"stands for: clone3(2) with CLONE_INTO_CGROUP, Linux 5.7. Returns the child's pid, 0 in the child.\n"
"Raises OSError: ENOSYS or E2BIG (old kernel), EBUSY, EOPNOTSUPP, EACCES (see clone3(2)).\n"
"The caller has one thread.");

static PyObject *fork_into(PyObject *self, PyObject *arg)
{
    (void)self;
    long cgroup = PyLong_AsLong(arg);
    if (cgroup == -1 && PyErr_Occurred())
        return NULL;

    struct clone3_args args;
    memset(&args, 0, sizeof args);
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = SIGCHLD;
    args.cgroup = (uint64_t)cgroup;

    /* What fork(3) does: the child's thread id lands where libc keeps it, and is cleared there at its end. The
     * kernel knows the place since libc's start-up told it (set_tid_address); without it libc would keep
     * the parent's id, which only matters to robust and priority-inheriting mutexes. */
    unsigned long tid_address = 0;
    if (prctl(PR_GET_TID_ADDRESS, &tid_address, 0, 0, 0) == 0 && tid_address != 0) {
        args.flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
        args.child_tid = tid_address;
    }

    PyOS_BeforeFork();
    long pid = syscall(SYS_clone3, &args, sizeof args);
    int saved = errno;
    if (pid == 0)
        PyOS_AfterFork_Child();
    else
        PyOS_AfterFork_Parent();
    errno = saved;
    if (pid < 0)
        return failed("clone3");
    return PyLong_FromLong(pid);
}

static int capabilities_of(uint64_t *effective, uint64_t *permitted, uint64_t *inheritable)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0)
        return -1;
    *effective = (uint64_t)data[1].effective << 32 | data[0].effective;
    *permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted;
    *inheritable = (uint64_t)data[1].inheritable << 32 | data[0].inheritable;
    return 0;
}

PyDoc_STRVAR(capabilities_doc,
"capabilities() -> tuple[int, int, int]\n\n"
"Effective, permitted and inheritable capabilities of the caller as bit masks: capget(2).");

static PyObject *capabilities(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    uint64_t effective, permitted, inheritable;
    if (capabilities_of(&effective, &permitted, &inheritable) != 0)
        return failed("capget");
    return Py_BuildValue("KKK", (unsigned long long)effective, (unsigned long long)permitted,
                         (unsigned long long)inheritable);
}

/* The run mask as hex digits, most significant first, into a malloc'd string. The kernel's mask may be
 * wider than cpu_set_t: ask with growing buffers, as sched_getaffinity(2) advises. */
static char *affinity_hex(void)
{
    for (size_t bytes = 128; bytes <= 65536; bytes *= 2) {
        unsigned char *mask = calloc(1, bytes);
        if (mask == NULL)
            return NULL;
        long used = syscall(SYS_sched_getaffinity, 0, bytes, mask);
        if (used < 0) {
            free(mask);
            if (errno == EINVAL)
                continue;
            return NULL;
        }
        char *text = malloc((size_t)used * 2 + 2);
        if (text != NULL) {
            char *out = text;
            /* The kernel's words are longs; read through them so that big-endian machines agree. */
            const unsigned long *words = (const unsigned long *)(const void *)mask;
            long word = used / (long)sizeof(long) - 1;
            while (word > 0 && words[word] == 0)
                word--;
            out += sprintf(out, "%lx", words[word]);
            while (--word >= 0)
                out += sprintf(out, "%0*lx", (int)sizeof(long) * 2, words[word]);
        }
        free(mask);
        return text;
    }
    errno = EINVAL;
    return NULL;
}

/* Who the caller is right now, as members of a JSON object, into a malloc'd string; NULL with errno. */
static char *identity_json(void)
{
    uid_t ruid, euid, suid;
    gid_t rgid, egid, sgid;
    uint64_t effective, permitted, inheritable;
    if (getresuid(&ruid, &euid, &suid) != 0 || getresgid(&rgid, &egid, &sgid) != 0 ||
        capabilities_of(&effective, &permitted, &inheritable) != 0)
        return NULL;
    int count = getgroups(0, NULL);
    if (count < 0)
        return NULL;
    gid_t *groups = calloc((size_t)count + 1, sizeof *groups);
    char *affinity = affinity_hex();
    char *text = malloc(256 + (size_t)count * 12 + (affinity != NULL ? strlen(affinity) : 0));
    if (groups == NULL || text == NULL || affinity == NULL || (count = getgroups(count, groups)) < 0) {
        free(text);
        text = NULL;
    } else {
        char *out = text;
        out += sprintf(out, "\"ruid\":%u,\"euid\":%u,\"rgid\":%u,\"egid\":%u,\"groups\":[", (unsigned)ruid,
                       (unsigned)euid, (unsigned)rgid, (unsigned)egid);
        for (int i = 0; i < count; i++)
            out += sprintf(out, i == 0 ? "%u" : ",%u", (unsigned)groups[i]);
        sprintf(out, "],\"caps\":\"%016llx\",\"affinity\":\"%s\"", (unsigned long long)effective, affinity);
    }
    free(groups);
    free(affinity);
    return text;
}

PyDoc_STRVAR(identity_doc,
"identity() -> str\n\n"
"Who the caller is right now, as the inside of a JSON object: ruid, euid, rgid, egid, groups, caps (CapEff,\n"
"hex) and affinity (hex).");

static PyObject *identity(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    char *text = identity_json();
    if (text == NULL)
        return failed("identity");
    PyObject *result = PyUnicode_FromString(text);
    free(text);
    return result;
}

PyDoc_STRVAR(write_row_doc,
"write_row(fd: int, started: int, facts: str, rc: str, note: str) -> bool\n\n"
"Writes one line of a step's trace with one write(2): {\"t\": started, facts, ruid, euid, rgid, egid, groups,\n"
"caps (CapEff, hex), affinity (hex), \"rc\": rc, \"us\": microseconds since started, note}. `facts` and `note` are\n"
"members of a JSON object in ASCII; started is CLOCK_MONOTONIC in nanoseconds. Identity and time are the kernel's\n"
"word at this moment. In C, because a step writes dozens. False when the line could not be written whole.");

static PyObject *write_row(PyObject *self, PyObject *args)
{
    (void)self;
    int fd;
    long long started;
    const char *facts, *rc, *note;
    if (!PyArg_ParseTuple(args, "iLsss", &fd, &started, &facts, &rc, &note))
        return NULL;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long us = ((long long)now.tv_sec * 1000000000 + now.tv_nsec - started) / 1000;
    char *who = identity_json();
    char *line = NULL;
    int length = -1;
    if (who != NULL)
        length = asprintf(&line, "{\"t\":%lld,%s,%s,\"rc\":%s,\"us\":%lld%s%s}\n", started, facts, who, rc, us,
                          note[0] != '\0' ? "," : "", note);
    ssize_t written = length < 0 ? -1 : write(fd, line, (size_t)length);
    free(who);
    if (length >= 0)
        free(line);
    return PyBool_FromLong(written >= 0 && written == length);
}

PyDoc_STRVAR(cloexec_from_doc,
"cloexec_from(first: int) -> None\n\n"
"Marks every descriptor from first upwards close-on-exec: close_range(2), Linux 5.11. A task's program sees\n"
"0, 1 and 2 and nothing that a plugin or nodectl had open.");

static PyObject *cloexec_from(PyObject *self, PyObject *arg)
{
    (void)self;
    long first = PyLong_AsLong(arg);
    if (first == -1 && PyErr_Occurred())
        return NULL;
    if (syscall(SYS_close_range, (unsigned)first, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
        return failed("close_range");
    Py_RETURN_NONE;
}

PyDoc_STRVAR(set_clock_doc,
"set_clock(seconds: float, again: float, deadline: float) -> None\n\n"
"SIGALRM to the caller in so many seconds and every `again` after: setitimer(2). It is unblocked for that, and its\n"
"handler is again the one that it had at the first call: compiled plugins may have changed both.\n"
"SIGKILL in `deadline` seconds, whatever the caller has blocked, ignored or disarmed by then, and where it is\n"
"stopped: timer_create(2). 0 takes each back. Neither reaches a child; the deadline does not reach a program that\n"
"is executed. A kernel that has no timer left (EAGAIN) gives no deadline.");

static void set_deadline(double seconds)
{
    static timer_t timer;
    static pid_t owner; /* a fork has no timers */
    struct itimerspec spec = {{0, 0}, {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}};
    if (owner != getpid()) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        if (seconds <= 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
            return;
        owner = getpid();
    }
    timer_settime(timer, 0, &spec, NULL);
}

static PyObject *set_clock(PyObject *self, PyObject *args)
{
    (void)self;
    double seconds, again, deadline;
    if (!PyArg_ParseTuple(args, "ddd", &seconds, &again, &deadline))
        return NULL;
    struct itimerval value = {
        {(time_t)again, (suseconds_t)((again - (double)(time_t)again) * 1e6)},
        {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)},
    };
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    if (seconds > 0) {
        static struct sigaction handler;
        if (handler.sa_handler == SIG_DFL)
            sigaction(SIGALRM, NULL, &handler);
        else
            sigaction(SIGALRM, &handler, NULL);
        sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    }
    if (setitimer(ITIMER_REAL, &value, NULL) != 0)
        return failed("setitimer");
    set_deadline(deadline);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"fork_into", fork_into, METH_O, fork_into_doc},
    {"capabilities", capabilities, METH_NOARGS, capabilities_doc},
    {"identity", identity, METH_NOARGS, identity_doc},
    {"write_row", write_row, METH_VARARGS, write_row_doc},
    {"set_clock", set_clock, METH_VARARGS, set_clock_doc},
    {"cloexec_from", cloexec_from, METH_O, cloexec_from_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernel", "System calls that Python's os module does not offer.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    return PyModule_Create(&module);
}
