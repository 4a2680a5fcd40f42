/* A lane: the launch of any command in a slot of a bulk step, and the cgroup of its commands.
 *
 * A command has only the operations in which it differs from another one: its streams, variables and words, and its
 * program. Its cgroup is the slot's, which serves one command after the other, or one of its own, where something is
 * counted in it.
 *
 * Owned here: a lane's launch and descriptors, until the lane's object is dropped.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void drop_lane(struct lane *lane)
{
    if (lane->started != NULL)
        drop_started(lane->started);
    Py_XDECREF(lane->command);
    free(lane->variables);
    const int fds[] = {lane->parent, lane->cgroup, lane->events};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            shut(fds[i]);
    free(lane);
}

static void drop_capsule(PyObject *capsule)
{
    drop_lane(PyCapsule_GetPointer(capsule, NULL));
}

static bool keep_variables(struct lane *lane)
{
    char **given = lane->started->launch.environment;
    while (given[lane->variable_count] != NULL)
        lane->variable_count++;
    size_t size = (lane->variable_count + 1) * sizeof *given;
    if ((lane->variables = malloc(size)) == NULL)
        return false;
    memcpy(lane->variables, given, size);
    return true;
}

/* Takes a descriptor of its own for the slot's cgroup or, with a name, for the cgroup in which each command's is made. */
static bool open_cgroup(struct lane *lane, int cgroup, const char *name)
{
    if (cgroup < 0)
        return true;
    int copy = fcntl(cgroup, F_DUPFD_CLOEXEC, STREAMS);
    if (name[0] != '\0') {
        lane->parent = copy;
        strcpy(lane->name, name);
        return copy >= 0;
    }
    lane->cgroup = copy;
    return copy >= 0 && (lane->events = openat(copy, "cgroup.events", O_RDONLY | O_CLOEXEC)) >= 0;
}

PyDoc_STRVAR(lane_doc,
"lane(operations: list[tuple], context: tuple, cgroup_fd: int, name: str) -> object\n\n"
"A lane for run_lanes(): operations and context as for start(), of any command that runs there, with variables, words, three\n"
"streams and a program at their end. All commands are born in this cgroup, -1 for the caller's; with a name each has a\n"
"cgroup of this name below it. Raises OSError.");

static PyObject *make_lane(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *operations, *context;
    int cgroup;
    const char *name;
    if (!PyArg_ParseTuple(args, "O!O!is", &PyList_Type, &operations, &PyTuple_Type, &context, &cgroup, &name))
        return NULL;
    struct lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return PyErr_NoMemory();
    lane->parent = lane->cgroup = lane->events = -1;
    lane->started = read_started(operations, context);
    if (lane->started == NULL || !map_room(lane->started, NULL))
        goto broken;
    const struct launch *launch = &lane->started->launch;
    if (launch->argv == NULL || launch->environment == NULL || launch->progress == NULL || strlen(name) >= sizeof lane->name) {
        PyErr_SetString(PyExc_ValueError, "no launch of a command");
        goto broken;
    }
    if (!keep_variables(lane)) {
        PyErr_NoMemory();
        goto broken;
    }
    if (!open_cgroup(lane, cgroup, name)) {
        failed("open a cgroup");
        goto broken;
    }
    PyObject *capsule = PyCapsule_New(lane, NULL, drop_capsule);
    if (capsule != NULL)
        return capsule;
broken:
    drop_lane(lane);
    return NULL;
}

/* The lane's own operation that one of a command replaces; NULL for none. */
static struct operation *replaced(const struct lane *lane, const struct operation *operation)
{
    struct started *started = lane->started;
    for (size_t i = 0; i < started->launch.count; i++) {
        struct operation *own = &started->list[i];
        if (own->code != operation->code)
            continue;
        if (own->code == OP_EXECUTE || (own->code == OP_STREAM && (own->a & STREAMS) == (operation->a & STREAMS)))
            return own;
    }
    return NULL;
}

/* Returns false for operations that make no command. */
static bool take_command(struct lane *lane, PyObject *command)
{
    struct launch *launch = &lane->started->launch;
    PyObject *before = lane->command;
    lane->command = Py_NewRef(command);
    Py_XDECREF(before);
    memcpy(launch->environment, lane->variables, (lane->variable_count + 1) * sizeof *lane->variables);
    launch->argv[0] = NULL;
    launch->row = NULL;
    launch->no_tmpdir = false;
    for (int i = 0; i < STREAMS; i++)
        launch->taken[i] = -1;
    launch->progress[0] = launch->progress[1] = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(command); i++) {
        struct operation operation, *own;
        if (!read_operation(&operation, PyList_GetItem(command, i)))
            return false;
        if (operation.code == OP_ENVIRONMENT) {
            if (!read_words(launch, &operation))
                return false;
        } else if ((own = replaced(lane, &operation)) == NULL) {
            return false;
        } else {
            *own = operation;
        }
    }
    return launch->argv[0] != NULL;
}

long lane_begin(struct lane *lane, PyObject *command)
{
    if (!take_command(lane, command)) {
        PyErr_Clear();
        return -EINVAL;
    }
    if (lane->parent >= 0) {
        if (lane->cgroup >= 0)
            close(lane->cgroup); /* of a command that did not start, or that Python has collected */
        lane->cgroup = -1;
        if (mkdirat(lane->parent, lane->name, 0755) != 0 && errno != EEXIST)
            return -errno;
        lane->cgroup = openat(lane->parent, lane->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (lane->cgroup < 0)
            return -errno;
    }
    long pid = spawn(lane->started, lane->cgroup);
    if (pid > 0)
        lane->pid = (pid_t)pid;
    return pid;
}

void read_small(int directory, const char *name, char *text, size_t size)
{
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[length < 0 ? 0 : length] = '\0';
}

/* True where the file counts something of this name. */
static bool counts(const struct lane *lane, const char *file, const char *name)
{
    char text[512];
    read_small(lane->cgroup, file, text, sizeof text);
    const char *found = strstr(text, name);
    return found != NULL && found[strlen(name)] != '0';
}

/* Ends the cgroup of a command. Returns false where it stays, because there is more to learn of it. */
static bool leave_own_cgroup(struct lane *lane, long long *peak)
{
    char text[64];
    if (lane->cgroup < 0 || counts(lane, "memory.events", "oom_kill ") || counts(lane, "pids.events", "max "))
        return false;
    read_small(lane->cgroup, "memory.peak", text, sizeof text);
    *peak = text[0] == '\0' ? -1 : atoll(text);
    return unlinkat(lane->parent, lane->name, AT_REMOVEDIR) == 0;
}

bool lane_leave(struct lane *lane, bool is_plain, long long *peak)
{
    char text[128];
    *peak = -1;
    if (lane->parent >= 0) {
        is_plain = is_plain && leave_own_cgroup(lane, peak);
        if (lane->cgroup >= 0)
            close(lane->cgroup);
        lane->cgroup = -1;
        return is_plain;
    }
    if (lane->events < 0)
        return is_plain;
    ssize_t size = pread(lane->events, text, sizeof text - 1, 0);
    text[size < 0 ? 0 : size] = '\0';
    return is_plain && strstr(text, "populated 0") != NULL;
}

PyMethodDef lane_methods[] = {
    {"lane", make_lane, METH_VARARGS, lane_doc},
    {NULL, NULL, 0, NULL},
};
