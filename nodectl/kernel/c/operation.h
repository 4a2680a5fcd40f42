/* What a task does between its birth and its program, as data: launch.c reads it from Python, operation.c does it. */
#ifndef NODECTL_OPERATION_H
#define NODECTL_OPERATION_H

#include "kernel.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Meanings of `a`, `b` and `data` are in nodectl/kernel/operations.py, where each has a function that makes it. */
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
    const char *what;   /* what is told of a failure, before and behind its reason: two strings; parts of JSON */
    enum code code;
};

enum { OF_SCRIPT = 16 }; /* in `a` of OP_STREAM */
enum { STREAMS = 3, LONGEST_WHAT = 1500, PID_ROOM = 40 };
enum { MOST_MASK = 1024 }; /* bytes: 8192 CPUs, the most that a kernel can have */

struct launch {
    const struct operation *operations;
    size_t count;
    /* Where it reports; -1 and NULL for nowhere. */
    int report, trace;
    long task;
    const char *facts; /* of the task, in lines of the trace */
    unsigned char *progress; /* two bytes: the row, and the place of its plugin */
    uint32_t *takers; /* who has yet to take copies of the client's streams */
    /* For lines; nothing else is written to but what follows. */
    char *room;
    size_t room_size;
    long pid;
    const struct operation *row; /* that has begun */
    long long started;
    int taken[STREAMS];
    char **argv, **environment;
    char **task_pid, **tmpdir; /* where these variables are in the environment, NULL for nowhere */
    char pid_variable[PID_ROOM];
    bool no_tmpdir;
    bool shared;   /* its memory is another process's */
    bool in_place; /* a failure is returned, because the caller lives on */
    char *why;     /* of that failure */
};

/* All of it, in order. 0, or the errno of what failed, which ended the process unless it is done in place. */
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
