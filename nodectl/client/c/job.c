/* The job in which a command was typed, and other variables that the command obeys, as nodectl/client/srun/variables.py
 * and nodectl/client/surrounding_job.py read them. Python begins if a variable is unknown. */
#define _GNU_SOURCE
#include "quick.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGITS_OF_A_JOB = 9, DIGITS_OF_TASKS = 6 };

/* Prefixes of the variables that stand for options, or describe the place where the command was typed. */
static const char *const particular[] = {"SLURM_", "SRUN_", "SPANK_", "NODECTL_", "_NODECTL_"};
static const char socket_name[] = "NODECTL_SOCKET", usual_socket[] = "/run/nodectl/nodectl.sock";

/* Variables that describe the surrounding job, and ask for nothing. */
static const char *const of_a_job[] = {
    "NODECTL_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_GTIDS", "SLURM_JOBID",
    "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GID", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION", "SLURM_JOB_QOS", "SLURM_JOB_START_TIME", "SLURM_JOB_UID",
    "SLURM_JOB_USER", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_LOCALID", "SLURM_MEM_PER_NODE", "SLURM_NNODES", "SLURM_NODEID",
    "SLURM_NODELIST", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT",
    "SLURM_STEPID", "SLURM_STEP_ID", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_TASKS_PER_NODE", "SLURM_TASK_PID",
    "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURM_UMASK", NULL,
};

static bool is_named(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

static bool is_particular(const char *variable)
{
    for (size_t index = 0; index < sizeof particular / sizeof *particular; index++)
        if (strncmp(variable, particular[index], strlen(particular[index])) == 0)
            return !is_named(variable, socket_name);
    return false;
}

static bool is_among(const char *variable, const char *const *names)
{
    for (; *names != NULL; names++)
        if (is_named(variable, *names))
            return true;
    return false;
}

bool are_known(const char *const *further)
{
    for (char **variable = environ; *variable != NULL; variable++)
        if (is_particular(*variable) && !is_among(*variable, of_a_job) && !is_among(*variable, further))
            return false;
    return true;
}

static bool are_plain(void)
{
    for (char **variable = environ; *variable != NULL; variable++)
        if (is_particular(*variable))
            return false;
    return true;
}

/* Sets the number of tasks if -n does not: as many as the job has. */
static bool read_ntasks(struct wanted *wanted)
{
    const char *text = getenv("SLURM_NTASKS");
    if (text == NULL)
        text = getenv("SLURM_NPROCS");
    if (wanted->ntasks == 0 && text != NULL)
        wanted->ntasks = number_of(text, DIGITS_OF_TASKS);
    else if (wanted->ntasks == 0 && wanted->cpus_per_task == 0)
        wanted->ntasks = 1;
    return wanted->ntasks != 0;
}

bool read_job(struct wanted *wanted)
{
    static const char *const nothing[] = {NULL};
    const char *job = getenv("NODECTL_JOB_ID");
    bool is_others = wanted->nodes || wanted->overcommit || (wanted->sharing != NULL && job == NULL);
    if (is_others || !(job == NULL ? are_plain() : are_known(nothing)))
        return false;
    if (wanted->socket == NULL)
        wanted->socket = usual_socket;
    if (job == NULL) {
        if (wanted->ntasks == 0)
            wanted->ntasks = 1;
        return true;
    }
    const char *other = getenv("SLURM_JOB_ID"), *socket = getenv(socket_name), *step = getenv("SLURM_STEP_ID");
    if (other == NULL || strcmp(job, other) != 0 || socket == NULL || strcmp(socket, wanted->socket) != 0)
        return false;
    /* Special steps of a job, for example its script, have negative numbers. */
    wanted->within_step = step != NULL && (strcmp(step, "0") == 0 || number_of(step, DIGITS_OF_A_JOB));
    if (step != NULL && !wanted->within_step && (step[0] != '-' || !number_of(step + 1, 1)))
        return false;
    return (wanted->job = number_of(job, DIGITS_OF_A_JOB)) != 0 && read_ntasks(wanted);
}
