/* slurm/slurm.h: the few functions of libslurm that SPANK plugins use besides SPANK. Part of nodectl, MIT licence. */
#ifndef SLURM_H
#define SLURM_H

#include <stdint.h>

#include <slurm/slurm_errno.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the interface, comparable as a number: 22.05.8 is 0x160508. */
#define SLURM_VERSION_NUM(major, minor, micro) (((major) << 16) + ((minor) << 8) + (micro))
#define SLURM_VERSION_NUMBER SLURM_VERSION_NUM(22, 5, 8)

/* Host names: "n[1-3,7],login" is n1, n2, n3, n7, login. A name that was shifted off is the caller's to free(3). */
typedef struct hostlist *hostlist_t;

extern hostlist_t slurm_hostlist_create(const char *names); /* NULL with errno for what is no list */
extern char *slurm_hostlist_shift(hostlist_t list);         /* NULL when none is left */
extern void slurm_hostlist_destroy(hostlist_t list);

/* A controller's answer about a job. There is no controller here: the call fails, with errno ENOTCONN. */
typedef struct job_info_msg job_info_msg_t;

extern int slurm_load_job(job_info_msg_t **answer, uint32_t job_id, uint16_t flags);
extern void slurm_free_job_info_msg(job_info_msg_t *answer);

#ifdef __cplusplus
}
#endif

#endif
