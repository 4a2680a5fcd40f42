/* Asks for jobs: its own, in every hook, and those whose ids are its arguments. */
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>

#ifdef RELEASE
extern const char plugin_name[], plugin_type[];
extern const unsigned int plugin_version;
const char plugin_name[] = "jobs", plugin_type[] = "spank";
const unsigned int plugin_version = RELEASE;
#else
SPANK_PLUGIN(jobs, 1)
#endif

static const char *or_null(const char *text)
{
    return text == NULL ? "NULL" : text;
}

static void tell(const slurm_job_info_t *job)
{
    printf("job %u state %u user %u %s group %u name %s\n", job->job_id, job->job_state, job->user_id,
           or_null(job->user_name), job->group_id, or_null(job->name));
    printf("nodes %s %u index %d %d %d cpus %u tasks %u each %u partition %s\n", or_null(job->nodes), job->num_nodes,
           job->node_inx[0], job->node_inx[1], job->node_inx[2], job->num_cpus, job->num_tasks, job->cpus_per_task,
           or_null(job->partition));
    printf("limit %u start %lld end %lld submitted %lld\n", job->time_limit, (long long)job->start_time,
           (long long)job->end_time, (long long)job->submit_time);
    printf("memory %llu gres %s tres %s\n", (unsigned long long)job->pn_min_memory, or_null(job->gres_total),
           or_null(job->tres_alloc_str));
    printf("command %s in %s out %s account %s licenses %s details %u %d required %d %d\n", or_null(job->command),
           or_null(job->work_dir), or_null(job->std_out), or_null(job->account), or_null(job->licenses),
           job->gres_detail_cnt, job->gres_detail_str != NULL, job->req_nodes != NULL, job->req_node_inx != NULL);
    printf("cluster %s batch %u restarts %u array %u_%u", or_null(job->cluster), job->batch_flag, job->restart_cnt,
           job->array_job_id, job->array_task_id);
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(24, 11, 0)
    printf(" flags %u", job->show_flags);
#endif
    printf("\n");
}

static int load(job_info_msg_t **answer, uint32_t id, uint16_t flags)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
    slurm_step_id_t step = SLURM_STEP_ID_INITIALIZER;
    step.job_id = id;
    return slurm_load_job(answer, step, flags);
#else
    return slurm_load_job(answer, id, flags);
#endif
}

static void ask(uint32_t id, uint16_t flags)
{
    job_info_msg_t *answer = NULL;
    errno = 0;
    int rc = load(&answer, id, flags);
    int number = errno;
    printf("load %d errno %d answer %d\n", rc, rc == 0 ? 0 : number, answer != NULL);
    errno = number;
    if (rc != 0) {
        printf("%s\n", slurm_strerror(errno));
        return;
    }
    printf("records %u recent %d\n", answer->record_count, answer->last_update > 0);
    tell(&answer->job_array[0]);
    slurm_free_job_info_msg(answer);
}

static int all(spank_t sp, int ac, char **av)
{
    uint32_t own = 0;
    if (spank_get_item(sp, S_JOB_ID, &own) == ESPANK_SUCCESS)
        ask(own, SHOW_ALL | SHOW_DETAIL);
    for (int i = 0; i < ac; i++)
        ask((uint32_t)strtoul(av[i], NULL, 10), 0);
    return 0;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    slurm_init(NULL);
    return all(sp, ac, av);
}

int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    return all(sp, ac, av);
}

int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
    return all(sp, ac, av);
}

int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    printf("nowhere %d\n", load(NULL, 1, 0));
    slurm_free_job_info_msg(NULL);
    slurm_fini();
    (void)sp;
    (void)ac;
    (void)av;
    return 0;
}
