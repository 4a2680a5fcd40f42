/* slurm/slurm.h: the few parts of libslurm that SPANK plugins use besides SPANK. Part of nodectl, MIT licence.
 *
 * Numbers, and the order and types of structures' members, are those of Slurm 22.05, so that plugins compiled with
 * Slurm's own header read the same values.
 */
#ifndef SLURM_H
#define SLURM_H

#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- numbers with a special meaning -------------------------------------------------------------- */

/* No limit. */
#define INFINITE8 (0xff)
#define INFINITE16 (0xffff)
#define INFINITE (0xffffffff)
#define INFINITE64 (0xffffffffffffffff)

/* Not set. */
#define NO_VAL8 (0xfe)
#define NO_VAL16 (0xfffe)
#define NO_VAL (0xfffffffe)
#define NO_VAL64 (0xfffffffffffffffe)

/* Step ids: the bound below which numbered steps stay, and the ids of special steps. */
#define SLURM_MAX_NORMAL_STEP_ID (0xfffffff0)
#define SLURM_PENDING_STEP (0xfffffffd)
#define SLURM_EXTERN_CONT (0xfffffffc)
#define SLURM_BATCH_SCRIPT (0xfffffffb)
#define SLURM_INTERACTIVE_STEP (0xfffffffa)

typedef struct slurm_step_id_msg {
    uint32_t job_id;
    uint32_t step_het_comp;
    uint32_t step_id;
} slurm_step_id_t;

/* --- host names ---------------------------------------------------------------------------------- */

/* "n[1-3,7],login" is n1, n2, n3, n7, login. The caller frees a name that it shifted off, with free(3). */
typedef struct hostlist *hostlist_t;

extern hostlist_t slurm_hostlist_create(const char *names); /* NULL with errno if `names` is no list */
extern char *slurm_hostlist_shift(hostlist_t list);         /* NULL when none is left */
extern int slurm_hostlist_count(hostlist_t list);
extern int slurm_hostlist_find(hostlist_t list, const char *name); /* its place from 0 on, or -1 */
extern int slurm_hostlist_push(hostlist_t list, const char *names); /* returns the number of added names */
extern int slurm_hostlist_push_host(hostlist_t list, const char *name);
extern void slurm_hostlist_uniq(hostlist_t list); /* sorts, and removes duplicates */
extern void slurm_hostlist_destroy(hostlist_t list);

/* --- jobs ---------------------------------------------------------------------------------------- */

enum job_states {
    JOB_PENDING,
    JOB_RUNNING,
    JOB_SUSPENDED,
    JOB_COMPLETE,
    JOB_CANCELLED,
    JOB_FAILED,
    JOB_TIMEOUT,
    JOB_NODE_FAIL,
    JOB_PREEMPTED,
    JOB_BOOT_FAIL,
    JOB_DEADLINE,
    JOB_OOM,
    JOB_END /* the number of states */
};
#define JOB_STATE_BASE 0x000000ff /* the bits of job_state that hold one of these states */
#define JOB_COMPLETING 0x00008000 /* in addition to a state: the job's epilog has yet to run */

/* A job. What this node does not know is NULL, 0 or NO_VAL. */
typedef struct job_info {
    char *account;
    time_t accrue_time;
    char *admin_comment, *alloc_node;
    uint32_t alloc_sid;
    int64_t *array_bitmap;
    uint32_t array_job_id, array_task_id, array_max_tasks;
    char *array_task_str;
    uint32_t assoc_id;
    char *batch_features;
    uint16_t batch_flag;
    char *batch_host;
    uint64_t bitflags;
    uint16_t boards_per_node;
    char *burst_buffer, *burst_buffer_state, *cluster, *cluster_features, *command, *comment, *container;
    uint16_t contiguous, core_spec, cores_per_socket;
    double billable_tres;
    uint16_t cpus_per_task;
    uint32_t cpu_freq_min, cpu_freq_max, cpu_freq_gov;
    char *cpus_per_tres, *cronspec;
    time_t deadline;
    uint32_t delay_boot;
    char *dependency;
    uint32_t derived_ec;
    time_t eligible_time, end_time;
    char *exc_nodes;
    int32_t *exc_node_inx;
    uint32_t exit_code;
    char *features, *fed_origin_str;
    uint64_t fed_siblings_active;
    char *fed_siblings_active_str;
    uint64_t fed_siblings_viable;
    char *fed_siblings_viable_str;
    uint32_t gres_detail_cnt;
    char **gres_detail_str, *gres_total;
    uint32_t group_id, het_job_id;
    char *het_job_id_set;
    uint32_t het_job_offset, job_id;
    struct job_resources *job_resrcs;
    uint32_t job_state;
    time_t last_sched_eval;
    char *licenses;
    uint16_t mail_type;
    char *mail_user;
    uint32_t max_cpus, max_nodes;
    char *mcs_label, *mem_per_tres, *name, *network, *nodes;
    uint32_t nice;
    int32_t *node_inx;
    uint16_t ntasks_per_core, ntasks_per_tres, ntasks_per_node, ntasks_per_socket, ntasks_per_board;
    uint32_t num_cpus, num_nodes, num_tasks;
    char *partition, *prefer;
    uint64_t pn_min_memory;
    uint16_t pn_min_cpus;
    uint32_t pn_min_tmp_disk;
    uint8_t power_flags;
    time_t preempt_time, preemptable_time, pre_sus_time;
    uint32_t priority, profile;
    char *qos;
    uint8_t reboot;
    char *req_nodes;
    int32_t *req_node_inx;
    uint32_t req_switch;
    uint16_t requeue;
    time_t resize_time;
    uint16_t restart_cnt;
    char *resv_name, *sched_nodes;
    struct dynamic_plugin_data *select_jobinfo;
    char *selinux_context;
    uint16_t shared, show_flags;
    uint32_t site_factor;
    uint16_t sockets_per_board, sockets_per_node;
    time_t start_time;
    uint16_t start_protocol_ver;
    char *state_desc;
    uint16_t state_reason;
    char *std_err, *std_in, *std_out;
    time_t submit_time, suspend_time;
    char *system_comment;
    uint32_t time_limit, time_min;
    uint16_t threads_per_core;
    char *tres_bind, *tres_freq, *tres_per_job, *tres_per_node, *tres_per_socket, *tres_per_task;
    char *tres_req_str, *tres_alloc_str;
    uint32_t user_id;
    char *user_name;
    uint32_t wait4switch;
    char *wckey, *work_dir;
} slurm_job_info_t;
typedef slurm_job_info_t job_info_t;

typedef struct job_info_msg {
    time_t last_backfill;
    time_t last_update;
    uint32_t record_count;
    slurm_job_info_t *job_array;
} job_info_msg_t;

/* Flags of slurm_load_job(); they do not change the answer. */
#define SHOW_ALL 0x0001
#define SHOW_DETAIL 0x0002
#define SHOW_LOCAL 0x0010

/* Loads a job of this node; slurm_free_job_info_msg() frees the whole answer. Returns 0, or -1 with errno:
 * ESLURM_INVALID_JOB_ID if this node has no such job. */
extern int slurm_load_job(job_info_msg_t **answer, uint32_t job_id, uint16_t flags);
extern void slurm_free_job_info_msg(job_info_msg_t *answer);

/* Called before and after other calls of libslurm; they do nothing. */
extern void slurm_init(const char *configuration);
extern void slurm_fini(void);

#ifdef __cplusplus
}
#endif

#endif
