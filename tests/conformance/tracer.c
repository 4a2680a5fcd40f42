/* A SPANK plugin that writes down every hook: tracer.py says what, and what its arguments order. This is the same in C.
 *
 * Compile: cc -shared -fPIC -DNAME='"trace"' tracer.c; -DTABLE for one whose options begin with a table.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <slurm/spank.h>

/* SPANK_PLUGIN takes a word; the name comes from outside. */
const char plugin_name[] = NAME;
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUMBER;
const unsigned int spank_plugin_version = 1;

#define FAR 99999
#define MOST 65536

static const char *const contexts[] = { "ERROR", "LOCAL", "REMOTE", "ALLOCATOR", "SLURMD", "JOB_SCRIPT" };

static int known_ac;
static char **known_av;

/* --- records -------------------------------------------------------------------------------------- */

struct text {
    char data[MOST];
    size_t length;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    text->length += (size_t)vsnprintf(text->data + text->length, MOST - text->length, format, list);
    va_end(list);
}

static void add_string(struct text *text, const char *string)
{
    if (string == NULL) {
        add(text, "null");
        return;
    }
    add(text, "\"");
    for (const char *c = string; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            add(text, "\\%c", *c);
        else if ((unsigned char)*c < ' ')
            add(text, "\\u%04x", *c);
        else
            add(text, "%c", *c);
    }
    add(text, "\"");
}

static void end_list(struct text *text, char end)
{
    if (text->data[text->length - 1] == ',')
        text->length--;
    add(text, "%c,", end);
}

static const char *argument(int ac, char **av, const char *word)
{
    size_t length = strlen(word);
    for (int i = 0; i < ac; i++)
        if (strncmp(av[i], word, length) == 0 && av[i][length] == '=')
            return av[i] + length + 1;
    return NULL;
}

static void write_record(struct text *text, int ac, char **av)
{
    const char *path = argument(ac, av, "out");
    int fd = path == NULL ? -1 : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    end_list(text, '}');
    text->data[text->length - 1] = '\n';
    if (fd < 0 || write(fd, text->data, text->length) != (ssize_t)text->length)
        slurm_error("trace: cannot write to %s: %m", path);
    close(fd);
}

static void add_who(struct text *text)
{
    uid_t ruid, euid, suid;
    gid_t rgid, egid, sgid;
    getresuid(&ruid, &euid, &suid);
    getresgid(&rgid, &egid, &sgid);
    add(text, "\"plugin\":\"%s\",\"ctx\":\"%s\",\"uids\":[%d,%d],", plugin_name, contexts[spank_context()], (int)ruid,
        (int)euid);
    add(text, "\"gids\":[%d,%d],\"pid\":%d,", (int)rgid, (int)egid, (int)getpid());
}

/* --- what arguments order ------------------------------------------------------------------------- */

/* The number that `word`=[hook:]number[:context] orders, in *value; without a number 0. */
static int ordered(int ac, char **av, const char *word, const char *hook, int *value)
{
    size_t length = strlen(word);
    for (int i = 0; i < ac; i++) {
        char copy[256], *rest = copy, *part;
        int here = 1, number = 0;
        if (strncmp(av[i], word, length) != 0 || av[i][length] != '=')
            continue;
        snprintf(copy, sizeof(copy), "%s", av[i] + length + 1);
        if (hook != NULL && strcmp(strsep(&rest, ":"), hook) != 0)
            continue;
        while ((part = strsep(&rest, ":")) != NULL) {
            if (isalpha((unsigned char)part[0]))
                here = strcasecmp(part, contexts[spank_context()]) == 0;
            else
                number = atoi(part);
        }
        if (here) {
            *value = number;
            return 1;
        }
    }
    return 0;
}

/* --- calls ---------------------------------------------------------------------------------------- */

static void add_answer(struct text *text, const char *name, spank_err_t rc)
{
    add(text, "\"%s\":{\"rc\":%d,\"str\":", name, (int)rc);
    add_string(text, spank_strerror(rc));
    add(text, ",");
}

static void try_number(struct text *text, spank_t sp, const char *name, spank_item_t item, int size)
{
    union {
        uint64_t wide;
        uint32_t number;
        int32_t signed_number;
        uint16_t narrow;
    } value;
    spank_err_t rc;
    memset(&value, 0xa5, sizeof(value));
    rc = spank_get_item(sp, item, &value);
    add(text, "\"%s\":{\"rc\":%d,", name, (int)rc);
    if (rc == ESPANK_SUCCESS) {
        if (size == 8)
            add(text, "\"val\":%llu,", (unsigned long long)value.wide);
        else if (size == 4)
            add(text, "\"val\":%u,", value.number);
        else if (size == -4)
            add(text, "\"val\":%d,", value.signed_number);
        else
            add(text, "\"val\":%u,", value.narrow);
    }
    end_list(text, '}');
}

static void try_string(struct text *text, spank_t sp, const char *name, spank_item_t item)
{
    char *value = NULL;
    spank_err_t rc = spank_get_item(sp, item, &value);
    add(text, "\"%s\":{\"rc\":%d,", name, (int)rc);
    if (rc == ESPANK_SUCCESS) {
        add(text, "\"val\":");
        add_string(text, value);
    }
    end_list(text, '}');
}

static void try_pid(struct text *text, spank_t sp, const char *name, spank_item_t item)
{
    pid_t pid = 1;
    uint32_t id = 7, one = 7;
    spank_err_t rc;
    if (spank_get_item(sp, S_TASK_PID, &pid) != ESPANK_SUCCESS)
        pid = 1;
    rc = spank_get_item(sp, item, pid, &id);
    add(text, "\"%s\":{\"rc\":%d,", name, (int)rc);
    if (rc == ESPANK_SUCCESS) {
        rc = spank_get_item(sp, item, (pid_t)1, &one);
        add(text, "\"val\":{\"arg_pid\":%d,\"val\":%u,\"pid1_rc\":%d,\"pid1_val\":%u}", (int)pid, id, (int)rc, one);
    }
    end_list(text, '}');
}

static void try_id(struct text *text, spank_t sp, const char *name, spank_item_t item)
{
    uint32_t id = 7, far = 7;
    spank_err_t rc = spank_get_item(sp, item, (uint32_t)0, &id);
    add(text, "\"%s\":{\"rc\":%d,", name, (int)rc);
    if (rc == ESPANK_SUCCESS) {
        rc = spank_get_item(sp, item, (uint32_t)FAR, &far);
        add(text, "\"val\":{\"arg0\":%u,\"arg99999_rc\":%d,\"arg99999_val\":%u}", id, (int)rc, far);
    }
    end_list(text, '}');
}

static void try_argv(struct text *text, spank_t sp)
{
    int argc = 0;
    char **argv = NULL;
    spank_err_t rc = spank_get_item(sp, S_JOB_ARGV, &argc, &argv);
    add(text, "\"S_JOB_ARGV\":{\"rc\":%d,", (int)rc);
    if (rc == ESPANK_SUCCESS) {
        add(text, "\"val\":{\"argc\":%d,\"argv\":[", argc);
        for (int i = 0; i < argc; i++) {
            add_string(text, argv[i]);
            add(text, ",");
        }
        end_list(text, ']');
        add(text, "\"null_terminated\":%s},", argv[argc] == NULL ? "true" : "false");
    }
    end_list(text, '}');
}

static void try_groups(struct text *text, spank_t sp)
{
    gid_t *gids = NULL;
    int count = 0;
    spank_err_t rc = spank_get_item(sp, S_JOB_SUPPLEMENTARY_GIDS, &gids, &count);
    add(text, "\"S_JOB_SUPPLEMENTARY_GIDS\":{\"rc\":%d,", (int)rc);
    if (rc == ESPANK_SUCCESS) {
        add(text, "\"val\":[");
        for (int i = 0; i < count; i++)
            add(text, "%d,", (int)gids[i]);
        end_list(text, ']');
    }
    end_list(text, '}');
}

static void try_rc(struct text *text, const char *name, spank_err_t rc)
{
    add(text, "\"%s\":{\"rc\":%d},", name, (int)rc);
}

static void try_items(struct text *text, spank_t sp)
{
    uid_t uid;
    char **env = NULL;
    add(text, "\"items\":{");
#define NUMBER(item, size) try_number(text, sp, #item, item, size)
#define STRING(item) try_string(text, sp, #item, item)
    NUMBER(S_JOB_UID, 4);
    NUMBER(S_JOB_GID, 4);
    NUMBER(S_JOB_ID, 4);
    NUMBER(S_JOB_STEPID, 4);
    NUMBER(S_JOB_NNODES, 4);
    NUMBER(S_JOB_NODEID, 4);
    NUMBER(S_JOB_LOCAL_TASK_COUNT, 4);
    NUMBER(S_JOB_TOTAL_TASK_COUNT, 4);
    NUMBER(S_JOB_NCPUS, 2);
    try_argv(text, sp);
    try_rc(text, "S_JOB_ENV", spank_get_item(sp, S_JOB_ENV, &env));
    NUMBER(S_TASK_ID, -4);
    NUMBER(S_TASK_GLOBAL_ID, 4);
    NUMBER(S_TASK_EXIT_STATUS, -4);
    NUMBER(S_TASK_PID, -4);
    try_pid(text, sp, "S_JOB_PID_TO_GLOBAL_ID", S_JOB_PID_TO_GLOBAL_ID);
    try_pid(text, sp, "S_JOB_PID_TO_LOCAL_ID", S_JOB_PID_TO_LOCAL_ID);
    try_id(text, sp, "S_JOB_LOCAL_TO_GLOBAL_ID", S_JOB_LOCAL_TO_GLOBAL_ID);
    try_id(text, sp, "S_JOB_GLOBAL_TO_LOCAL_ID", S_JOB_GLOBAL_TO_LOCAL_ID);
    try_groups(text, sp);
    STRING(S_SLURM_VERSION);
    STRING(S_SLURM_VERSION_MAJOR);
    STRING(S_SLURM_VERSION_MINOR);
    STRING(S_SLURM_VERSION_MICRO);
    NUMBER(S_STEP_CPUS_PER_TASK, 4);
    STRING(S_JOB_ALLOC_CORES);
    NUMBER(S_JOB_ALLOC_MEM, 8);
    STRING(S_STEP_ALLOC_CORES);
    NUMBER(S_STEP_ALLOC_MEM, 8);
    NUMBER(S_SLURM_RESTART_COUNT, 4);
    NUMBER(S_JOB_ARRAY_ID, 4);
    NUMBER(S_JOB_ARRAY_TASK_ID, 4);
    try_rc(text, "item_999", spank_get_item(sp, (spank_item_t)999, &uid));
    try_rc(text, "null_handle", spank_get_item(NULL, S_JOB_UID, &uid));
    end_list(text, '}');
}

typedef spank_err_t (*getter)(spank_t sp, const char *name, char *buffer, int size);

static void try_get(struct text *text, spank_t sp, getter get, const char *name, const char *variable, int size)
{
    static char buffer[8192];
    spank_err_t rc;
    buffer[0] = '\0';
    rc = get(sp, variable, buffer, size == 0 || size < -1 ? (int)sizeof(buffer) : size);
    add_answer(text, name, rc);
    if (rc == ESPANK_SUCCESS) {
        add(text, "\"val\":");
        add_string(text, buffer);
    } else if (size > 1) {
        add(text, "\"buf\":");
        add_string(text, buffer);
    }
    end_list(text, '}');
}

static void try_plain(struct text *text, const char *name, spank_err_t rc)
{
    add_answer(text, name, rc);
    end_list(text, '}');
}

static void try_environment(struct text *text, spank_t sp, const char *hook)
{
    char set[64], unset[64], buffer[8];
    snprintf(set, sizeof(set), "TRACE_SET_%s", hook);
    snprintf(unset, sizeof(unset), "TRACE_UNSET_%s", hook);
    spank_unsetenv(sp, set); /* the same hook for another task has set it */
    add(text, "\"env\":{");
    try_get(text, sp, spank_getenv, "getenv_PATH", "PATH", 0);
    try_get(text, sp, spank_getenv, "getenv_missing", "TRACE_NO_SUCH", 0);
    try_get(text, sp, spank_getenv, "getenv_len3", "PATH", 3);
    try_plain(text, "getenv_len0", spank_getenv(sp, "PATH", buffer, 0));
    try_plain(text, "getenv_len-1", spank_getenv(sp, "PATH", buffer, -1));
    try_plain(text, "setenv_new", spank_setenv(sp, set, "first", 0));
    try_plain(text, "setenv_exists_ow0", spank_setenv(sp, set, "second", 0));
    try_plain(text, "setenv_exists_ow1", spank_setenv(sp, set, "third", 1));
    try_get(text, sp, spank_getenv, "getenv_back", set, 0);
    try_plain(text, "setenv_null_val", spank_setenv(sp, set, NULL, 1));
    try_plain(text, "setenv_null_var", spank_setenv(sp, NULL, "x", 1));
    try_plain(text, "unsetenv", spank_unsetenv(sp, unset));
    try_plain(text, "unsetenv_missing", spank_unsetenv(sp, "TRACE_NO_SUCH"));
    try_plain(text, "unsetenv_null", spank_unsetenv(sp, NULL));
    try_plain(text, "getenv_null_handle", spank_getenv(NULL, "PATH", buffer, sizeof(buffer)));
    end_list(text, '}');
}

static void try_job_control(struct text *text, spank_t sp, const char *hook)
{
    char set[64], gone[64];
    snprintf(set, sizeof(set), "TRACE_JC_%s", hook);
    snprintf(gone, sizeof(gone), "TRACE_JCDEL_%s", hook);
    add(text, "\"job_control\":{");
    try_plain(text, "setenv", spank_job_control_setenv(sp, set, "one", 1));
    try_plain(text, "setenv_exists_ow0", spank_job_control_setenv(sp, set, "two", 0));
    try_get(text, sp, spank_job_control_getenv, "getenv", set, 0);
    try_get(text, sp, spank_job_control_getenv, "getenv_missing", "TRACE_NO_SUCH", 0);
    try_get(text, sp, spank_job_control_getenv, "getenv_len2", set, 2);
    try_plain(text, "setenv_null", spank_job_control_setenv(sp, NULL, NULL, 1));
    try_plain(text, "setenv_del", spank_job_control_setenv(sp, gone, "x", 1));
    try_plain(text, "unsetenv", spank_job_control_unsetenv(sp, gone));
    try_plain(text, "unsetenv_missing", spank_job_control_unsetenv(sp, "TRACE_NO_SUCH"));
    end_list(text, '}');
}

static void try_process(struct text *text)
{
    uid_t uid[3];
    gid_t gid[3], groups[64];
    char cwd[4096];
    int count = getgroups(64, groups);
    mode_t mask = umask(0);

    umask(mask);
    getresuid(&uid[0], &uid[1], &uid[2]);
    getresgid(&gid[0], &gid[1], &gid[2]);
    add(text, "\"process\":{\"uids\":{\"val\":[%d,%d,%d]},", (int)uid[0], (int)uid[1], (int)uid[2]);
    add(text, "\"gids\":{\"val\":[%d,%d,%d]},", (int)gid[0], (int)gid[1], (int)gid[2]);
    add(text, "\"groups\":{\"val\":[");
    for (int i = 0; i < count; i++)
        add(text, "%d,", (int)groups[i]);
    end_list(text, ']');
    end_list(text, '}');
    add(text, "\"umask\":{\"val\":%d},\"nice\":{\"val\":%d},\"cwd\":{\"val\":", (int)mask, nice(0));
    add_string(text, getcwd(cwd, sizeof(cwd)));
    add(text, "}},");
}

/* --- options -------------------------------------------------------------------------------------- */

static int option_cb(int val, const char *optarg, int remote)
{
    static struct text text;
    int rc = 0;
    (void)val;
    text.length = 0;
    ordered(known_ac, known_av, "optret", NULL, &rc);
    add(&text, "{\"hook\":\"option_cb\",\"remote\":%d,\"ret\":%d,", remote, rc);
    add_who(&text);
    add(&text, "\"optarg\":");
    add_string(&text, optarg);
    add(&text, ",");
    write_record(&text, known_ac, known_av);
    return rc;
}

static struct spank_option registered[] = {
    { NAME "-opt", "ARG", "trace: option with required argument", 1, 1, option_cb },
    { NAME "-flag", NULL, "trace: option without argument", 0, 0, option_cb },
    { NAME "-maybe", "[ARG]", "trace: option with optional argument", 2, 2, option_cb },
};
static struct spank_option unknown = { "never-registered", NULL, "unknown", 1, 0, NULL };

#ifdef TABLE
struct spank_option spank_options[] = {
    { NAME "-tab", "ARG", "trace: option with required argument", 1, 1, option_cb },
    SPANK_OPTIONS_TABLE_END,
};
#endif

static void try_getopt(struct text *text, spank_t sp, const char *name, struct spank_option *option)
{
    char *value = NULL;
    spank_err_t rc = spank_option_getopt(sp, option, &value);
    add(text, "\"%s\":{\"rc\":%d,\"arg\":", name, (int)rc);
    add_string(text, value);
    end_list(text, '}');
}

static void try_options(struct text *text, spank_t sp)
{
    char *value = NULL;
    add(text, "\"getopt\":{");
    try_getopt(text, sp, "opt", &registered[0]);
    try_getopt(text, sp, "flag", &registered[1]);
    try_getopt(text, sp, "maybe", &registered[2]);
    try_getopt(text, sp, "unregistered", &unknown);
    try_rc(text, "needs_arg_null_argp", spank_option_getopt(sp, &registered[0], NULL));
    try_rc(text, "null_opt", spank_option_getopt(sp, NULL, &value));
    end_list(text, '}');
}

/* --- hooks ---------------------------------------------------------------------------------------- */

static void speak(const char *hook)
{
    slurm_error("say %s error", hook);
    slurm_info("say %s info", hook);
    slurm_verbose("say %s verbose", hook);
    slurm_debug("say %s debug", hook);
    slurm_debug2("say %s debug2", hook);
    slurm_debug3("say %s debug3", hook);
    slurm_spank_log("say %s spank_log", hook);
    dprintf(1, "say %s stdout\n", hook);
    dprintf(2, "say %s stderr\n", hook);
}

static int is_ours(const char *word)
{
    return strncmp(word, "out=", 4) == 0 || strncmp(word, "calls=", 6) == 0;
}

static void add_arguments(struct text *text, int ac, char **av)
{
    int count = ac;
    add(text, "\"args\":[");
    for (int i = 0; i < ac; i++) {
        if (is_ours(av[i])) {
            count--;
            continue;
        }
        add_string(text, av[i]);
        add(text, ",");
    }
    end_list(text, ']');
    add(text, "\"ac\":%d,", count);
}

static int call(spank_t sp, int ac, char **av, const char *hook)
{
    static struct text text;
    int rc = 0, value = 0, number;
    uint32_t step;

    known_ac = ac;
    known_av = av;
    text.length = 0;
    if (strcmp(hook, "init") == 0)
        for (size_t i = 0; i < sizeof(registered) / sizeof(registered[0]); i++)
            if (spank_option_register(sp, &registered[i]) != ESPANK_SUCCESS)
                slurm_error("trace: %s cannot be registered", registered[i].name);
    ordered(ac, av, "fail", hook, &rc);
    add(&text, "{\"hook\":\"%s\",\"ret\":%d,\"remote\":%d,", hook, rc, spank_remote(sp));
    add_who(&text);
    add_arguments(&text, ac, av);
    if (spank_context() == S_CTX_REMOTE) {
        if (spank_get_item(sp, S_JOB_STEPID, &step) == ESPANK_SUCCESS)
            add(&text, "\"step\":%u,", step);
        if (spank_get_item(sp, S_TASK_ID, &number) == ESPANK_SUCCESS)
            add(&text, "\"task\":%d,", number);
        if (spank_get_item(sp, S_TASK_EXIT_STATUS, &number) == ESPANK_SUCCESS)
            add(&text, "\"status\":%d,", number);
    }
    if (argument(ac, av, "calls") != NULL) {
        try_items(&text, sp);
        try_environment(&text, sp, hook);
        try_options(&text, sp);
        try_job_control(&text, sp, hook);
        try_process(&text);
    }
    write_record(&text, ac, av);
    if (argument(ac, av, "say") != NULL)
        speak(hook);
    if (ordered(ac, av, "sleep", hook, &value))
        usleep((useconds_t)value * 1000);
    if (ordered(ac, av, "exit", hook, &value))
        exit(value);
    if (ordered(ac, av, "segv", hook, &value))
        raise(SIGSEGV);
    return rc;
}

#define HOOK(name)                                                      \
    int slurm_spank_##name(spank_t sp, int ac, char **av)               \
    {                                                                   \
        return call(sp, ac, av, #name);                                 \
    }

HOOK(init)
HOOK(slurmd_init)
HOOK(job_prolog)
HOOK(init_post_opt)
HOOK(local_user_init)
HOOK(user_init)
HOOK(task_init_privileged)
HOOK(task_init)
HOOK(task_post_fork)
HOOK(task_exit)
HOOK(job_epilog)
HOOK(slurmd_exit)
HOOK(exit)
