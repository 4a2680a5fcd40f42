/* Starts a task from its operations: in a child that shares the caller's memory until its program begins, or, if
 * Python has to run in between, in the caller itself, which is then a fork made for the task.
 *
 * The child has its own stack and room between guard pages, and no signal handlers. Neither libc nor Python runs in it,
 * so the parent's locks and errno do not matter. The child has its own identity, its own open files and its own rights
 * of access. Its memory is root's, but no user can read it: become_user() makes it undumpable.
 *
 * Owned here: a started task's memory, until the object that start() returns is dropped or given to the next start().
 * The caller does so only after the task has begun its program, or has ended.
 */
#define _GNU_SOURCE
#include "launch.h"

#include "raw.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif

enum { PAGE = 65536 /* the largest of any machine */, STACK = 2 * PAGE };
enum { LEAST_ROOM = 32768, EACH_GROUP = 16 };

void drop_started(struct started *started)
{
    if (started->mapped != NULL)
        munmap(started->mapped, started->mapped_size);
    free(started->allocated);
    free(started->launch.argv);
    free(started->launch.environment);
    free(started->list);
    Py_XDECREF(started->operations);
    Py_XDECREF(started->context);
    free(started);
}

static void drop_capsule(PyObject *capsule)
{
    drop_started(PyCapsule_GetPointer(capsule, NULL));
}

static size_t strings_in(const struct operation *operation)
{
    size_t count = 0;
    for (size_t at = 0; at < operation->size; at++)
        count += operation->data[at] == '\0';
    return count;
}

/* Appends the strings of `operation` to the list `there`, and returns it in the shape that exec wants. */
static char **with_strings(char **there, const struct operation *operation)
{
    size_t before = 0, count = strings_in(operation);
    while (there != NULL && there[before] != NULL)
        before++;
    char **list = realloc(there, (before + count + 1) * sizeof *list);
    if (list == NULL)
        return NULL;
    const char *text = operation->data;
    for (size_t i = before; i < before + count; i++, text += strlen(text) + 1)
        list[i] = (char *)(uintptr_t)text;
    list[before + count] = NULL;
    return list;
}

bool read_words(struct launch *launch, const struct operation *operation)
{
    if (operation->code != OP_ENVIRONMENT)
        return true;
    char ***place = operation->a ? &launch->argv : &launch->environment, **list = with_strings(*place, operation);
    if (list == NULL)
        return false;
    *place = list;
    for (char **variable = operation->a ? NULL : list; variable != NULL && *variable != NULL; variable++) {
        if (strcmp(*variable, "SLURM_TASK_PID=") == 0)
            launch->task_pid = variable;
        if (strncmp(*variable, "TMPDIR=", 7) == 0)
            launch->tmpdir = variable;
    }
    return true;
}

/* Reads (code, a, b, data, what). */
bool read_operation(struct operation *operation, PyObject *tuple)
{
    int code;
    Py_ssize_t size, what_size;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "no operation");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "illy#y#", &code, &operation->a, &operation->b, &operation->data, &size, &operation->what,
                          &what_size))
        return false;
    operation->size = (size_t)size;
    operation->code = (enum code)code;
    bool is_sound = code >= 0 && code < OPERATIONS && what_size <= LONGEST_WHAT &&
                    memchr(operation->what, '\0', (size_t)what_size) != NULL;
    if (is_sound && code == OP_SAY)
        is_sound = size < LEAST_ROOM / 2 && strings_in(operation) == 2;
    if (is_sound && code == OP_ROW)
        is_sound = size == 0 || strings_in(operation) == 1;
    if (is_sound && code == OP_BIND)
        is_sound = operation->b >= 0 && operation->b <= size && strlen(operation->what) > sizeof "bind to CPUs " + 1;
    if (!is_sound) {
        PyErr_SetString(PyExc_ValueError, "no operation");
        return false;
    }
    return true;
}

bool map_room(struct started *started, struct started *used)
{
    struct launch *launch = &started->launch;
    started->mapped_size = PAGE + STACK + (launch->room_size + PAGE - 1) / PAGE * PAGE + PAGE;
    if (used != NULL && used->mapped != NULL && used->mapped_size == started->mapped_size) {
        started->mapped = used->mapped;
        used->mapped = NULL;
    } else {
        started->mapped = mmap(NULL, started->mapped_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (started->mapped == MAP_FAILED) {
            started->mapped = NULL;
            errno = ENOMEM;
            failed("mmap");
            return false;
        }
        mprotect(started->mapped, PAGE, PROT_NONE);
        mprotect(started->mapped + started->mapped_size - PAGE, PAGE, PROT_NONE);
    }
    launch->room = started->mapped + PAGE + STACK;
    return true;
}

/* Allocates the room of a caller that carries out the operations itself, on its own stack. */
static bool allocate_room(struct started *started)
{
    started->launch.room = started->allocated = malloc(started->launch.room_size);
    if (started->allocated == NULL)
        PyErr_NoMemory();
    return started->allocated != NULL;
}

/* The largest number of groups that an operation of the launch sets. */
static Py_ssize_t groups_in(const struct launch *launch)
{
    size_t most = 0;
    for (size_t i = 0; i < launch->count; i++) {
        const struct operation *operation = &launch->operations[i];
        if (operation->code == OP_USER && operation->size / sizeof(gid_t) > most)
            most = operation->size / sizeof(gid_t);
    }
    return (Py_ssize_t)most;
}

/* `context`: (report, trace, task, its facts, progress or None, slot, groups). */
struct started *read_started(PyObject *operations, PyObject *context)
{
    PyObject *progress;
    Py_ssize_t slot, groups, count = PyList_Size(operations);
    struct started *started = calloc(1, sizeof *started);
    if (count < 0 || started == NULL)
        goto broken;
    struct launch *launch = &started->launch;
    if (!PyArg_ParseTuple(context, "iilsOnn", &launch->report, &launch->trace, &launch->task, &launch->facts, &progress,
                          &slot, &groups))
        goto broken;
    started->operations = Py_NewRef(operations);
    started->context = Py_NewRef(context);
    if ((started->list = calloc((size_t)count + 1, sizeof *started->list)) == NULL)
        goto broken;
    launch->operations = started->list;
    for (int i = 0; i < STREAMS; i++)
        launch->taken[i] = -1;
    launch->count = (size_t)count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!read_operation(&started->list[i], PyList_GetItem(operations, i)))
            goto broken;
    for (size_t i = 0; i < launch->count; i++)
        if (!read_words(launch, &started->list[i]))
            goto broken;
    if (progress != Py_None) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(progress, &buffer, PyBUF_WRITABLE) != 0)
            goto broken;
        launch->progress = slot >= 0 && 2 * slot + 1 < buffer.len ? (unsigned char *)buffer.buf + 2 * slot : NULL;
        char *takers = (char *)buffer.buf + buffer.len - sizeof *launch->takers;
        bool has_takers = buffer.len >= (Py_ssize_t)sizeof *launch->takers && (uintptr_t)takers % sizeof *launch->takers == 0;
        launch->takers = has_takers ? (uint32_t *)(void *)takers : NULL;
        PyBuffer_Release(&buffer); /* the memory stays mapped */
    }
    Py_ssize_t own = groups_in(launch);
    launch->room_size = (size_t)(LEAST_ROOM + EACH_GROUP * (own > groups ? own : groups));
    return started;
broken:
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    if (started != NULL)
        drop_started(started);
    return NULL;
}

static void begin(void *argument)
{
    const uint64_t none = 0;
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none); /* CLONE_CLEAR_SIGHAND left no handlers */
    carry_out(argument);
    raw(SYS_exit_group, 1); /* the last operation executes the program */
}

/* Binds the child from outside. The kernel often queues a new child on a busy CPU, where it would wait for its first
 * turn only to leave that CPU. The child still binds itself, and checks the result. A child whose mask is the caller's
 * needs no call. */
static void bind_newborn(long pid, const struct launch *launch)
{
    for (size_t i = 0; i < launch->count; i++) {
        const struct operation *operation = &launch->operations[i];
        const size_t size = (size_t)operation->b;
        if (operation->code != OP_BIND || size == 0 || size > MOST_MASK)
            continue;
        char inherited[MOST_MASK] = {0}, wanted[MOST_MASK] = {0};
        memcpy(wanted, operation->data, size);
        if (raw(SYS_sched_getaffinity, 0, MOST_MASK, inherited) < 0 || memcmp(wanted, inherited, MOST_MASK) != 0)
            raw(SYS_sched_setaffinity, pid, size, wanted);
    }
}

long spawn(struct started *started, int cgroup)
{
    started->launch.shared = true;
    struct clone3_args clone = {
        .flags = CLONE_VM | CLONE_CLEAR_SIGHAND | (cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)(started->mapped + PAGE),
        .stack_size = STACK,
        .cgroup = cgroup >= 0 ? (uint64_t)cgroup : 0,
    };
    const uint64_t all = ~0ULL;
    uint64_t before = 0;
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    long pid = raw_clone3(&clone, sizeof clone, begin, &started->launch);
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    if (pid >= 0)
        bind_newborn(pid, &started->launch);
    return pid;
}

PyDoc_STRVAR(start_doc,
"start(operations: list[tuple], context: tuple, cgroup_fd: int, used: object = None) -> tuple[int, object]\n\n"
"A child that carries out the operations in the caller's memory, and executes a program at their end; it is born in the\n"
"cgroup that cgroup_fd stands for, -1 for the caller's: clone3(2), CLONE_VM. Returns its pid, and what must be kept until\n"
"it has begun its program or has ended. Operations: nodectl/kernel/operations.py; context: (descriptor for reports,\n"
"descriptor of the trace, number of the task, what lines of the trace say of it, memory of the progress or None, slot\n"
"there, most groups it will be in).\n"
"`used`: what another start() has returned, whose task has ended: its memory serves this one.\n"
"The caller has one thread. Raises OSError: as fork_into().");

static PyObject *start(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *operations, *context, *kept = Py_None;
    int cgroup;
    if (!PyArg_ParseTuple(args, "O!O!i|O", &PyList_Type, &operations, &PyTuple_Type, &context, &cgroup, &kept))
        return NULL;
    struct started *used = kept == Py_None ? NULL : PyCapsule_GetPointer(kept, NULL);
    if (PyErr_Occurred())
        return NULL;
    struct started *started = read_started(operations, context);
    if (started == NULL)
        return NULL;
    if (!map_room(started, used)) {
        drop_started(started);
        return NULL;
    }
    long pid = spawn(started, cgroup);
    if (pid < 0) {
        drop_started(started);
        errno = (int)-pid;
        return failed("clone3");
    }
    return Py_BuildValue("lN", pid, PyCapsule_New(started, NULL, drop_capsule));
}

PyDoc_STRVAR(perform_doc,
"perform(operations: list[tuple], context: tuple | None) -> bool\n\n"
"The caller carries out the operations itself. With a context, as for start(), a failure is reported and ends the\n"
"process; without, OSError is raised, whose words say all. True where TMPDIR could not be made.");

static PyObject *perform(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *operations, *context;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &operations, &context))
        return NULL;
    bool in_place = context == Py_None;
    const Py_ssize_t zero = 0;
    PyObject *none = in_place ? Py_BuildValue("iilsOnn", -1, -1, 0L, "", Py_None, zero, zero) : NULL;
    if (in_place && none == NULL)
        return NULL;
    struct started *started = read_started(operations, in_place ? none : context);
    Py_XDECREF(none);
    if (started == NULL)
        return NULL;
    if (!allocate_room(started)) {
        drop_started(started);
        return NULL;
    }
    char why[3 * LONGEST_WHAT];
    started->launch.in_place = in_place;
    started->launch.why = why;
    int error = carry_out(&started->launch);
    bool no_tmpdir = started->launch.no_tmpdir;
    drop_started(started);
    if (error == 0)
        return PyBool_FromLong(no_tmpdir);
    PyObject *said = Py_BuildValue("is", error, why);
    if (said != NULL)
        PyErr_SetObject(PyExc_OSError, said);
    Py_XDECREF(said);
    return NULL;
}

PyMethodDef launch_methods[] = {
    {"start", start, METH_VARARGS, start_doc},
    {"perform", perform, METH_VARARGS, perform_doc},
    {NULL, NULL, 0, NULL},
};

bool name_operations(PyObject *module)
{
    static const struct {
        const char *name;
        enum code code;
    } names[] = {
#define NAME(code) {#code, code}
        NAME(OP_BIND), NAME(OP_BOUND_CAPABILITIES), NAME(OP_CLOSE), NAME(OP_CLOSE_OTHERS), NAME(OP_CONFINE),
        NAME(OP_CONTROLLING_TERMINAL), NAME(OP_DEFAULT_SIGNALS), NAME(OP_DIE_WITH), NAME(OP_END_ROW),
        NAME(OP_ENTER_DIRECTORY), NAME(OP_ENVIRONMENT), NAME(OP_EXECUTE), NAME(OP_FAIL), NAME(OP_HARD_LIMIT),
        NAME(OP_INHERIT), NAME(OP_IO_PRIORITY), NAME(OP_JOIN_GROUP), NAME(OP_JOIN_NAMESPACE), NAME(OP_LOCK_FILES),
        NAME(OP_MAKE_TMPDIR), NAME(OP_MEMORY_POLICY), NAME(OP_NEW_SESSION), NAME(OP_NO_ROOT_HERE),
        NAME(OP_OWN_NAMESPACES), NAME(OP_ROW), NAME(OP_SAY), NAME(OP_SOFT_LIMIT), NAME(OP_STREAM),
        NAME(OP_TAKE_STREAMS), NAME(OP_UMASK), NAME(OP_USER), NAME(OP_WAIT),
#undef NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (PyModule_AddIntConstant(module, names[i].name, names[i].code) != 0)
            return false;
    return true;
}
