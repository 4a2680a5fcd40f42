/* The operations of a task between its birth and its program, as data: launch.c reads them from Python, operation.c
 * carries them out. */
#ifndef NODECTL_OPERATION_H
#define NODECTL_OPERATION_H

#include "kernel.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* nodectl/kernel/operations.py has a function that makes each operation, and explains its `a`, `b` and `data`. */
enum code {
    OP_BIND,
    OP_BOUND_CAPABILITIES,
    OP_CLOSE,
    OP_CLOSE_OTHERS,
    OP_CONFINE,
    OP_CONTROLLING_TERMINAL,
    OP_DEFAULT_SIGNALS,
    OP_DIE_WITH,
    OP_END_ROW,
    OP_ENTER_DIRECTORY,
    OP_ENVIRONMENT,
    OP_EXECUTE,
    OP_FAIL,
    OP_HARD_LIMIT,
    OP_INHERIT,
    OP_IO_PRIORITY,
    OP_JOIN_GROUP,
    OP_JOIN_NAMESPACE,
    OP_LOCK_FILES,
    OP_MAKE_TMPDIR,
    OP_MEMORY_POLICY,
    OP_NEW_SESSION,
    OP_NO_ROOT_HERE,
    OP_OWN_NAMESPACES,
    OP_ROW,
    OP_SAY,
    OP_SOFT_LIMIT,
    OP_STREAM,
    OP_TAKE_STREAMS,
    OP_UMASK,
    OP_USER,
    OP_WAIT,
    OPERATIONS,
};

struct operation {
    long a, b;
    const char *data;   /* a NUL follows */
    size_t size;
    const char *what;   /* a failure's message before and after the reason: two strings, escaped for JSON */
    enum code code;
};

enum { OF_SCRIPT = 16 }; /* in `a` of OP_STREAM */
enum { STREAMS = 3, LONGEST_WHAT = 1500, PID_ROOM = 40 };
enum { MOST_MASK = 1024 }; /* bytes: 8192 CPUs, the most that a kernel can have */

struct launch {
    const struct operation *operations;
    size_t count;
    /* Descriptors for reports and trace lines; -1 for none. */
    int report, trace;
    long task;
    const char *facts; /* the members about the task in each line of the trace */
    unsigned char *progress; /* two bytes: the row, and the place of its plugin; NULL for none */
    uint32_t *takers; /* how many processes have yet to take copies of the client's streams; NULL for none */
    /* Space in which lines are put together. The launch writes only to it and to the members below. */
    char *room;
    size_t room_size;
    long pid;
    const struct operation *row; /* the row of the trace that has begun */
    long long started;
    int taken[STREAMS];
    char **argv, **environment;
    char **task_pid, **tmpdir; /* these variables' places in the environment, NULL if missing */
    char pid_variable[PID_ROOM];
    bool no_tmpdir;
    bool shared;   /* the process shares its memory with the step runner */
    bool in_place; /* the caller lives on, so a failure is returned to it */
    char *why;     /* the reason of that failure */
};

/* Carries out all operations in order. A failure ends the process or, with `in_place`, is returned as an errno. */
HIDDEN int carry_out(struct launch *launch);

/* operation_report.c */
static inline const char *behind(const char *text)
{
    return text + strlen(text) + 1;
}
HIDDEN const char *words(long error);
HIDDEN const char *reason(const struct operation *operation, long error);
HIDDEN void tell(const struct launch *launch, const char *key, const char *const parts[]);
HIDDEN void say(const struct launch *launch, const struct operation *operation, long error);
HIDDEN void write_row(const struct launch *launch, const struct operation *row, long rc, const char *const note[]);

/* operation_bind.c */
HIDDEN long bind_cpus(struct launch *launch, const struct operation *operation, bool *differs, char *list);
HIDDEN long set_policy(const struct operation *operation, bool *differs);
HIDDEN long limit(const struct operation *operation, bool soft_only);

/* operation_confine.c */
HIDDEN long become_user(const struct launch *launch, const struct operation *operation, const char **left);
HIDDEN long bound_capabilities_to(uint64_t kept);
HIDDEN long confine_to(const char *program, size_t size);
HIDDEN long lock_files(const struct operation *operation);
HIDDEN bool is_root(int directory, const char *path);

/* operation_open.c */
HIDDEN long open_path(const char *path, uint64_t flags, uint64_t mode, bool named);
HIDDEN long connect_stream(struct launch *launch, const struct operation *operation);
HIDDEN long take_streams(struct launch *launch, const struct operation *operation);
HIDDEN long make_directory(char *room, const char *path);

#endif
