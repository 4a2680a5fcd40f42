/* One hook of many plugins in one call: what the Door does around each of them (nodectl/plugin_host/caller.py), without Python in
 * between. A lane is made where stepds are forked from, and a walk only reads it: whatever Python object a stepd so much as
 * counts a reference to is on a page that has to be copied.
 */
#include "host.h"

#include "kernel_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct place {
    const struct hook *hook;
    PyObject *stacked;
    const char *facts; /* of its line in the trace */
    int number;        /* in the stack */
    int ac;
    char **argv;
};

struct lane {
    size_t count;
    struct place places[];
};

/* What a process calls a lane with. */
struct walk {
    Py_ssize_t from;
    PyObject *sp;
    Py_buffer board;
    Py_ssize_t slot; /* where its two bytes on the board are */
    int row;         /* the hook's number there */
    int trace;       /* -1 for none */
    const char *head, *tail;
    double seconds, deadline;
    int threads; /* a descriptor of /proc/self/task where no plugin may leave a thread, else -1 */
};

static const struct kernel_calls *kernel;

int walk_begin(void)
{
    PyObject *module = PyImport_ImportModule("nodectl.kernel._kernel");
    if (module == NULL)
        return -1;
    Py_DECREF(module);
    kernel = PyCapsule_Import(KERNEL_CALLS, 0);
    return kernel == NULL ? -1 : 0;
}

bool walk_has_heir(void)
{
    if (kernel == NULL || !kernel->heir_elsewhere())
        return false;
    kernel->clock_stop();
    return true;
}

static long long now(void)
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

/* The exception that is set, as a value. */
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

/* Calls the plugin at a place, under the clock. NULL where nothing has to be looked at; else what it returned or raised. */
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

static PyObject *walk_on(const struct lane *lane, const struct walk *walk, const struct watch *watch, int context)
{
    char *board = walk->board.buf;
    pid_t self = getpid();
    char *heirloom = walk->slot > 0 ? board + walk->board.len / 3 * 2 + walk->slot / 2 : NULL; /* nodectl/tracing/progress.py */
    for (size_t i = (size_t)walk->from; i < lane->count; i++) {
        const struct place *place = &lane->places[i];
        board[walk->slot] = (char)walk->row;
        board[walk->slot + 1] = (char)place->number;
        long long started = now();
        if (heirloom != NULL)
            kernel->heir_expect(heirloom);
        PyObject *value = call_place(walk, watch, place, context);
        const pid_t process = getpid();
        if (process != self && (heirloom == NULL || value != NULL))
            _exit(1); /* a child that the plugin forked came out of its hook */
        if (heirloom != NULL && !kernel->heir_is()) {
            if (process != self)
                _exit(1);
            kernel->heir_await();
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

/* The Door has set the clock. An alarm that comes between two plugins is nobody's. */
static PyObject *walk_watched(const struct lane *lane, const struct walk *walk)
{
    struct watch watch;
    int context = api_context();
    if (context < 0)
        return NULL;
    api_use(walk->sp);
    guard_begin(&watch, context);
    PyObject *result = walk_on(lane, walk, &watch, context);
    if (walk->seconds > 0)
        kernel->clock_stop();
    guard_end(&watch);
    return result;
}

static PyObject *call_lane(PyObject *self, PyObject *args)
{
    const struct lane *lane = PyCapsule_GetPointer(self, NULL);
    struct walk walk;
    if (lane == NULL ||
        !PyArg_ParseTuple(args, "nOw*niissddi", &walk.from, &walk.sp, &walk.board, &walk.slot, &walk.row, &walk.trace,
                          &walk.head, &walk.tail, &walk.seconds, &walk.deadline, &walk.threads))
        return NULL;
    PyObject *result = NULL;
    if (walk.from < 0 || walk.slot < 0 || walk.slot + 1 >= walk.board.len)
        PyErr_SetString(PyExc_ValueError, "there is no such place");
    else
        result = walk_watched(lane, &walk);
    PyBuffer_Release(&walk.board);
    return result;
}

static PyMethodDef lane_method = {"walk", call_lane, METH_VARARGS, NULL};

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

const char walk_lane_doc[] = PyDoc_STR(
"lane(rows: list[tuple[hook, argv, facts: str, stacked, number: int]]) -> walk\n\n"
"One hook of compiled plugins that stand one behind the other in a stack, to be walked as\n"
"  walk(from, sp, board, slot, row, trace, head, tail, seconds, deadline, threads) -> None | (place, started, value)\n"
"Calls every plugin from place `from` on as Door.call does: its place on the board first, under the clock (0 seconds:\n"
"none), a line of the trace after it, sp.plugin its `stacked`. Comes back with the first that has to be looked at: it\n"
"returned another value than 0, which is `value`, or raised it, or left a thread; there is no line of it yet.");

PyObject *walk_lane(PyObject *self, PyObject *rows)
{
    (void)self;
    Py_ssize_t count = PyList_Size(rows);
    if (count < 0)
        return NULL;
    struct lane *lane = calloc(1, sizeof *lane + (size_t)count * sizeof lane->places[0]);
    if (lane == NULL)
        return PyErr_NoMemory();
    lane->count = (size_t)count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (fill_place(&lane->places[i], PyList_GetItem(rows, i)) != 0)
            return NULL; /* rare, and a lane's memory stays in any case */
    return callable(&lane_method, lane);
}
