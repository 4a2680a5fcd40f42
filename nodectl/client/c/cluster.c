/* The cluster of the allocation in which a command was typed: finds its gateway, and reads the allocation's variables, as
 * nodectl/client/cluster_gateway.py and nodectl/client/srun/variables.py do. Python begins if a variable is unknown. */
#define _GNU_SOURCE
#include "quick.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS_OF_A_JOB = 9, DIGITS_OF_A_COUNT = 6, DIGITS_OF_MIB = 9, LONGEST_NAME = 40, LARGEST_UMASK = 0777 };

/* Further variables of Slurm that, in an allocation, ask for nothing; those of every job are in job.c. */
static const char *const of_an_allocation[] = {
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP", "SLURM_CONF", "SLURM_GET_USER_ENV", "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_ACCOUNT", "SLURM_JOB_END_TIME", "SLURM_JOB_GPUS", "SLURM_JOB_RESERVATION", "SLURM_MEM_PER_CPU",
    "SLURM_NODE_ALIASES", "SLURM_NTASKS_PER_NODE", "SLURM_PRIO_PROCESS", "SLURM_SCRIPT_CONTEXT",
    "SLURM_STEP_LAUNCHER_PORT", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE", "SLURM_WORKING_CLUSTER", "SRUN_DEBUG",
    NULL,
};

/* True if this user owns the directory, and no other user can write into it. */
static bool is_ours(const struct stat *status)
{
    return S_ISDIR(status->st_mode) && status->st_uid == geteuid() && !(status->st_mode & (S_IWGRP | S_IWOTH));
}

static char *gateway_below(const char *base, const char *name)
{
    struct stat status;
    char *path;
    if (asprintf(&path, "%s/cluster/%s/nodectl.sock", base, name) < 0)
        return NULL;
    if (stat(path, &status) == 0 && lstat(base, &status) == 0 && is_ours(&status))
        return path;
    free(path);
    return NULL;
}

/* Finds the cluster's gateway in the runtime directory of this login, or else in the directory that jobs without a login
 * use. NULL if there is none, or a directory is not this user's. */
static char *find_gateway(const char *name)
{
    const char *given = getenv("XDG_RUNTIME_DIR");
    char *own = NULL, *temporary, *found = NULL;
    struct stat status;
    if (asprintf(&temporary, "/tmp/nodectl-%u", (unsigned)geteuid()) < 0)
        return NULL;
    if (given != NULL && given[0] == '/' && asprintf(&own, "%s/nodectl", given) < 0)
        own = NULL;
    const char *first = own != NULL ? own : temporary;
    bool is_there = lstat(first, &status) == 0;
    if (is_there ? is_ours(&status) : errno == ENOENT) {
        found = gateway_below(first, name);
        if (found == NULL && own != NULL)
            found = gateway_below(temporary, name);
    }
    free(own);
    free(temporary);
    return found;
}

static bool read_gateway(struct wanted *wanted)
{
    const char *job = getenv("SLURM_JOB_ID"), *node = getenv("SLURMD_NODENAME");
    char name[LONGEST_NAME + 1];
    if (node == NULL || node[0] == '\0')
        node = "-";
    int size = snprintf(name, sizeof name, "%s.%s", job, node);
    if (!number_of(job, DIGITS_OF_A_JOB) || size > LONGEST_NAME || strchr(name, '/') || name[size - 1] == '.')
        return false;
    return (wanted->socket = find_gateway(name)) != NULL;
}

/* Returns the first of two variables that is set; 0 if its value is no count. */
static long long count_of(const char *name, const char *other)
{
    const char *text = getenv(name);
    if (text == NULL)
        text = getenv(other);
    return text == NULL ? 0 : number_of(text, DIGITS_OF_A_COUNT);
}

static bool read_umask(struct wanted *wanted)
{
    const char *text = getenv("SLURM_UMASK");
    char *end;
    if (text == NULL)
        return true;
    if (text[0] == '\0' || strspn(text, "01234567") != strlen(text))
        return false;
    wanted->umask = strtol(text, &end, 8);
    return wanted->umask <= LARGEST_UMASK;
}

static bool read_memory(const char *name, long long *mib)
{
    const char *text = getenv(name);
    return text == NULL || (*mib = number_of(text, DIGITS_OF_MIB)) != 0;
}

bool is_in_allocation(const struct wanted *wanted)
{
    return wanted->socket == NULL && getenv("SLURM_JOB_ID") != NULL && getenv("NODECTL_JOB_ID") == NULL;
}

bool read_allocation(struct wanted *wanted)
{
    if (wanted->sharing != NULL || !are_known(of_an_allocation) || !read_umask(wanted) || !read_memory("SLURM_MEM_PER_NODE", &wanted->mem)
        || !read_memory("SLURM_MEM_PER_CPU", &wanted->mem_per_cpu))
        return false;
    if (wanted->ntasks == 0)
        wanted->ntasks = count_of("SLURM_NTASKS", "SLURM_NPROCS");
    if (wanted->nodes == 0) {
        wanted->nodes = count_of("SLURM_NNODES", "SLURM_JOB_NUM_NODES");
        if (wanted->nodes > wanted->ntasks)
            wanted->nodes = wanted->ntasks;
    }
    wanted->of_cluster = true;
    return wanted->ntasks != 0 && wanted->nodes != 0 && read_gateway(wanted);
}
