/* The last program of a task in a step with --preload: it hands the task over to the step's warm interpreter.
 *
 *   hand_over task SOCKET VERDICT TOKEN HOW WORD...      executed by a task in the place of its program WORD...
 *   hand_over warm WARM SOCKET WORDS MODULES [WORD...]   executes the warm interpreter, WARM, for tasks like WORD...
 *
 * A task whose program is Python sends what it is to the warm interpreter (nodectl/launch/task/warm.py), over SOCKET: a
 * memory file with the texts below, and its descriptors. Then it waits for the step runner's verdict. "g": a child of the
 * warm interpreter is the task now, and this process ends. Otherwise, or where the program is none, it executes the
 * program as always.
 *
 * Runs as the step's user. It holds nothing that its user may not have, but its descriptors are not for the program: they
 * are closed by the exec.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONGEST_PATH = 4096, LONGEST_LINE = 256, MOST_CPUS = 1 << 16, LIMITS = 16, DESCRIPTORS = 6, SIGNALS = 64 };
enum { NO_PROGRAM = 127 };
static const char USUAL_PATH[] = "/usr/bin:/bin";

extern char **environ;

/* A Python program: the interpreter's path, and its words, of which the first is the interpreter. */
struct python {
    char interpreter[LONGEST_PATH];
    char script[LONGEST_PATH];
    char argument[LONGEST_LINE]; /* of a script's first line */
    const char *words[3]; /* before the rest of the command's words */
    int count;
    char **rest;
    bool is_wrapped; /* a script is called like an interpreter, which it chooses itself: one of pyenv's */
};

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* python, python3, python3.11 */
static bool is_called_python(const char *path)
{
    const char *name = name_of(path);
    return strncmp(name, "python", 6) == 0 && name[6 + strspn(name + 6, "0123456789.")] == '\0';
}

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Finds a program as execvp(3) does. */
static bool find(const char *name, char found[LONGEST_PATH])
{
    if (strchr(name, '/') != NULL)
        return snprintf(found, LONGEST_PATH, "%s", name) < LONGEST_PATH && is_program(found);
    const char *path = getenv("PATH");
    for (const char *at = path == NULL ? USUAL_PATH : path;; at++) {
        int length = (int)strcspn(at, ":");
        int size = snprintf(found, LONGEST_PATH, "%.*s/%s", length ? length : 1, length ? at : ".", name);
        if (size < LONGEST_PATH && is_program(found))
            return true;
        at += length;
        if (*at == '\0')
            return false;
    }
}

/* Reads the first line of a program behind "#!", and returns its length; -1 for any other program. */
static int first_line(const char *path, char line[LONGEST_LINE])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t size = fd < 0 ? -1 : read(fd, line, LONGEST_LINE - 1);
    if (fd >= 0)
        close(fd);
    if (size < 2 || line[0] != '#' || line[1] != '!')
        return -1;
    line[size] = '\0';
    char *end = strchr(line, '\n');
    if (end == NULL)
        return -1;
    *end = '\0';
    return (int)(end - line);
}

/* An interpreter, and no script that is called like one: a wrapper chooses another one. */
static bool is_interpreter(const char *path)
{
    char line[LONGEST_LINE];
    return is_called_python(path) && first_line(path, line) < 0;
}

/* Reads which interpreter executes these words; false where they are no Python program. */
static bool read_python(char **words, struct python *python)
{
    char line[LONGEST_LINE], found[LONGEST_PATH];
    if (words[0] == NULL || !find(words[0], found))
        return false;
    python->rest = words + 1;
    python->count = 0;
    python->is_wrapped = is_called_python(found) && !is_interpreter(found);
    if (is_interpreter(found)) {
        memcpy(python->interpreter, found, sizeof found);
        python->words[python->count++] = words[0];
        return true;
    }
    if (python->is_wrapped || first_line(found, line) < 0)
        return false;
    char *interpreter = line + 2 + strspn(line + 2, " \t");
    char *argument = interpreter + strcspn(interpreter, " \t");
    if (*argument != '\0')
        *argument++ = '\0';
    argument += strspn(argument, " \t");
    for (size_t end = strlen(argument); end > 0 && strchr(" \t\r", argument[end - 1]) != NULL; end--)
        argument[end - 1] = '\0';
    if (strcmp(name_of(interpreter), "env") == 0) {
        if (strpbrk(argument, " \t=-/") != NULL || !is_called_python(argument) || !find(argument, python->interpreter))
            return false;
        strcpy(python->argument, argument); /* env's: the name by which it executes Python */
        python->words[python->count++] = python->argument;
    } else if (!find(interpreter, python->interpreter)) {
        return false;
    }
    if (!is_interpreter(python->interpreter)) {
        python->is_wrapped = is_called_python(python->interpreter);
        return false;
    }
    memcpy(python->script, found, sizeof found);
    if (python->count == 0) {
        python->words[python->count++] = python->interpreter;
        if (*argument != '\0') {
            strcpy(python->argument, argument);
            python->words[python->count++] = python->argument;
        }
    }
    python->words[python->count++] = python->script;
    return true;
}

/* What tells an interpreter from others: its directory, where a pyvenv.cfg may lie, and its file. */
static void write_identity(FILE *out, const char *path)
{
    char directory[LONGEST_PATH];
    struct stat file = {0}, around = {0};
    strcpy(directory, path);
    char *slash = strrchr(directory, '/');
    if (slash != NULL)
        slash[slash == directory] = '\0';
    if (stat(slash == NULL ? "." : directory, &around) != 0 || stat(path, &file) != 0)
        memset(&file, 0, sizeof file);
    fprintf(out, "%ju %ju %ju %ju%c", (uintmax_t)around.st_dev, (uintmax_t)around.st_ino, (uintmax_t)file.st_dev,
            (uintmax_t)file.st_ino, 0);
}

static void write_mask(FILE *out, const sigset_t *set)
{
    for (int number = 1; number <= SIGNALS; number++)
        if (sigismember(set, number) == 1)
            fprintf(out, "%d ", number);
    fputc('\0', out);
}

static void write_signals(FILE *out)
{
    sigset_t blocked, ignored;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    sigemptyset(&ignored);
    for (int number = 1; number <= SIGNALS; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(&ignored, number);
    }
    write_mask(out, &blocked);
    write_mask(out, &ignored);
}

static void write_cpus(FILE *out)
{
    static unsigned char mask[MOST_CPUS / 8];
    long size = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    for (long at = 0; at < 8 * size; at++)
        if (mask[at / 8] & 1 << at % 8)
            fprintf(out, "%ld ", at);
    fputc('\0', out);
}

static void write_limits(FILE *out)
{
    for (int resource = 0; resource < LIMITS; resource++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)resource, &limit) == 0)
            fprintf(out, "%d %jd %jd ", resource, limit.rlim_cur == RLIM_INFINITY ? -1 : (intmax_t)limit.rlim_cur,
                    limit.rlim_max == RLIM_INFINITY ? -1 : (intmax_t)limit.rlim_max);
    }
    fputc('\0', out);
}

static void write_words(FILE *out, const struct python *python)
{
    int count = python->count;
    for (char **word = python->rest; *word != NULL; word++)
        count++;
    fprintf(out, "%d%c", count, 0);
    for (int i = 0; i < python->count; i++)
        fprintf(out, "%s%c", python->words[i], 0);
    for (char **word = python->rest; *word != NULL; word++)
        fprintf(out, "%s%c", *word, 0);
    for (char **variable = environ; *variable != NULL; variable++)
        fprintf(out, "%s%c", *variable, 0);
}

/* Everything about this task as texts in a memory file: warm.py reads them. */
static int described(const struct python *python, const char *how)
{
    int fd = (int)syscall(SYS_memfd_create, "task", MFD_CLOEXEC);
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
    if (out == NULL)
        return -1;
    mode_t mask = umask(0);
    umask(mask);
    write_identity(out, python->interpreter);
    fprintf(out, "%d%c%d%c%s%c%d%c%d%c", (int)getpid(), 0, (int)getpgrp(), 0, how, 0, (int)mask, 0,
            getpriority(PRIO_PROCESS, 0), 0);
    write_signals(out);
    write_cpus(out);
    write_limits(out);
    write_words(out, python);
    return fclose(out) == 0 ? fd : -1;
}

static bool send_with(int to, const char *text, const int *fds, int count, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
    } control = {0};
    struct iovec data = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(to, &message, flags | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

/* Returns true when another process is the task. */
static bool is_handed_over(const struct python *python, int to, int verdict, const char *token, const char *how)
{
    char text[LONGEST_LINE], word = 0;
    int directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), about = described(python, how);
    const int fds[DESCRIPTORS] = {about, verdict, directory, 0, 1, 2};
    snprintf(text, sizeof text, "take %s", token);
    if (directory < 0 || about < 0 || !send_with(to, text, fds, DESCRIPTORS, 0)) {
        snprintf(text, sizeof text, "note %s sent", token);
        send_with(to, text, NULL, 0, MSG_DONTWAIT);
        return false;
    }
    ssize_t size;
    do
        size = read(verdict, &word, 1);
    while (size < 0 && errno == EINTR);
    return size == 1 && word == 'g';
}

/* Executes the program as a task without --preload does: found in PATH, at last in the working directory. */
static int execute(char **words)
{
    const char *path = getenv("PATH");
    char found[LONGEST_PATH];
    int error = ENOENT;
    if (strchr(words[0], '/') != NULL) {
        execve(words[0], words, environ);
        error = errno;
    } else {
        for (const char *at = path == NULL ? USUAL_PATH : path;; at++) {
            int length = (int)strcspn(at, ":");
            if (snprintf(found, sizeof found, "%.*s/%s", length ? length : 1, length ? at : ".", words[0]) < LONGEST_PATH) {
                execve(found, words, environ);
                if (errno != ENOENT && errno != ENOTDIR)
                    error = errno;
            }
            at += length;
            if (*at == '\0')
                break;
        }
        if (error == ENOENT && snprintf(found, sizeof found, "./%s", words[0]) < LONGEST_PATH)
            execve(found, words, environ);
    }
    dprintf(2, "nodectl: error: execute '%s': %s\n", words[0], strerror(error));
    return error;
}

static int be_task(char **words, int to, int verdict, const char *token, const char *how)
{
    struct python python = {.is_wrapped = false};
    char text[LONGEST_LINE];
    fcntl(to, F_SETFD, FD_CLOEXEC);
    fcntl(verdict, F_SETFD, FD_CLOEXEC);
    if (read_python(words, &python)) {
        if (is_handed_over(&python, to, verdict, token, how))
            return 0;
    } else {
        snprintf(text, sizeof text, "note %s %s", token, python.is_wrapped ? "wrapper" : "program");
        send_with(to, text, NULL, 0, MSG_DONTWAIT);
    }
    return execute(words);
}

static int be_warm(char *warm, char *to, char *said, char *modules, char **words)
{
    struct python python = {.is_wrapped = false};
    if (!read_python(words, &python) && !find("python3", python.interpreter)) {
        dprintf(atoi(said), "failed there is no python3 in PATH\n");
        return NO_PROGRAM;
    }
    char *const argv[] = {python.interpreter, warm, to, said, modules, NULL};
    execve(python.interpreter, argv, environ);
    dprintf(atoi(said), "failed execute %s: %s\n", python.interpreter, strerror(errno));
    return NO_PROGRAM;
}

int main(int argc, char **argv)
{
    if (argc > 6 && strcmp(argv[1], "task") == 0)
        return be_task(argv + 6, atoi(argv[2]), atoi(argv[3]), argv[4], argv[5]);
    if (argc > 5 && strcmp(argv[1], "warm") == 0)
        return be_warm(argv[2], argv[3], argv[4], argv[5], argv + 6);
    fputs("hand_over: nodectl executes it in a step with --preload\n", stderr);
    return NO_PROGRAM;
}
