/* slurm/spank.h: the interface of SPANK plugins. Part of nodectl, MIT licence.
 *
 * Declared from the documented interface: the names, numbers and types that compiled plugins depend on, so that a
 * plugin compiles where no Slurm is installed, and the result runs under nodectl and under Slurm:
 *
 *     cc -shared -fPIC -I"$(nodectl plugins --include)" -o hello.so hello.c
 */
#ifndef SPANK_H
#define SPANK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined __GNUC__
#define SPANK_LIKE_PRINTF __attribute__((format(printf, 1, 2)))
#else
#define SPANK_LIKE_PRINTF
#endif

/* Every hook gets this handle; a plugin hands it back with each call. */
typedef struct spank_handle *spank_t;

/* --- a plugin's name and version ---------------------------------------------------------------- */

#ifdef __cplusplus
#define SPANK_EXPORTED extern "C" const
#else
#define SPANK_EXPORTED const
#endif

/* Once in each plugin, outside of functions: SPANK_PLUGIN(renice, 1) the name without quotes, with or without a ';'. */
#define SPANK_PLUGIN(name, version)                                     \
    SPANK_EXPORTED char plugin_name[] = #name;                          \
    SPANK_EXPORTED char plugin_type[] = "spank";                        \
    SPANK_EXPORTED unsigned int plugin_version = SLURM_VERSION_NUMBER;  \
    SPANK_EXPORTED unsigned int spank_plugin_version = (version);

/* --- hooks: a plugin defines those it needs ----------------------------------------------------- */

typedef int(spank_f)(spank_t sp, int ac, char *argv[]);

extern spank_f slurm_spank_init;
extern spank_f slurm_spank_job_prolog;
extern spank_f slurm_spank_init_post_opt;
extern spank_f slurm_spank_local_user_init;
extern spank_f slurm_spank_user_init;
extern spank_f slurm_spank_task_init_privileged;
extern spank_f slurm_spank_task_init;
extern spank_f slurm_spank_task_post_fork;
extern spank_f slurm_spank_task_exit;
extern spank_f slurm_spank_job_epilog;
extern spank_f slurm_spank_slurmd_exit;
extern spank_f slurm_spank_exit;

/* A plugin may define this variable, and change it while slurm_spank_init runs. It says how to treat a failure of
 * slurm_spank_init: ESPANK_NODE_FAILURE or ESPANK_JOB_FAILURE. */
extern int slurm_spank_init_failure_mode;

/* --- the context of a hook ---------------------------------------------------------------------- */

enum spank_context {
    S_CTX_ERROR,      /* in no hook */
    S_CTX_LOCAL,      /* the command that launches the step */
    S_CTX_REMOTE,     /* the step runner and its tasks */
    S_CTX_ALLOCATOR,  /* a command that asks for an allocation */
    S_CTX_SLURMD,     /* the daemon of the node */
    S_CTX_JOB_SCRIPT  /* the process of job_prolog or job_epilog */
};
typedef enum spank_context spank_context_t;

extern spank_context_t spank_context(void);
extern int spank_remote(spank_t sp);                   /* 1 in S_CTX_REMOTE, 0 elsewhere, -1 for a bad handle */
extern int spank_symbol_supported(const char *symbol); /* 1 for a known hook's name, 0 for another, -1 for NULL */
extern const char *spank_strerror(spank_err_t code);

/* --- facts of job, step and task: spank_get_item(sp, item, the pointers on the right) ---------------- */

enum spank_item {
    S_JOB_UID,                /* uid_t * */
    S_JOB_GID,                /* gid_t * */
    S_JOB_ID,                 /* uint32_t * */
    S_JOB_STEPID,             /* uint32_t * */
    S_JOB_NNODES,             /* uint32_t *: nodes of the step */
    S_JOB_NODEID,             /* uint32_t *: this node's place among them */
    S_JOB_LOCAL_TASK_COUNT,   /* uint32_t *: tasks on this node */
    S_JOB_TOTAL_TASK_COUNT,   /* uint32_t *: tasks of the step */
    S_JOB_NCPUS,              /* uint16_t *: CPUs of the step on this node */
    S_JOB_ARGV,               /* int *, char ***: the program's arguments; not to be changed */
    S_JOB_ENV,                /* char ***: the environment; not to be changed */
    S_TASK_ID,                /* int *: the task's number on this node */
    S_TASK_GLOBAL_ID,         /* uint32_t *: the task's number in the step */
    S_TASK_EXIT_STATUS,       /* int *: as wait(2) tells it */
    S_TASK_PID,               /* pid_t * */
    S_JOB_PID_TO_GLOBAL_ID,   /* pid_t, uint32_t * */
    S_JOB_PID_TO_LOCAL_ID,    /* pid_t, uint32_t * */
    S_JOB_LOCAL_TO_GLOBAL_ID, /* uint32_t, uint32_t * */
    S_JOB_GLOBAL_TO_LOCAL_ID, /* uint32_t, uint32_t * */
    S_JOB_SUPPLEMENTARY_GIDS, /* gid_t **, int * */
    S_SLURM_VERSION,          /* char **, as are the next three */
    S_SLURM_VERSION_MAJOR,
    S_SLURM_VERSION_MINOR,
    S_SLURM_VERSION_MICRO,
    S_STEP_CPUS_PER_TASK,     /* uint32_t * */
    S_JOB_ALLOC_CORES,        /* char **: a list like "0-3,8" */
    S_JOB_ALLOC_MEM,          /* uint64_t *: MiB */
    S_STEP_ALLOC_CORES,       /* char ** */
    S_STEP_ALLOC_MEM,         /* uint64_t *: MiB */
    S_SLURM_RESTART_COUNT,    /* uint32_t * */
    S_JOB_ARRAY_ID,           /* uint32_t * */
    S_JOB_ARRAY_TASK_ID       /* uint32_t * */
};
typedef enum spank_item spank_item_t;

extern spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...);

/* --- the environment of the tasks, and that of the scripts around a job --------------------------------- */

extern spank_err_t spank_getenv(spank_t sp, const char *name, char *buffer, int size);
extern spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite);
extern spank_err_t spank_unsetenv(spank_t sp, const char *name);

extern spank_err_t spank_job_control_getenv(spank_t sp, const char *name, char *buffer, int size);
extern spank_err_t spank_job_control_setenv(spank_t sp, const char *name, const char *value, int overwrite);
extern spank_err_t spank_job_control_unsetenv(spank_t sp, const char *name);

/* Puts words before the arguments of the task that runs this hook. */
extern spank_err_t spank_prepend_task_argv(spank_t sp, int argc, const char *argv[]);

/* --- a plugin's options of the commands ------------------------------------------------------------- */

#define SPANK_OPTION_MAXLEN 75 /* the longest name of an option */

typedef int (*spank_opt_cb_f)(int val, const char *optarg, int remote);

struct spank_option {
    char *name;
    char *arginfo; /* the argument's name in --help */
    char *usage;   /* the option's description in --help */
    int has_arg;   /* 0: no argument, 1: required, 2: optional */
    int val;       /* passed to cb */
    spank_opt_cb_f cb;
};

/* A plugin may have `struct spank_option spank_options[]`, with this as its last element. */
#define SPANK_OPTIONS_TABLE_END { NULL, NULL, NULL, 0, 0, NULL }

extern spank_err_t spank_option_register(spank_t sp, struct spank_option *option);
extern spank_err_t spank_option_getopt(spank_t sp, struct spank_option *option, char **argument);

/* --- messages; formats are those of printf(3), with %m for errno ------------------------------------ */

extern void slurm_error(const char *format, ...) SPANK_LIKE_PRINTF;
extern void slurm_info(const char *format, ...) SPANK_LIKE_PRINTF;
extern void slurm_verbose(const char *format, ...) SPANK_LIKE_PRINTF;
extern void slurm_debug(const char *format, ...) SPANK_LIKE_PRINTF;
extern void slurm_debug2(const char *format, ...) SPANK_LIKE_PRINTF;
extern void slurm_debug3(const char *format, ...) SPANK_LIKE_PRINTF;
extern void slurm_spank_log(const char *format, ...) SPANK_LIKE_PRINTF; /* to the user, whatever the level */

#ifdef __cplusplus
}
#endif

#endif
