/* Runs prepared commands in lanes, one after the other, as long as Python has nothing to decide.
 *
 * The caller has one thread, and collects its children in no other way meanwhile. Nothing waits in the kernel for a
 * child: a child that opens a file on a user's file system may never come back.
 *
 * Owned here: nothing beyond a call.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DONE = 255 /* tracing/progress.py */, MOST_WATCHED = 64 };

struct turn {
    struct lane **lanes;
    Py_ssize_t lane_count, running;
    PyObject *commands, *rows;
    Py_ssize_t next, command_count, few;
    struct pollfd watched[MOST_WATCHED]; /* the first is the signalfd of SIGCHLD */
    nfds_t watched_count;
    double due, until, pause; /* when the caller has something to do, and when it gets rows */
    bool any_ended, is_called;
    int error;
};

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Adds a row for Python, which is to see it soon. Returns false for want of memory, with an exception. */
static bool add_row(struct turn *turn, PyObject *row)
{
    if (row == NULL || PyList_Append(turn->rows, row) != 0) {
        Py_XDECREF(row);
        return false;
    }
    Py_DECREF(row);
    double soon = now(CLOCK_MONOTONIC) + turn->pause;
    if (PyList_Size(turn->rows) == 1 && soon < turn->until)
        turn->until = soon;
    return true;
}

/* Starts the next commands in free lanes. Returns false where Python has to go on. */
static bool begin_commands(struct turn *turn)
{
    for (Py_ssize_t i = 0; i < turn->lane_count && turn->next < turn->command_count; i++) {
        struct lane *lane = turn->lanes[i];
        if (lane->pid != 0)
            continue;
        double started = now(CLOCK_BOOTTIME);
        long pid = lane_begin(lane, PyList_GetItem(turn->commands, turn->next));
        if (pid < 0) {
            turn->error = (int)-pid;
            return false;
        }
        turn->next++;
        turn->running++;
        if (!add_row(turn, Py_BuildValue("nld", i, pid, started)))
            return false;
    }
    return true;
}

/* What an ended child, not yet collected, and those that it waited for have read and written: proc(5). */
static void read_transferred(pid_t pid, long long *in, long long *out)
{
    char path[32], text[256];
    snprintf(path, sizeof path, "/proc/%ld/io", (long)pid);
    read_small(AT_FDCWD, path, text, sizeof text);
    if (sscanf(text, "rchar: %lld wchar: %lld", in, out) != 2)
        *in = *out = 0;
}

/* Collects the ended command of a lane. Returns false where Python has to go on: after an end by a signal, before the
 * program, of which there may be a report, or where processes are left. */
static bool collect(struct turn *turn, Py_ssize_t number)
{
    const double million = 1e6;
    struct lane *lane = turn->lanes[number];
    long long in, out, peak;
    struct rusage usage;
    int status;
    read_transferred(lane->pid, &in, &out);
    if (wait4(lane->pid, &status, 0, &usage) != lane->pid)
        return false;
    lane->pid = 0;
    turn->running--;
    turn->any_ended = true;
    bool is_plain = lane_leave(lane, WIFEXITED(status) && lane->started->launch.progress[0] == DONE, &peak);
    double user = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / million;
    double system = (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / million;
    PyObject *row = Py_BuildValue("nidddlLLLO", number, status, now(CLOCK_BOOTTIME), user, system, usage.ru_maxrss, in, out,
                                  peak, is_plain ? Py_True : Py_False);
    return add_row(turn, row) && is_plain;
}

/* Collects the commands that have ended. Returns false where Python has to go on, also for a child of another kind. */
static bool collect_all(struct turn *turn)
{
    for (;;) {
        siginfo_t ended = {0};
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0)
            return errno == ECHILD && turn->running == 0;
        if (ended.si_pid == 0)
            return true;
        Py_ssize_t i = 0;
        while (i < turn->lane_count && turn->lanes[i]->pid != ended.si_pid)
            i++;
        if (i == turn->lane_count || !collect(turn, i))
            return false;
    }
}

/* Waits for the next end. Returns false at the time, and where a watched descriptor has something for Python. */
static bool await_end(struct turn *turn)
{
    double left = turn->until - now(CLOCK_MONOTONIC);
    if (left <= 0)
        return false;
    struct timespec patience = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    if (ppoll(turn->watched, turn->watched_count, &patience, NULL) <= 0)
        return false;
    struct signalfd_siginfo told;
    bool children = turn->watched[0].revents != 0;
    while (children && read(turn->watched[0].fd, &told, sizeof told) == sizeof told)
        ;
    for (nfds_t i = 1; i < turn->watched_count; i++)
        if (turn->watched[i].revents != 0)
            return false;
    return children;
}

static void run_all(struct turn *turn)
{
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    turn->watched[0].fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    turn->watched[0].events = POLLIN;
    if (turn->watched[0].fd < 0) {
        turn->error = errno;
    } else {
        while ((turn->is_called = !collect_all(turn)) == false && begin_commands(turn)) {
            Py_ssize_t left = turn->command_count - turn->next;
            if ((turn->any_ended && left <= turn->few) || turn->running == 0 || !await_end(turn))
                break;
        }
        turn->is_called = turn->is_called || now(CLOCK_MONOTONIC) >= turn->due ||
                          poll(turn->watched + 1, turn->watched_count - 1, 0) != 0;
        close(turn->watched[0].fd);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Reads the lanes, each with the pid of the command in it, and the descriptors. Returns false with an exception. */
static bool read_turn(struct turn *turn, PyObject *lanes, PyObject *watched)
{
    turn->lane_count = PyList_Size(lanes);
    turn->command_count = PyList_Size(turn->commands);
    turn->watched_count = (nfds_t)PyList_Size(watched) + 1;
    if (turn->watched_count > MOST_WATCHED) {
        PyErr_SetString(PyExc_ValueError, "too many descriptors");
        return false;
    }
    for (nfds_t i = 1; i < turn->watched_count; i++) {
        turn->watched[i].fd = (int)PyLong_AsLong(PyList_GetItem(watched, (Py_ssize_t)i - 1));
        turn->watched[i].events = POLLIN;
    }
    turn->rows = PyList_New(0);
    turn->lanes = calloc((size_t)turn->lane_count + 1, sizeof *turn->lanes);
    if (turn->lanes == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < turn->lane_count && !PyErr_Occurred(); i++) {
        PyObject *capsule;
        int pid;
        if (!PyArg_ParseTuple(PyList_GetItem(lanes, i), "Oi", &capsule, &pid))
            break;
        if ((turn->lanes[i] = PyCapsule_GetPointer(capsule, NULL)) == NULL)
            break;
        turn->lanes[i]->pid = pid;
        turn->running += pid != 0;
    }
    return !PyErr_Occurred();
}

PyDoc_STRVAR(run_lanes_doc,
"run_lanes(lanes: list[tuple[object, int]], commands: list[list[tuple]], watched: list[int], patience: float, pause: float,\n"
"few: int) -> tuple[list[tuple], int, bool]\n\n"
"Runs the commands in order, each in the first free lane, and collects their ends. A lane comes with the pid of the command\n"
"that runs in it, 0 for none. A command is the list of its own operations: streams, environment(), argv(), execute().\n"
"Returns after `patience` seconds at the latest, `pause` seconds after the first row, after an end when no more than `few`\n"
"commands wait, when one of the descriptors `watched` is readable, and where the caller has to look at an end itself.\n"
"Rows are in order: (lane, pid, time) for a begin, and (lane, wait status, time, user seconds, system seconds, KiB, bytes\n"
"read, bytes written, peak of the cgroup's memory or -1, is_plain) for an end; times are of CLOCK_BOOTTIME. After an end that is not plain the lane is not used\n"
"again in this call. The number is an errno where the next command could not be started, else 0; the last value is True after\n"
"`patience` seconds, and where a descriptor is readable or a child is the caller's to collect.");

static PyObject *run_lanes(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *lanes, *watched, *answer = NULL;
    struct turn turn = {0};
    double patience;
    if (!PyArg_ParseTuple(args, "O!O!O!ddn", &PyList_Type, &lanes, &PyList_Type, &turn.commands, &PyList_Type, &watched,
                          &patience, &turn.pause, &turn.few))
        return NULL;
    turn.due = turn.until = now(CLOCK_MONOTONIC) + patience;
    if (read_turn(&turn, lanes, watched)) {
        run_all(&turn);
        answer = PyErr_Occurred() ? NULL : Py_BuildValue("OiO", turn.rows, turn.error, turn.is_called ? Py_True : Py_False);
    }
    Py_XDECREF(turn.rows);
    free(turn.lanes);
    return answer;
}

PyMethodDef lanes_methods[] = {
    {"run_lanes", run_lanes, METH_VARARGS, run_lanes_doc},
    {NULL, NULL, 0, NULL},
};
