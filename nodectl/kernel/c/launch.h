/* A launch that a child carries out in its parent's memory: launch.c reads it from Python's values and starts the child,
 * lane.c and lanes.c one child after the other. */
#ifndef NODECTL_LAUNCH_H
#define NODECTL_LAUNCH_H

#include "operation.h"

struct started {
    struct launch launch;
    PyObject *operations, *context; /* kept, because the launch points into them */
    struct operation *list;
    char *mapped, *allocated; /* the room's memory: in the mapping of the stack, or allocated alone */
    size_t mapped_size;
};

HIDDEN void drop_started(struct started *started);

/* Reads everything but the room. NULL and an exception for values that are no launch. */
HIDDEN struct started *read_started(PyObject *operations, PyObject *context);

/* Each returns false for a value that is none, with an exception, or for want of memory, without one. */
HIDDEN bool read_operation(struct operation *operation, PyObject *tuple);
HIDDEN bool read_words(struct launch *launch, const struct operation *operation);

/* Gives the child a stack and a room between guard pages: those of `used`, if their size is the same, or new ones.
 * Returns false with an exception. */
HIDDEN bool map_room(struct started *started, struct started *used);

/* Starts the child in the cgroup of this descriptor, -1 for the caller's. Returns its pid, or -errno. */
HIDDEN long spawn(struct started *started, int cgroup);

/* A slot of a bulk step: lane.c. */
struct lane {
    struct started *started;
    char **variables; /* those of every command */
    size_t variable_count;
    PyObject *command; /* the operations of the last command, because the launch points into them */
    int parent, cgroup, events; /* -1 for none: where commands have a cgroup each, the command's own or the slot's, its events */
    char name[32]; /* of a command's own cgroup */
    pid_t pid; /* while run_lanes() runs: the command in this lane, 0 for none */
};

/* Starts a command, whose operations a list has, where the last one has ended. Returns its pid, or -errno. */
HIDDEN long lane_begin(struct lane *lane, PyObject *command);

/* Learns from the cgroup of a command that was collected. Returns false where Python has to look: `is_plain` was false,
 * something is left in the cgroup, or the kernel refused or killed something in it. `peak`: bytes, -1 where unknown. */
HIDDEN bool lane_leave(struct lane *lane, bool is_plain, long long *peak);

/* Reads a small file of the kernel's, "" where there is none. */
HIDDEN void read_small(int directory, const char *name, char *text, size_t size);

#endif
