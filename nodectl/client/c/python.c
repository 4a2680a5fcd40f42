/* The other way, for every command that is not plain: executes `nodectl-python`, installed beside this program. */
#define _GNU_SOURCE
#include "quick.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_HANDED_OVER = 2 << 20, FEW = 16 };

static const char variable[] = "_NODECTL_LAUNCHED";
static const char command[] = "/nodectl-python", interpreter[] = "/python3";
static const char waits[] = "-Xnodectl-interrupt-waits"; /* tells nodectl/cli/main.py to unblock SIGINT */

/* Returns the directory of this program as the kernel knows it, because the caller chooses PATH and argv[0]. NULL if
 * it is unknown. */
static char *own_directory(void)
{
    char *path = malloc(PATH_MAX + 1);
    ssize_t size = path == NULL ? -1 : readlink("/proc/self/exe", path, PATH_MAX);
    if (size < 0) {
        free(path);
        const char *executed = (const char *)getauxval(AT_EXECFN);
        path = executed == NULL ? NULL : realpath(executed, NULL);
        if (path == NULL)
            return NULL;
    } else {
        path[size] = '\0';
    }
    char *slash = strrchr(path, '/');
    if (slash == NULL) {
        free(path);
        return NULL;
    }
    *slash = '\0';
    return path;
}

static char *joined(const char *directory, const char *name)
{
    char *path;
    return asprintf(&path, "%s%s", directory, name) < 0 ? NULL : path;
}

/* Executes the command with the interpreter beside this program, as in a virtual environment, or else with that of the
 * command's first line. `held`: blocked signals. Only an interpreter that gets the flag `waits` unblocks them. */
static void execute(char **words, char **variables, const sigset_t *held)
{
    size_t count = 0;
    while (words[count] != NULL)
        count++;
    char *directory = own_directory();
    char *script = directory == NULL ? NULL : joined(directory, command);
    char *python = directory == NULL ? NULL : joined(directory, interpreter);
    char **argv = malloc((count + 5) * sizeof *argv);
    if (script == NULL || python == NULL || argv == NULL) {
        fprintf(stderr, "nodectl: error: find %s beside this program: %s\n", command + 1, strerror(errno));
        return;
    }
    char flags[] = "-IS"; /* as in the command's first line */
    char **own = held == NULL ? argv + 1 : argv;
    argv[1] = (char *)waits;
    own[0] = python;
    own[held == NULL ? 1 : 2] = flags;
    argv[3] = script;
    memcpy(argv + 4, words, (count + 1) * sizeof *argv);
    if (access(python, X_OK) == 0)
        execve(python, own, variables);
    if (held != NULL)
        sigprocmask(SIG_UNBLOCK, held, NULL);
    execve(script, argv + 3, variables);
    fprintf(stderr, "nodectl: error: execute %s: %s\n", script, strerror(errno));
}

/* Blocks SIGINT first: until Python has reached the command, its own handler would answer a Ctrl-C with a traceback. */
void start_python(char **words)
{
    struct sigaction action;
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    bool held = sigaction(SIGINT, NULL, &action) == 0 && action.sa_handler != SIG_IGN
        && sigprocmask(SIG_BLOCK, &interrupt, &before) == 0 && !sigismember(&before, SIGINT);
    execute(words, environ, held ? &interrupt : NULL);
}

bool prepare(struct launch *launch)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < MOST_HANDED_OVER)
        return false;
    launch->fd = memfd_create("nodectl", MFD_CLOEXEC);
    /* There must also be descriptors left for the pipes that come with the reply, and for Python. */
    return launch->fd >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > (rlim_t)launch->fd + FEW;
}

/* Writes "2 SOCKET EVENTS COMMANDS BLOCKED,BLOCKED CAME,CAME HELLO REPLY EVENTS\n" and the bytes whose numbers are the
 * last three. Takes each signal that has come, so that another one of its kind can wait while Python starts. */
static void tell(struct launch *launch, struct buffer *text)
{
    const struct wire *wire = &launch->wire;
    const struct buffer *parts[] = {&launch->hello, &wire->in, &launch->events};
    const int fds[] = {wire->sock, wire->came[0], wire->came[1]};
    add_text(text, "2");
    for (size_t index = 0; index < 3; index++) {
        add_text(text, " ");
        add_number(text, fds[index]);
    }
    add_text(text, " 0");
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&wire->blocked, number) == 1) {
            add_text(text, ",");
            add_number(text, number);
        }
    add_text(text, " 0");
    for (int number; (number = next_signal(wire)) != 0;) {
        add_text(text, ",");
        add_number(text, number);
        launch->took_signals = true;
    }
    for (size_t index = 0; index < 3; index++) {
        add_text(text, " ");
        add_number(text, (long long)parts[index]->size);
    }
    add_text(text, "\n");
    for (size_t index = 0; index < 3; index++)
        add(text, parts[index]->data, parts[index]->size);
}

void hand_over(struct launch *launch, char **words)
{
    struct buffer text = {.limit = MOST_HANDED_OVER};
    size_t count = 0;
    tell(launch, &text);
    while (environ[count] != NULL)
        count++;
    char **variables = malloc((count + 2) * sizeof *variables);
    char *place = NULL;
    const int kept[] = {launch->fd, launch->wire.sock, launch->wire.came[0], launch->wire.came[1]};
    if (!text.failed && variables != NULL && asprintf(&place, "%s=%d", variable, launch->fd) >= 0
        && pwrite(launch->fd, text.data, text.size, 0) == (ssize_t)text.size) {
        for (size_t index = 0; index < sizeof kept / sizeof *kept; index++)
            if (kept[index] >= 0)
                fcntl(kept[index], F_SETFD, 0);
        memcpy(variables, environ, count * sizeof *variables);
        variables[count] = place;
        variables[count + 1] = NULL;
        execute(words, variables, NULL);
    } else {
        fprintf(stderr, "nodectl: error: hand the step over: %s\n", strerror(errno));
    }
}
