/* Calls one hook of many plugins in one call, and does around each plugin what PluginCaller does
 * (nodectl/plugin_host/caller.py), without Python in between. The forkserver makes a compiled hook, and the stepds that
 * it forks only read it: a stepd that counted a reference to a Python object would copy the object's page.
 *
 * Owned here, and never freed: the compiled hooks. They refer to the plugins' hooks and to their places in the stack.
 */
#include "host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct place {
    const struct hook *hook;
    PyObject *stacked;
    const char *facts; /* the members about the plugin in its line of the trace */
    int number;        /* the plugin's place in the stack */
    int ac;
    char **argv;
};

struct compiled_hook {
    size_t count;
    struct place places[];
};

/* The arguments of a process's walk through a compiled hook. */
struct walk {
    Py_ssize_t from;
    PyObject *sp;
    Py_buffer progress; /* nodectl/plugin_host/tracing/progress.py */
    Py_ssize_t slot;    /* the offset in `progress` of this process's two bytes */
    int row;            /* the hook's number in `progress` */
    int trace;          /* the trace's descriptor, -1 for none */
    const char *head, *tail;
    double seconds, deadline;
    int threads; /* a descriptor of /proc/self/task if no plugin may leave a thread behind, else -1 */
};

static long long nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool has_threads(int directory)
{
    struct stat status;
    return directory >= 0 && (fstat(directory, &status) != 0 || status.st_nlink != 3); /* ".", ".." and one thread */
}

/* Takes the current exception, and returns it as an object. */
static PyObject *caught(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

/* Calls the plugin at a place, under the clock. Returns NULL if the hook returned 0 and left no thread; else its value,
 * or the exception. */
static PyObject *call_place(const struct walk *walk, const struct watch *watch, const struct place *place, int context)
{
    struct hook_call call = call_of(place->hook, place->ac, place->argv);
    call.call.context = context;
    call.call.stacked = place->stacked;
    if (walk->seconds > 0 && kernel->clock_go_on(walk->seconds, walk->deadline) != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return caught();
    }
    guard_again(watch);
    int rc = 0;
    if (guard(watch, &call.call, &rc) != 0)
        return caught();
    return rc == 0 && !has_threads(walk->threads) ? NULL : PyLong_FromLong(rc);
}

static PyObject *walk_on(const struct compiled_hook *compiled, const struct walk *walk, const struct watch *watch,
                         int context)
{
    char *progress = walk->progress.buf;
    pid_t self = getpid();
    char *agreement = walk->slot > 0 ? progress + walk->progress.len / 3 * 2 + walk->slot / 2 : NULL;
    for (size_t i = (size_t)walk->from; i < compiled->count; i++) {
        const struct place *place = &compiled->places[i];
        progress[walk->slot] = (char)walk->row;
        progress[walk->slot + 1] = (char)place->number;
        long long started = nanoseconds();
        if (agreement != NULL)
            kernel->successor_expect(agreement);
        PyObject *value = call_place(walk, watch, place, context);
        const pid_t process = getpid();
        if (process != self && (agreement == NULL || value != NULL))
            _exit(1); /* a child that the plugin forked has returned from the hook */
        if (agreement != NULL && !kernel->successor_is()) {
            if (process != self)
                _exit(1);
            kernel->successor_await();
        }
        self = process;
        if (value != NULL)
            return Py_BuildValue("nLN", (Py_ssize_t)i, started, value);
        const char *facts[] = {walk->head, place->facts, walk->tail, NULL};
        if (walk->trace >= 0)
            kernel->trace_line(walk->trace, started, facts, "0", "");
    }
    Py_RETURN_NONE;
}

/* PluginCaller has set the clock. An alarm between two plugins ends neither of them. */
static PyObject *walk_watched(const struct compiled_hook *compiled, const struct walk *walk)
{
    struct watch watch;
    int context = handle_context();
    if (context < 0)
        return NULL;
    handle_use(walk->sp);
    guard_begin(&watch, context);
    PyObject *result = walk_on(compiled, walk, &watch, context);
    if (walk->seconds > 0)
        kernel->clock_stop();
    guard_end(&watch);
    return result;
}

static PyObject *walk_compiled_hook(PyObject *self, PyObject *args)
{
    const struct compiled_hook *compiled = PyCapsule_GetPointer(self, NULL);
    struct walk walk;
    if (compiled == NULL ||
        !PyArg_ParseTuple(args, "nOw*niissddi", &walk.from, &walk.sp, &walk.progress, &walk.slot, &walk.row, &walk.trace,
                          &walk.head, &walk.tail, &walk.seconds, &walk.deadline, &walk.threads))
        return NULL;
    PyObject *result = NULL;
    if (walk.from < 0 || walk.slot < 0 || walk.slot + 1 >= walk.progress.len)
        PyErr_SetString(PyExc_ValueError, "there is no such place");
    else
        result = walk_watched(compiled, &walk);
    PyBuffer_Release(&walk.progress);
    return result;
}

static PyMethodDef walk_method = {"walk", walk_compiled_hook, METH_VARARGS, NULL};

static int fill_place(struct place *place, PyObject *row)
{
    PyObject *function, *argv;
    const char *facts;
    if (!PyArg_ParseTuple(row, "OOsOi", &function, &argv, &facts, &place->stacked, &place->number) ||
        (place->hook = hook_of(function)) == NULL)
        return -1;
    place->ac = (int)PySequence_Size(argv);
    place->argv = argv_of(place->hook->plugin, argv);
    place->facts = keep(facts);
    if (place->argv == NULL || place->facts == NULL)
        return -1;
    Py_INCREF(place->stacked);
    return 0;
}

const char compiled_hook_doc[] = PyDoc_STR(
"compiled_hook(rows: list[tuple[hook, argv, facts: str, stacked, number: int]]) -> walk\n\n"
"One hook of compiled plugins that stand one behind the other in a stack, to be walked as\n"
"  walk(from, sp, progress, slot, row, trace, head, tail, seconds, deadline, threads) -> None | (place, started, value)\n"
"Calls every plugin from place `from` on as PluginCaller.call does: notes its place in `progress`, sets the clock\n"
"(0 seconds: none) and afterwards writes a line of the trace; sp.plugin is its `stacked`. Returns at the first plugin\n"
"that has to be looked at: it returned another value than 0, which is `value`, or raised it, or left a thread. The\n"
"trace has no line of that one yet.");

PyObject *make_compiled_hook(PyObject *self, PyObject *rows)
{
    (void)self;
    Py_ssize_t count = PyList_Size(rows);
    if (count < 0)
        return NULL;
    struct compiled_hook *compiled = calloc(1, sizeof *compiled + (size_t)count * sizeof compiled->places[0]);
    if (compiled == NULL)
        return PyErr_NoMemory();
    compiled->count = (size_t)count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (fill_place(&compiled->places[i], PyList_GetItem(rows, i)) != 0)
            return NULL; /* compiled hooks are never freed, not even in this rare case */
    return callable(&walk_method, compiled);
}
