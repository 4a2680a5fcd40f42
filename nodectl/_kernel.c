/* nodectl._kernel: the system calls that Python's os module does not offer.
 *
 * Keeps no state but the clock of plugins' hooks. Used in the forkserver, the stepd and the tasks, which must not
 * import ctypes: mapping libffi doubles the price of every later fork. Every function raises a plain
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
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

/* What a line of a trace is put together with: each returns where the text goes on. A step writes dozens of lines,
 * and printf(3) would be half of their price. */
static char *put_number(char *out, unsigned long long number)
{
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    while (count > 0)
        *out++ = digits[--count];
    return out;
}

static char *put_signed(char *out, long long number)
{
    if (number < 0)
        *out++ = '-';
    return put_number(out, number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number);
}

static char *put_hex(char *out, uint64_t number, int least)
{
    int digits = 1;
    while (digits < 16 && (digits < least || number >> (4 * digits) != 0))
        digits++;
    while (digits-- > 0)
        *out++ = "0123456789abcdef"[number >> (4 * digits) & 0xf];
    return out;
}

enum { FEW_GROUPS = 64, FEW_BYTES = 128, MOST_BYTES = 65536 };

/* Who a process is at one moment, in the kernel's words. */
struct who {
    uid_t ruid, euid;
    gid_t rgid, egid;
    uint64_t capabilities;
    int group_count;
    long mask_words;
    gid_t *groups;
    unsigned long *mask;
    gid_t few_groups[FEW_GROUPS];
    unsigned long narrow_mask[FEW_BYTES / sizeof(unsigned long)];
};

static void forget(struct who *who)
{
    if (who->groups != who->few_groups)
        free(who->groups);
    if (who->mask != who->narrow_mask)
        free(who->mask);
}

static int ask_groups(struct who *who)
{
    who->groups = who->few_groups;
    who->group_count = getgroups(FEW_GROUPS, who->few_groups);
    if (who->group_count >= 0 || errno != EINVAL)
        return who->group_count < 0 ? -1 : 0;
    int count = getgroups(0, NULL);
    if (count < 0 || (who->groups = calloc((size_t)count + 1, sizeof *who->groups)) == NULL)
        return -1;
    who->group_count = getgroups(count, who->groups);
    return who->group_count < 0 ? -1 : 0;
}

/* The kernel's mask may be wider than what is offered: ask with growing room, as sched_getaffinity(2) advises. */
static int ask_mask(struct who *who)
{
    who->mask = who->narrow_mask;
    for (size_t bytes = FEW_BYTES; bytes <= MOST_BYTES; bytes *= 2) {
        if (bytes > FEW_BYTES) {
            unsigned long *wider = realloc(who->mask == who->narrow_mask ? NULL : who->mask, bytes);
            if (wider == NULL)
                return -1;
            who->mask = wider;
        }
        long used = syscall(SYS_sched_getaffinity, 0, bytes, who->mask);
        if (used >= 0) {
            who->mask_words = used / (long)sizeof(long);
            return 0;
        }
        if (errno != EINVAL)
            return -1;
    }
    return -1;
}

/* Asks the kernel. 0, or -1 with errno; `forget` afterwards in both cases. */
static int ask(struct who *who)
{
    uid_t suid;
    gid_t sgid;
    uint64_t permitted, inheritable;
    who->groups = who->few_groups;
    who->mask = who->narrow_mask;
    if (getresuid(&who->ruid, &who->euid, &suid) != 0 || getresgid(&who->rgid, &who->egid, &sgid) != 0 ||
        capabilities_of(&who->capabilities, &permitted, &inheritable) != 0)
        return -1;
    return ask_groups(who) != 0 ? -1 : ask_mask(who);
}

/* How much room the members of `who` take at most. */
static size_t room_for(const struct who *who)
{
    return 256 + (size_t)who->group_count * 11 + (size_t)who->mask_words * 2 * sizeof(long);
}

static char *put_who(char *out, const struct who *who)
{
    out = put_number(stpcpy(out, "\"ruid\":"), who->ruid);
    out = put_number(stpcpy(out, ",\"euid\":"), who->euid);
    out = put_number(stpcpy(out, ",\"rgid\":"), who->rgid);
    out = put_number(stpcpy(out, ",\"egid\":"), who->egid);
    out = stpcpy(out, ",\"groups\":[");
    for (int i = 0; i < who->group_count; i++) {
        if (i > 0)
            *out++ = ',';
        out = put_number(out, who->groups[i]);
    }
    out = put_hex(stpcpy(out, "],\"caps\":\""), who->capabilities, 16);
    out = stpcpy(out, "\",\"affinity\":\"");
    long word = who->mask_words - 1; /* longs, and not bytes, so that big-endian machines agree */
    while (word > 0 && who->mask[word] == 0)
        word--;
    for (int least = 1; word >= 0; word--, least = 2 * (int)sizeof(long))
        out = put_hex(out, who->mask[word], least);
    return stpcpy(out, "\"");
}

PyDoc_STRVAR(identity_doc,
"identity() -> str\n\n"
"Who the caller is right now, as the inside of a JSON object: ruid, euid, rgid, egid, groups, caps (CapEff,\n"
"hex) and affinity (hex).");

static PyObject *identity(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    struct who who;
    PyObject *result = NULL;
    char *text = NULL;
    if (ask(&who) != 0)
        failed("identity");
    else if ((text = malloc(room_for(&who))) == NULL)
        PyErr_NoMemory();
    else
        result = PyUnicode_FromStringAndSize(text, put_who(text, &who) - text);
    free(text);
    forget(&who);
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
    struct who who;
    char *line = NULL;
    bool whole = false;
    if (ask(&who) == 0)
        line = malloc(room_for(&who) + strlen(facts) + strlen(rc) + strlen(note) + 128);
    if (line != NULL) {
        char *out = put_signed(stpcpy(line, "{\"t\":"), started);
        *out++ = ',';
        out = stpcpy(out, facts);
        *out++ = ',';
        out = put_who(out, &who);
        out = stpcpy(stpcpy(out, ",\"rc\":"), rc);
        out = put_signed(stpcpy(out, ",\"us\":"), us);
        if (note[0] != '\0')
            out = stpcpy(stpcpy(out, ","), note);
        out = stpcpy(out, "}\n");
        whole = write(fd, line, (size_t)(out - line)) == out - line;
    }
    free(line);
    forget(&who);
    return PyBool_FromLong(whole);
}

PyDoc_STRVAR(entries_doc,
"entries(directory_fd: int) -> int\n\n"
"How many directories lie in the one that the descriptor stands for: its links but two. Of /proc/PID/task: the\n"
"process's threads, proc(5). Raises OSError.");

static PyObject *entries(PyObject *self, PyObject *arg)
{
    (void)self;
    long fd = PyLong_AsLong(arg);
    struct stat status;
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    if (fstat((int)fd, &status) != 0)
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
    long first = PyLong_AsLong(arg);
    if (first == -1 && PyErr_Occurred())
        return NULL;
    if (syscall(SYS_close_range, (unsigned)first, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
        return failed("close_range");
    Py_RETURN_NONE;
}

PyDoc_STRVAR(set_clock_doc,
"set_clock(seconds: float, deadline: float) -> None\n\n"
"SIGALRM to this process in so many seconds and again every second after, and SIGKILL, which nothing blocks, ignores\n"
"or survives stopped, in `deadline` seconds, 0 for never. A clock that has run for less than a hundredth of its time\n"
"runs on as it is: hooks are many, and short. SIGALRM is unblocked, and its handler is again the one that it had at\n"
"the first call: compiled plugins may have changed both. stop_clock() takes the clock back.\n"
"The timers are the process's own (timer_create(2)): no child and no program that is executed inherits them, and a\n"
"plugin's alarm(2) and setitimer(2) do not touch them. Raises OSError where the kernel has no timer left.");

static struct {
    pid_t owner; /* a fork has no timers */
    bool runs;
    timer_t alarm, kill;
    struct timespec set;
} own_clock;

static int make_timer(timer_t *timer, int number)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
    return timer_create(CLOCK_MONOTONIC, &event, timer);
}

static int set_timer(timer_t timer, double seconds, int again)
{
    struct itimerspec spec = {{again, 0}, {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}};
    return timer_settime(timer, 0, &spec, NULL);
}

static void hear_alarm(void)
{
    static struct sigaction handler;
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    if (handler.sa_handler == SIG_DFL)
        sigaction(SIGALRM, NULL, &handler);
    else
        sigaction(SIGALRM, &handler, NULL);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
}

static PyObject *set_clock(PyObject *self, PyObject *args)
{
    (void)self;
    double seconds, deadline;
    struct timespec now;
    if (!PyArg_ParseTuple(args, "dd", &seconds, &deadline))
        return NULL;
    hear_alarm();
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (own_clock.owner != getpid()) {
        if (make_timer(&own_clock.alarm, SIGALRM) != 0 || make_timer(&own_clock.kill, SIGKILL) != 0)
            return failed("timer_create");
        own_clock.owner = getpid();
        own_clock.runs = false;
    }
    double since = (double)(now.tv_sec - own_clock.set.tv_sec) + (double)(now.tv_nsec - own_clock.set.tv_nsec) / 1e9;
    if (own_clock.runs && since < seconds / 100)
        Py_RETURN_NONE;
    if (set_timer(own_clock.alarm, seconds, 1) != 0 || set_timer(own_clock.kill, deadline, 0) != 0)
        return failed("timer_settime");
    own_clock.set = now;
    own_clock.runs = true;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stop_clock_doc,
"stop_clock() -> None\n\n"
"Takes back what set_clock has set, if anything.");

static PyObject *stop_clock(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    if (own_clock.runs && own_clock.owner == getpid()) {
        set_timer(own_clock.alarm, 0, 0);
        set_timer(own_clock.kill, 0, 0);
    }
    own_clock.runs = false;
    Py_RETURN_NONE;
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

/* A set of NUMA nodes as the kernel takes it. MAX_NUMNODES is 1024 where it is largest. */
enum { MOST_NODES = 1024, NODE_BYTES = MOST_NODES / 8, LONG_BITS = 8 * (int)sizeof(long) };

PyDoc_STRVAR(set_mempolicy_doc,
"set_mempolicy(mode: int, nodes: Iterable[int]) -> None\n\n"
"The memory policy of the caller, kept by what it executes: set_mempolicy(2). mode is MPOL_*; nodes are the NUMA nodes\n"
"by their numbers. Raises OSError: EINVAL for a node that there is not, or none of which the caller may use.");

static PyObject *set_mempolicy(PyObject *self, PyObject *args)
{
    (void)self;
    int mode;
    PyObject *nodes, *node;
    unsigned long mask[NODE_BYTES / sizeof(long)] = {0};
    if (!PyArg_ParseTuple(args, "iO", &mode, &nodes) || (nodes = PyObject_GetIter(nodes)) == NULL)
        return NULL;
    while ((node = PyIter_Next(nodes)) != NULL) {
        long number = PyLong_AsLong(node);
        Py_DECREF(node);
        if (number >= 0 && number < MOST_NODES)
            mask[number / LONG_BITS] |= 1UL << number % LONG_BITS;
        else if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "set_mempolicy: %ld is no NUMA node", number);
    }
    Py_DECREF(nodes);
    if (PyErr_Occurred())
        return NULL;
    /* One more than the bits that count: the kernel leaves out the last. No nodes at all is a null mask. */
    bool empty = true;
    for (size_t i = 0; i < sizeof mask / sizeof *mask; i++)
        empty = empty && mask[i] == 0;
    if (syscall(SYS_set_mempolicy, mode, empty ? NULL : mask, empty ? 0UL : MOST_NODES + 1UL) != 0)
        return failed("set_mempolicy");
    Py_RETURN_NONE;
}

PyDoc_STRVAR(get_mempolicy_doc,
"get_mempolicy() -> tuple[int, list[int]]\n\n"
"The memory policy of the caller, mode and NUMA nodes: get_mempolicy(2). Raises OSError.");

static PyObject *get_mempolicy(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    int mode;
    unsigned long mask[NODE_BYTES / sizeof(long)] = {0};
    if (syscall(SYS_get_mempolicy, &mode, mask, (unsigned long)MOST_NODES, NULL, 0UL) != 0)
        return failed("get_mempolicy");
    PyObject *nodes = PyList_New(0);
    for (long number = 0; nodes != NULL && number < MOST_NODES; number++) {
        if ((mask[number / LONG_BITS] >> number % LONG_BITS & 1) == 0)
            continue;
        PyObject *item = PyLong_FromLong(number);
        if (item == NULL || PyList_Append(nodes, item) != 0)
            Py_CLEAR(nodes);
        Py_XDECREF(item);
    }
    return nodes == NULL ? NULL : Py_BuildValue("iN", mode, nodes);
}

static PyMethodDef methods[] = {
    {"fork_into", fork_into, METH_O, fork_into_doc},
    {"capabilities", capabilities, METH_NOARGS, capabilities_doc},
    {"identity", identity, METH_NOARGS, identity_doc},
    {"write_row", write_row, METH_VARARGS, write_row_doc},
    {"set_clock", set_clock, METH_VARARGS, set_clock_doc},
    {"stop_clock", stop_clock, METH_NOARGS, stop_clock_doc},
    {"entries", entries, METH_O, entries_doc},
    {"stamp", stamp, METH_O, stamp_doc},
    {"cloexec_from", cloexec_from, METH_O, cloexec_from_doc},
    {"set_mempolicy", set_mempolicy, METH_VARARGS, set_mempolicy_doc},
    {"get_mempolicy", get_mempolicy, METH_NOARGS, get_mempolicy_doc},
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
