/* One call into a plugin, and the ways out of the call: the plugin returns, runs out of time, calls a missing
 * function, ends the process, or dies.
 *
 * PluginCaller sets an alarm before a hook, and Python's handler raises an exception; while C code runs, it cannot. So
 * during a call this file handles SIGALRM, and leaves the call by siglongjmp(3), over the plugin's frames only: while
 * the plugin is inside Python (a visit), the jump waits for the visit's end.
 *
 * In the command of a user, a plugin that calls exit(3) or dies by a signal leaves its call in the same way. Else the
 * command would end with the plugin's status, which may be 0, and nothing would have run. In other contexts the process
 * ends, and the process that watches it reports that.
 *
 * Owned here: the frame of the running call, which lies on its caller's stack; the exceptions that a frame keeps until
 * its end; during calls the dispositions of SIGALRM and of the deadly signals, which guard_end restores.
 */
#include "host.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum state { IN_PLUGIN, IN_PYTHON, LANDED };
enum { RETURNED, LATE, LEFT, DIED }; /* results of sigsetjmp */
enum { INTERRUPTS = 3 };       /* as many as PluginCaller grants to a Python hook that swallows interrupts */

struct frame {
    struct frame *outer;
    struct call *call;
    pthread_t thread;
    pid_t pid;
    sigjmp_buf landing;
    volatile sig_atomic_t state;
    volatile sig_atomic_t late;
    char why[256];
    PyObject *exception[3];
};

static struct frame *current;

static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
static const char *const deadly_names[] = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"};
_Static_assert(sizeof deadly / sizeof deadly[0] == DEADLY_SIGNALS, "as many as a watch remembers");

static bool is_mine(const struct frame *frame)
{
    return frame != NULL && pthread_equal(pthread_self(), frame->thread);
}

/* True if the call that runs in this thread and process survives an exit or a deadly signal of the plugin. */
static bool is_survivor(const struct frame *frame)
{
    return is_mine(frame) && frame->state == IN_PLUGIN && frame->pid == getpid() &&
           (frame->call->context == S_CTX_LOCAL || frame->call->context == S_CTX_ALLOCATOR);
}

/* Writes an error to standard error; safe in a signal handler. Writes nothing in the stepd and the tasks: there
 * progress.py reports the error, and descriptor 2 may be the user's. */
static void tell(const struct call *call, const char *what, const char *name)
{
    if (call->context == S_CTX_REMOTE)
        return;
    const char *parts[] = {"nodectl: error: plugin ", call->plugin, ": ", call->hook, ": ", what, name, "\n"};
    struct iovec line[sizeof parts / sizeof parts[0]];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        line[i] = (struct iovec){(void *)parts[i], strlen(parts[i])};
    if (writev(STDERR_FILENO, line, sizeof parts / sizeof parts[0]) < 0)
        return;
}

static void end_process(const struct frame *frame)
{
    tell(frame->call, "ran over its time and could not be interrupted", "");
    _exit(1);
}

/* True if a child has returned from the hook in this process's place. Then stops the clock, because this
 * process only waits for the child. */
static bool has_successor(void)
{
    if (!kernel->successor_elsewhere())
        return false;
    kernel->clock_stop();
    return true;
}

static void on_alarm(int number)
{
    int saved = errno;
    struct frame *frame = current;
    if (frame == NULL)
        return;
    if (!is_mine(frame)) { /* a thread of the plugin got the signal */
        pthread_kill(frame->thread, number);
        errno = saved;
        return;
    }
    if (has_successor() || !kernel->clock_is_over()) { /* or a plugin, or a process that it left behind, sent the signal */
        errno = saved;
        return;
    }
    frame->late++;
    if (frame->state == IN_PLUGIN) {
        frame->state = LANDED;
        siglongjmp(frame->landing, LATE);
    }
    if ((frame->state == LANDED && frame->late > 1) || frame->late > INTERRUPTS)
        end_process(frame); /* the jump left a lock behind, or a Python function hangs */
    errno = saved;
}

static void on_death(int number)
{
    struct frame *frame = current;
    const char *name = "";
    for (int i = 0; i < DEADLY_SIGNALS; i++)
        if (deadly[i] == number)
            name = deadly_names[i];
    if (is_survivor(frame)) {
        frame->state = LANDED;
        strcpy(stpcpy(frame->why, "died by "), name);
        siglongjmp(frame->landing, DIED);
    }
    if (frame != NULL && frame->pid == getpid()) /* not for a child that the plugin forked: its death is no failure */
        tell(frame->call, "died by ", name);
    raise(number); /* kills at once: SA_RESETHAND and SA_NODEFER */
}

/* --- exits ------------------------------------------------------------------------------------------------------ */

static void leave_by_exit(const char *function, int status)
{
    char text[64];
    snprintf(text, sizeof text, "called %s(%d)", function, status);
    guard_leave(text);
}

/* Handles exits that reach libc without a slot of the plugin: from err(3), or from a library of the plugin. */
static void on_libc_exit(int status, void *unused)
{
    if (!is_survivor(current))
        return;
    on_exit(on_libc_exit, unused); /* again, because libc calls each registration once */
    leave_by_exit("exit", status);
}

void plain_exit(int status)
{
    if (is_survivor(current))
        leave_by_exit("exit", status);
    exit(status);
}

void plain_quick_exit(int status)
{
    if (is_survivor(current))
        leave_by_exit("quick_exit", status);
    quick_exit(status);
}

void plain_exit_at_once(int status)
{
    if (is_survivor(current))
        leave_by_exit("_exit", status);
    _exit(status);
}

/* --- the signals of a call -------------------------------------------------------------------------------------- */

/* Handles exits, and each deadly signal that has no other handler. */
static void watch_deaths(struct sigaction before[DEADLY_SIGNALS])
{
    static bool watches_exits;
    if (!watches_exits)
        watches_exits = on_exit(on_libc_exit, NULL) == 0;
    static char stack[1 << 16]; /* for a plugin that has used up the normal stack; untouched memory costs nothing */
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = on_death, .sa_flags = SA_ONSTACK | SA_RESETHAND | SA_NODEFER};
    for (int i = 0; i < DEADLY_SIGNALS; i++) {
        sigaction(deadly[i], &action, &before[i]);
        if (before[i].sa_handler != SIG_DFL)
            sigaction(deadly[i], &before[i], NULL);
    }
}

static void forget_deaths(const struct sigaction before[DEADLY_SIGNALS])
{
    for (int i = 0; i < DEADLY_SIGNALS; i++) {
        struct sigaction now;
        if (before[i].sa_handler != SIG_DFL)
            continue;
        sigaction(deadly[i], &before[i], &now);
        if (now.sa_handler != on_death)
            sigaction(deadly[i], &now, NULL); /* keep a handler that the plugin set */
    }
}

static void watch_clock(struct watch *watch)
{
    /* SA_RESTART: an alarm must not interrupt a plugin that only waits for the child that goes on in its place. */
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, &watch->clock_before);
    watch->clocked = watch->clock_before.sa_handler != SIG_DFL && watch->clock_before.sa_handler != SIG_IGN;
    if (!watch->clocked) /* these calls have no time limit */
        sigaction(SIGALRM, &watch->clock_before, NULL);
}

/* Allocates once. If the jump left malloc with its lock held, the process had better hang here, under the running
 * clock, than at the next allocation. The size is above the thread's cache, which takes no lock, and too small
 * for mmap. */
static void prove_malloc(void)
{
    void *volatile block = malloc(16 << 10);
    free(block);
}

/* --- the call --------------------------------------------------------------------------------------------------- */

static int raise_late(void)
{
    /* Runs PluginCaller's handler in Python, which raises an exception with the reason. */
    PyErr_SetInterruptEx(SIGALRM);
    if (PyErr_CheckSignals() == 0)
        PyErr_SetString(PyExc_RuntimeError, "took longer than it may");
    return -1;
}

static int outcome(struct frame *frame, int how)
{
    if (how == LATE) {
        for (int i = 0; i < 3; i++)
            Py_CLEAR(frame->exception[i]);
        return raise_late();
    }
    if (frame->exception[0] != NULL) {
        PyErr_Restore(frame->exception[0], frame->exception[1], frame->exception[2]);
        return -1;
    }
    if (how == LEFT || how == DIED) {
        PyErr_SetString(PyExc_RuntimeError, frame->why);
        return -1;
    }
    return 0;
}

void guard_begin(struct watch *watch, int context)
{
    watch_clock(watch);
    watch->tells = context != S_CTX_REMOTE;
    if (watch->tells)
        watch_deaths(watch->deaths_before);
}

void guard_end(const struct watch *watch)
{
    if (watch->clocked)
        sigaction(SIGALRM, &watch->clock_before, NULL);
    if (watch->tells)
        forget_deaths(watch->deaths_before);
}

void guard_again(const struct watch *watch)
{
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigset_t alarm;
    if (!watch->clocked)
        return;
    sigaction(SIGALRM, &action, NULL);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
}

int guard(const struct watch *watch, struct call *call, int *rc)
{
    struct frame frame = {.outer = current, .call = call, .thread = pthread_self(), .state = LANDED};
    if (watch->tells)
        frame.pid = getpid();
    PyThreadState *python = PyEval_SaveThread(); /* lets a thread of the plugin log meanwhile */
    current = &frame;
    int how = sigsetjmp(frame.landing, 1);
    if (how == RETURNED) {
        frame.state = IN_PLUGIN;
        *rc = call->enter(call);
        fflush(NULL); /* otherwise a fork would duplicate buffered output */
    } else if (how == LEFT) {
        frame.state = IN_PLUGIN; /* under the clock, because writing may hang, too */
        fflush(NULL);
    } else {
        prove_malloc();
    }
    frame.state = LANDED;
    current = frame.outer;
    PyEval_RestoreThread(python);
    return outcome(&frame, how);
}

void guard_leave(const char *text)
{
    struct frame *frame = current;
    if (!is_mine(frame) || frame->state != IN_PLUGIN) { /* a thread or destructor of a plugin has no call to leave */
        fprintf(stderr, "nodectl: error: a plugin %s\n", text);
        _exit(127);
    }
    snprintf(frame->why, sizeof frame->why, "%s", text);
    siglongjmp(frame->landing, LEFT);
}

const char *guard_plugin(void)
{
    return is_mine(current) ? current->call->plugin : "";
}

void guard_keep_exception(void)
{
    struct frame *frame = current;
    if (is_mine(frame) && frame->exception[0] == NULL)
        PyErr_Fetch(&frame->exception[0], &frame->exception[1], &frame->exception[2]);
    else
        PyErr_Clear();
}

void visit_begin(struct visit *visit)
{
    visit->saved_errno = errno;
    visit->of_call = is_mine(current) && current->state == IN_PLUGIN;
    if (visit->of_call)
        current->state = IN_PYTHON;
    visit->gil = PyGILState_Ensure();
    if (current != NULL && current->call->stacked != NULL) {
        if (handle_set_plugin(current->call->stacked) != 0)
            guard_keep_exception();
        current->call->stacked = NULL;
    }
    errno = visit->saved_errno;
}

void visit_end(struct visit *visit)
{
    PyGILState_Release(visit->gil);
    errno = visit->saved_errno;
    if (!visit->of_call)
        return;
    struct frame *frame = current;
    frame->state = IN_PLUGIN;
    if (frame->late) {
        frame->state = LANDED;
        siglongjmp(frame->landing, LATE);
    }
}
