/* The clock that plugins' hooks run under. */
#define _GNU_SOURCE
#include "kernel.h"

#include <signal.h>
#include <stdbool.h>
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

int clock_go_on(double seconds, double deadline)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double since = (double)(now.tv_sec - own_clock.set.tv_sec) + (double)(now.tv_nsec - own_clock.set.tv_nsec) / 1e9;
    if (own_clock.runs && since < seconds / 100)
        return 0;
    if (set_timer(own_clock.alarm, seconds, 1) != 0 || set_timer(own_clock.kill, deadline, 0) != 0)
        return -1;
    own_clock.set = now;
    own_clock.runs = true;
    return 0;
}

int clock_set(double seconds, double deadline)
{
    hear_alarm();
    if (own_clock.owner != getpid()) {
        if (make_timer(&own_clock.alarm, SIGALRM) != 0 || make_timer(&own_clock.kill, SIGKILL) != 0)
            return -1;
        own_clock.owner = getpid();
        own_clock.runs = false;
    }
    return clock_go_on(seconds, deadline);
}

void clock_stop(void)
{
    if (own_clock.runs && own_clock.owner == getpid()) {
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

PyMethodDef clock_methods[] = {
    {"set_clock", set_clock, METH_VARARGS, set_clock_doc},
    {"stop_clock", stop_clock, METH_NOARGS, stop_clock_doc},
    {NULL, NULL, 0, NULL},
};
