/* Makes the call Launch, equal to that of nodectl/client/launch_request.py for the same words in the same process;
 * tests/unit/client/quick/test_request.py compares the two. */
#define _GNU_SOURCE
#include "quick.h"

#include <langinfo.h>
#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { MOST_VARIABLES = 1024 };

static void add_quoted(struct buffer *buffer, const char *text, bool *beyond_ascii)
{
    add_string(buffer, text, strlen(text), beyond_ascii);
}

/* True if Python, too, would decode bytes beyond ASCII as UTF-8 in this locale. */
static bool speaks_utf8(void)
{
    return setlocale(LC_CTYPE, "") != NULL && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* Compares two variables by name: up to the "=", which each of them has. */
static int compare(const void *one, const void *other)
{
    const char *left = *(char *const *)one, *right = *(char *const *)other;
    while (*left == *right && *left != '=')
        left++, right++;
    return (*left == '=' ? 0 : (unsigned char)*left) - (*right == '=' ? 0 : (unsigned char)*right);
}

/* True if each variable has a name, and no name stands twice. */
static bool are_plain(char **variables, size_t count)
{
    if (count > MOST_VARIABLES)
        return false;
    for (size_t index = 0; index < count; index++)
        if (strchr(variables[index], '=') == NULL || variables[index][0] == '=')
            return false;
    char **sorted = malloc((count + 1) * sizeof *sorted);
    if (sorted == NULL)
        return false;
    memcpy(sorted, variables, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    bool plain = true;
    for (size_t index = 1; index < count; index++)
        if (compare(&sorted[index - 1], &sorted[index]) == 0)
            plain = false;
    free(sorted);
    return plain;
}

/* A variable by which a task learns a part of the request. */
struct told {
    const char *name, *value;
};
enum { MOST_TOLD = 3 };

static void add_variable(struct buffer *buffer, const char *name, size_t length, const char *text, bool *beyond_ascii)
{
    add_text(buffer, buffer->data[buffer->size - 1] == '{' ? "" : ",");
    add_string(buffer, name, length, beyond_ascii);
    add_text(buffer, ":");
    add_quoted(buffer, text, beyond_ascii);
}

/* Adds this process's variables in their order. Those of `told` replace variables of the same name, or follow. */
static void add_variables(struct buffer *buffer, struct told told[MOST_TOLD], bool *beyond_ascii)
{
    for (char **variable = environ; *variable != NULL && !buffer->failed; variable++) {
        const char *value = strchr(*variable, '=') + 1;
        size_t length = (size_t)(value - 1 - *variable);
        for (size_t index = 0; index < MOST_TOLD; index++) {
            struct told *one = &told[index];
            if (one->value != NULL && strlen(one->name) == length && memcmp(one->name, *variable, length) == 0) {
                value = one->value;
                one->value = NULL;
            }
        }
        add_variable(buffer, *variable, length, value, beyond_ascii);
    }
    for (size_t index = 0; index < MOST_TOLD && !buffer->failed; index++)
        if (told[index].value != NULL)
            add_variable(buffer, told[index].name, strlen(told[index].name), told[index].value, beyond_ascii);
}

static void add_environment(struct buffer *buffer, const struct wanted *wanted, const char *cwd, bool *beyond_ascii)
{
    size_t count = 0;
    struct utsname system;
    struct buffer cpus = {.limit = SIZE_MAX};
    while (environ[count] != NULL)
        count++;
    add_number(&cpus, wanted->cpus_per_task);
    add(&cpus, "", 1);
    add_text(buffer, ",\"environment\":{");
    if (!are_plain(environ, count) || uname(&system) != 0 || cpus.failed)
        buffer->failed = true;
    if (!buffer->failed) {
        struct told told[MOST_TOLD] = {
            {"SLURM_SUBMIT_DIR", cwd},
            {"SLURM_SUBMIT_HOST", system.nodename},
            {"SLURM_CPUS_PER_TASK", wanted->cpus_per_task ? cpus.data : NULL},
        };
        add_variables(buffer, told, beyond_ascii);
    }
    add_text(buffer, "}");
    free(cpus.data);
}

/* Returns the user's name for the working directory, PWD, if PWD still leads there; else `actual`, also if PWD is
 * another user's, as after su(1). NULL if `actual` is no absolute path: Python then tells the user. */
static const char *named(const char *actual)
{
    const char *name = getenv("PWD");
    struct stat one, other;
    if (actual == NULL || actual[0] != '/')
        return NULL;
    if (name == NULL || name[0] != '/')
        return actual;
    if (stat(name, &one) != 0 || stat(actual, &other) != 0)
        return actual;
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino ? name : actual;
}

/* Adds the soft limits, -1 for none. */
static void add_limits(struct buffer *buffer)
{
    static const struct {
        const char *name;
        int number;
    } limits[] = {
        {"CPU", RLIMIT_CPU}, {"FSIZE", RLIMIT_FSIZE}, {"DATA", RLIMIT_DATA}, {"STACK", RLIMIT_STACK},
        {"CORE", RLIMIT_CORE}, {"RSS", RLIMIT_RSS}, {"NPROC", RLIMIT_NPROC}, {"NOFILE", RLIMIT_NOFILE},
        {"MEMLOCK", RLIMIT_MEMLOCK}, {"AS", RLIMIT_AS},
    };
    add_text(buffer, ",\"rlimits\":{");
    for (size_t index = 0; index < sizeof limits / sizeof *limits; index++) {
        struct rlimit limit;
        if (getrlimit(limits[index].number, &limit) != 0)
            buffer->failed = true;
        add_text(buffer, index ? ",\"" : "\"");
        add_text(buffer, limits[index].name);
        add_text(buffer, "\":");
        add_number(buffer, limit.rlim_cur == RLIM_INFINITY ? -1 : (long long)limit.rlim_cur);
    }
    add_text(buffer, "}");
}

/* True if standard input is /dev/null, null(4). */
static bool reads_nothing(void)
{
    struct stat status;
    return fstat(0, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
}

static void add_figure(struct buffer *buffer, const char *name, long long figure)
{
    if (figure == 0)
        return;
    add_text(buffer, ",\"");
    add_text(buffer, name);
    add_text(buffer, "\":");
    add_number(buffer, figure);
}

static void add_options(struct buffer *buffer, const struct wanted *wanted, bool *beyond_ascii)
{
    mode_t mask = umask(0);
    umask(mask);
    add_text(buffer, ",\"umask\":");
    add_number(buffer, wanted->umask < 0 ? mask : wanted->umask);
    add_text(buffer, ",\"verbose\":0,\"ntasks\":");
    add_number(buffer, wanted->ntasks);
    add_figure(buffer, "cpus_per_task", wanted->cpus_per_task);
    add_figure(buffer, "mem", wanted->mem);
    add_figure(buffer, "mem_per_cpu", wanted->mem_per_cpu);
    if (wanted->name != NULL) {
        add_text(buffer, ",\"name\":");
        add_quoted(buffer, wanted->name, beyond_ascii);
    }
    add_figure(buffer, "jobid", wanted->job);
    if (wanted->job) {
        /* The surrounding step waits for this one, and lends it the CPUs that it holds. */
        const char *sharing = wanted->sharing == NULL && wanted->within_step ? "overlap" : wanted->sharing;
        add_text(buffer, ",\"layout\":{");
        if (sharing != NULL) {
            add_quoted(buffer, sharing, beyond_ascii);
            add_text(buffer, ":\"1\"");
        }
        add_text(buffer, "}");
    }
    if (wanted->of_cluster) {
        add_text(buffer, ",\"layout\":{\"nodes\":\"");
        add_number(buffer, wanted->nodes);
        add_text(buffer, wanted->overcommit ? "\",\"overcommit\":\"1\"}" : "\"}");
    }
    if (wanted->ntasks > 1 && reads_nothing())
        add_text(buffer, ",\"stdin\":\"none\"");
}

bool add_launch(struct buffer *buffer, const struct wanted *wanted)
{
    bool beyond_ascii = false;
    char *actual = getcwd(NULL, 0);
    const char *cwd = named(actual);
    if (cwd != NULL) {
        add_text(buffer, "{\"method\":\"org.nodectl.Launch\",\"parameters\":{\"request\":{\"cwd\":");
        add_quoted(buffer, cwd, &beyond_ascii);
        for (char **word = wanted->argv; *word != NULL; word++) {
            add_text(buffer, word == wanted->argv ? ",\"argv\":[" : ",");
            add_quoted(buffer, *word, &beyond_ascii);
        }
        add_text(buffer, "]");
        add_options(buffer, wanted, &beyond_ascii);
        add_limits(buffer);
        add_environment(buffer, wanted, cwd, &beyond_ascii);
        add(buffer, "}}}", sizeof "}}}"); /* and its NUL */
    }
    bool made = cwd != NULL && !buffer->failed && (!beyond_ascii || speaks_utf8())
        && (wanted->ntasks == 1 || speaks_no_mpi(wanted->argv[0], cwd));
    free(actual);
    return made;
}
