/* Carries out a task's operations between its birth and its program, one after the other.
 *
 * The caller may share its memory with the step runner (launch.c). So this code calls only the kernel and writes only
 * to the launch: no errno, no lock, no allocation.
 *
 * Owned here: nothing. The exec closes the descriptors that operations open.
 */
#define _GNU_SOURCE
#include "operation.h"

#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Exit statuses as a shell has them. A script without its streams ends as if by signal 53, as in Slurm. */
enum { SIGNALLED = 128, NO_STREAM = SIGNALLED + 53 };

enum { PROCESS = 1 }; /* IOPRIO_WHO_PROCESS of ioprio_set(2), which libc does not have */

static void begin_row(struct launch *launch, const struct operation *row)
{
    launch->row = row;
    if (launch->progress != NULL) {
        launch->progress[1] = (unsigned char)row->b;
        launch->progress[0] = (unsigned char)row->a;
    }
    launch->started = monotonic();
}

/* Writes the reason of a failure to the trace, if its row is a plugin's, and to the step runner; ends the process.
 * If `in_place`, leaves the reason in `why` and returns an errno. */
static int fail(struct launch *launch, const struct operation *operation, long error, const char *why, long status)
{
    const struct operation *row = launch->row;
    const char *before = operation->what, *suffix = behind(operation->what);
    const char *of_row = row == NULL ? "" : row->what;
    if (launch->in_place) {
        stpcpy(stpcpy(stpcpy(launch->why, before), why), suffix);
        return error == 0 ? EPERM : (int)error;
    }
    const char *const note[] = {before, why, suffix, NULL};
    if (of_row[0] != '\0')
        write_row(launch, row, -1, note);
    const char *const parts[] = {of_row, before, why, suffix, NULL};
    tell(launch, "failed", parts);
    if (status > SIGNALLED)
        raw(SYS_kill, launch->pid, status - SIGNALLED);
    raw(SYS_exit_group, status);
    __builtin_unreachable();
}

/* Closes all descriptors above 2 but those listed. Returns an errno. */
static long close_others(const struct operation *operation)
{
    const int *keep = (const int *)(const void *)operation->data;
    unsigned low = STREAMS;
    for (size_t i = 0; i < operation->size / sizeof *keep; i++) {
        if (keep[i] < (int)low)
            continue;
        long error = keep[i] > (int)low ? -raw(SYS_close_range, low, keep[i] - 1, 0) : 0;
        if (error)
            return error;
        low = (unsigned)keep[i] + 1;
    }
    long error = -raw(SYS_close_range, low, ~0U, 0);
    return error ? error : -raw(SYS_close_range, STREAMS, ~0U, CLOSE_RANGE_CLOEXEC);
}

static void default_signals(const struct operation *operation)
{
    /* The kernel's sigaction: handler, flags, restorer, mask, in the machine's order. All are 0, as SIG_DFL is. */
    const uint64_t as_by_default[8] = {0}, none = 0;
    for (size_t i = 0; i < operation->size; i++)
        raw(SYS_rt_sigaction, operation->data[i], as_by_default, NULL, sizeof none);
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
}

/* Tries one path after the other. Returns the most telling errno, and in `script` a file without its interpreter. */
static long execute(const struct launch *launch, const struct operation *operation, const char **script)
{
    bool one_path = operation->a;
    long best = ENOENT;
    for (const char *path = operation->data; path < operation->data + operation->size; path = behind(path)) {
        long error = -raw(SYS_execve, path, launch->argv, launch->environment);
        bool missing = error == ENOENT || error == ENOTDIR;
        if (error == ENOENT && raw(SYS_faccessat, AT_FDCWD, path, F_OK) == 0) {
            *script = path;
            return error;
        }
        if (missing && one_path)
            return error;
        if (error == EACCES)
            best = error; /* a later directory may have the program */
        else if (!missing)
            return error;
    }
    return best;
}

/* Whether the first line of a script ends as in a file of DOS. The kernel looks for an interpreter of that name. */
static bool ends_like_dos(const char *script)
{
    char head[256]; /* BINPRM_BUF_SIZE: what the kernel reads */
    long fd = raw(SYS_openat, AT_FDCWD, script, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    if (fd < 0)
        return false;
    long size = raw(SYS_read, fd, head, sizeof head);
    raw(SYS_close, fd);
    const char *end = size > 0 ? memchr(head, '\n', (size_t)size) : NULL;
    return end != NULL && end > head && end[-1] == '\r';
}

static const char *why_not(const struct launch *launch, const struct operation *operation, long error,
                           const char *script)
{
    struct stat status;
    const char *path = launch->argv[0];
    if (script != NULL)
        return ends_like_dos(script) ? ": its first line ends with a carriage return (DOS); convert it with dos2unix"
                                     : ": its interpreter is missing";
    if (error == EACCES && raw(SYS_newfstatat, AT_FDCWD, path, &status, 0) == 0 && S_ISDIR(status.st_mode))
        return ": it is a directory";
    if (error == EACCES)
        return ": it is not executable, or a directory of its path is closed";
    if (error == ENOENT && !operation->a)
        return strchr(path, ' ') ? ": in no directory of PATH; sh -c runs a line of shell" : ": in no directory of PATH";
    if (error == ENOEXEC)
        return ": a script begins with #! and its interpreter";
    return "";
}

static int become_program(struct launch *launch, const struct operation *operation)
{
    if (launch->task_pid != NULL) {
        *put_number(stpcpy(launch->pid_variable, "SLURM_TASK_PID="), (unsigned long long)launch->pid) = '\0';
        *launch->task_pid = launch->pid_variable;
    }
    if (launch->no_tmpdir && launch->tmpdir != NULL)
        *launch->tmpdir = (char *)(uintptr_t)"TMPDIR=/tmp";
    const struct operation *row = launch->row; /* NULL for a process that enters a job */
    if (row != NULL)
        write_row(launch, row, 0, NULL);
    if (launch->progress != NULL)
        launch->progress[0] = 255; /* tracing/progress.py: DONE */
    const char *script = NULL;
    long error = execute(launch, operation, &script);
    if (row != NULL) {
        const char *const note[] = {words(error), NULL};
        begin_row(launch, row);
        write_row(launch, row, error, note);
    }
    char why[256];
    stpcpy(stpcpy(why, words(error)), why_not(launch, operation, error, script));
    return fail(launch, operation, error, why, error);
}

static int carry_out_one(struct launch *launch, const struct operation *operation)
{
    long error = 0;
    bool differs = false;
    const char *left = NULL;
    char byte, list[LONGEST_WHAT];
    switch (operation->code) {
    case OP_BIND:
        error = bind_cpus(launch, operation, &differs, list);
        if (!error && differs) { /* "bind to CPUs 0-3: " -> "bound to CPUs 1 instead of 0-3" */
            char why[2 * LONGEST_WHAT];
            const size_t head = sizeof "bind to CPUs " - 1, wanted = strlen(operation->what + head) - 2;
            char *out = stpcpy(stpcpy(stpcpy(why, "bound to CPUs "), list), " instead of ");
            *(char *)mempcpy(out, operation->what + head, wanted) = '\0';
            const struct operation plain = {.what = "\0"};
            return fail(launch, &plain, EINVAL, why, 1);
        }
        break;
    case OP_BOUND_CAPABILITIES:
        error = bound_capabilities_to((uint64_t)operation->a);
        break;
    case OP_CLOSE:
        for (size_t i = 0; i < operation->size / sizeof(int); i++)
            raw(SYS_close, ((const int *)(const void *)operation->data)[i]);
        break;
    case OP_CLOSE_OTHERS:
        error = close_others(operation);
        break;
    case OP_CONFINE:
        error = confine_to(operation->data, operation->size);
        break;
    case OP_CONTROLLING_TERMINAL:
        error = -raw(SYS_ioctl, operation->a, TIOCSCTTY, 0);
        break;
    case OP_DEFAULT_SIGNALS:
        default_signals(operation);
        break;
    case OP_DIE_WITH: {
        raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
        long parent = raw(SYS_getppid);
        if (parent != operation->a && parent != 0) /* 0: the parent is outside this process's pid namespace */
            raw(SYS_exit_group, 1);
        break;
    }
    case OP_END_ROW:
        if (launch->row != NULL)
            write_row(launch, launch->row, 0, NULL);
        launch->row = NULL;
        break;
    case OP_ENTER_DIRECTORY:
        error = open_path(operation->data, O_PATH | O_DIRECTORY, 0, true);
        if (error >= 0) {
            long fd = error;
            error = -raw(SYS_fchdir, fd);
            raw(SYS_close, fd);
        } else {
            error = -error;
        }
        if (error) {
            say(launch, operation, error);
            error = -raw(SYS_chdir, "/tmp"); /* as with Slurm */
        }
        break;
    case OP_FAIL:
        return fail(launch, operation, 0, "", operation->a);
    case OP_HARD_LIMIT:
        if ((error = limit(operation, false)) != 0)
            say(launch, operation, error);
        error = 0;
        break;
    case OP_INHERIT:
        error = -raw(SYS_fcntl, operation->a, F_SETFD, 0);
        break;
    case OP_IO_PRIORITY:
        error = -raw(SYS_ioprio_set, PROCESS, 0, operation->a);
        break;
    case OP_JOIN_GROUP:
        if (operation->a == 0 || raw(SYS_setpgid, 0, operation->a) != 0)
            raw(SYS_setpgid, 0, 0); /* the first task has ended, and its process group with it */
        break;
    case OP_JOIN_NAMESPACE:
        error = -raw(SYS_setns, operation->a, 0);
        break;
    case OP_LOCK_FILES:
        error = lock_files(operation);
        break;
    case OP_MAKE_TMPDIR:
        error = make_directory(launch->room, operation->data);
        if (error) {
            launch->no_tmpdir = true;
            say(launch, operation, error);
            error = 0;
        }
        break;
    case OP_MEMORY_POLICY:
        error = set_policy(operation, &differs);
        if (!error && differs)
            return fail(launch, operation, EINVAL, "the kernel made something else of it", 1);
        break;
    case OP_NEW_SESSION:
        error = raw(SYS_setsid);
        error = error < 0 ? -error : 0;
        break;
    case OP_NO_ROOT_HERE:
        if (is_root(AT_FDCWD, "."))
            return fail(launch, operation, EPERM, "", 1);
        break;
    case OP_OWN_NAMESPACES:
        error = -raw(SYS_unshare, operation->a);
        break;
    case OP_ROW:
        begin_row(launch, operation);
        break;
    case OP_SAY: {
        char *out = put_number(stpcpy(launch->room, operation->data), (unsigned long long)launch->pid);
        out = stpcpy(out, behind(operation->data));
        raw(SYS_write, 2, launch->room, out - launch->room);
        break;
    }
    case OP_SOFT_LIMIT:
        if ((error = limit(operation, true)) != 0)
            say(launch, operation, error);
        error = 0;
        break;
    case OP_STREAM:
        error = connect_stream(launch, operation);
        if (error)
            return fail(launch, operation, error, reason(operation, error), operation->a & OF_SCRIPT ? NO_STREAM : 1);
        break;
    case OP_TAKE_STREAMS:
        error = take_streams(launch, operation);
        break;
    case OP_UMASK:
        raw(SYS_umask, operation->a);
        break;
    case OP_USER:
        error = become_user(launch, operation, &left);
        if (left != NULL)
            return fail(launch, operation, EPERM, left, 1);
        break;
    case OP_WAIT:
        while ((error = raw(SYS_read, operation->a, &byte, 1)) == -EINTR)
            ;
        if (error <= 0)
            raw(SYS_exit_group, 1); /* the launch was given up */
        error = 0;
        break;
    case OP_EXECUTE:
        return become_program(launch, operation);
    case OP_ENVIRONMENT: /* launch.c has read the words */
    case OPERATIONS:
        break;
    }
    return error ? fail(launch, operation, error, reason(operation, error), 1) : 0;
}

int carry_out(struct launch *launch)
{
    launch->pid = raw(SYS_getpid);
    for (size_t i = 0; i < launch->count; i++) {
        int error = carry_out_one(launch, &launch->operations[i]);
        if (error)
            return error;
    }
    return 0;
}
