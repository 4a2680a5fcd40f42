/* The clock that plugins' hooks run under, and which process goes on after a hook that forks.
 *
 * Owned here: the process's two timers, which a fork does not inherit and which end with the process; the handler that
 * SIGALRM had at first. The caller of successor_expect() owns the memory of the successors' number, and keeps it mapped.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
    double seconds;
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

static int make_clock(void)
{
    if (make_timer(&own_clock.alarm, SIGALRM) != 0 || make_timer(&own_clock.kill, SIGKILL) != 0)
        return -1;
    own_clock.owner = getpid();
    return 0;
}

static bool runs_here(void)
{
    return own_clock.runs && own_clock.owner == getpid();
}

static double runs_for(const struct timespec *now)
{
    return (double)(now->tv_sec - own_clock.set.tv_sec) + (double)(now->tv_nsec - own_clock.set.tv_nsec) / 1e9;
}

/* For a signal handler: true if the clock has run out; false if SIGALRM came from elsewhere. */
bool clock_is_over(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return runs_here() && runs_for(&now) >= own_clock.seconds;
}

int clock_go_on(double seconds, double deadline)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (runs_here() && runs_for(&now) < seconds / 100)
        return 0;
    if (own_clock.owner != getpid() && make_clock() != 0)
        return -1;
    if (set_timer(own_clock.alarm, seconds, 1) != 0 || set_timer(own_clock.kill, deadline, 0) != 0)
        return -1;
    own_clock.set = now;
    own_clock.seconds = seconds;
    own_clock.runs = true;
    return 0;
}

int clock_set(double seconds, double deadline)
{
    hear_alarm();
    return clock_go_on(seconds, deadline);
}

void clock_stop(void)
{
    if (runs_here()) {
        set_timer(own_clock.alarm, 0, 0);
        set_timer(own_clock.kill, 0, 0);
    }
    own_clock.runs = false;
}

static PyObject *set_clock(PyObject *self, PyObject *args)
{
    (void)self;
    double seconds, deadline;
    if (!PyArg_ParseTuple(args, "dd", &seconds, &deadline))
        return NULL;
    if (clock_set(seconds, deadline) != 0)
        return failed("set a timer");
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stop_clock_doc,
"stop_clock() -> None\n\n"
"Takes back what set_clock has set, if anything.");

static PyObject *stop_clock(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    clock_stop();
    Py_RETURN_NONE;
}

/* --- successors ---------------------------------------------------------------------------------------------- */

/* A hook in a task may fork, wait, and let the child return from the hook in its place: a plugin has no other way into
 * another pid namespace. The first process that returns goes on; the others only wait. A number in their shared memory
 * decides which is first: only one process can take it. A child of an earlier hook finds another number. */
static unsigned char *agreement;
static unsigned char successor_number;

void successor_expect(void *place)
{
    agreement = place;
    successor_number = (unsigned char)(successor_number % 255 + 1);
    __atomic_store_n(agreement, successor_number, __ATOMIC_SEQ_CST);
}

/* Takes the number. Returns true in the process that got it, which goes on. */
bool successor_is(void)
{
    unsigned char number = successor_number;
    unsigned char *place = agreement;
    agreement = NULL;
    return place == NULL ||
           __atomic_compare_exchange_n(place, &number, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Called in the hook, also from a signal handler: true if a child has returned from the hook already. */
bool successor_elsewhere(void)
{
    return agreement != NULL && __atomic_load_n(agreement, __ATOMIC_SEQ_CST) != successor_number;
}

/* For a process that did not return first: waits for all children, and ends as the last of them ended. */
void successor_await(void)
{
    int status = 0, last;
    clock_stop();
    for (;;) {
        if (wait(&last) >= 0)
            status = last;
        else if (errno != EINTR)
            break;
    }
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
}

PyDoc_STRVAR(successor_expect_doc,
"successor_expect(memory: memoryview, place: int) -> None\n\n"
"A hook begins: of this process and the children that it forks meanwhile, the first that comes out of it goes on. The\n"
"byte is in memory that they share. Then every one of them asks successor_is(), once.");

static PyObject *successor_expect_(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer memory;
    Py_ssize_t place;
    if (!PyArg_ParseTuple(args, "w*n", &memory, &place))
        return NULL;
    bool within = place >= 0 && place < memory.len;
    if (within)
        successor_expect((char *)memory.buf + place); /* a mapping that stays */
    PyBuffer_Release(&memory);
    if (within)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "there is no such place");
    return NULL;
}

PyDoc_STRVAR(successor_is_doc,
"successor_is() -> bool\n\n"
"True for the first process that came out of the hook.");

static PyObject *successor_is_(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyBool_FromLong(successor_is());
}

PyDoc_STRVAR(successor_elsewhere_doc,
"successor_elsewhere() -> bool\n\n"
"In a hook: True when a child has come out of it, and this process only waits.");

static PyObject *successor_elsewhere_(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyBool_FromLong(successor_elsewhere());
}

PyDoc_STRVAR(successor_await_doc,
"successor_await() -> NoReturn\n\n"
"Waits for every child, and ends as the last of them.");

static PyObject *successor_await_(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    successor_await();
}

PyMethodDef clock_methods[] = {
    {"successor_expect", successor_expect_, METH_VARARGS, successor_expect_doc},
    {"successor_is", successor_is_, METH_NOARGS, successor_is_doc},
    {"successor_elsewhere", successor_elsewhere_, METH_NOARGS, successor_elsewhere_doc},
    {"successor_await", successor_await_, METH_NOARGS, successor_await_doc},
    {"set_clock", set_clock, METH_VARARGS, set_clock_doc},
    {"stop_clock", stop_clock, METH_NOARGS, stop_clock_doc},
    {NULL, NULL, 0, NULL},
};
