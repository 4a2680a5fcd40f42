/* slurm/slurm_errno.h: return codes, by name and number. Part of nodectl, MIT licence.
 *
 * Declared from the documented interface, so that plugins compile where no Slurm is installed.
 */
#ifndef SLURM_ERRNO_H
#define SLURM_ERRNO_H

#include <errno.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLURM_SUCCESS 0
#define SLURM_ERROR (-1)

/* errno after calls of libslurm */
#define ESLURM_INVALID_JOB_ID 2017

typedef enum {
    ESPANK_SUCCESS = 0,
    ESPANK_ERROR = 3000,        /* no other code fits */
    ESPANK_BAD_ARG = 3001,      /* a wrong argument, an unknown handle or item */
    ESPANK_NOT_TASK = 3002,     /* the hook belongs to no task */
    ESPANK_ENV_EXISTS = 3003,   /* the variable exists and was not to be overwritten */
    ESPANK_ENV_NOEXIST = 3004,  /* no such variable */
    ESPANK_NOSPACE = 3005,      /* the buffer is too small, or the name too long */
    ESPANK_NOT_REMOTE = 3006,   /* exists in the remote context only */
    ESPANK_NOEXIST = 3007,      /* no such id or pid on this node */
    ESPANK_NOT_EXECD = 3008,    /* asked by pid before there are tasks */
    ESPANK_NOT_AVAIL = 3009,    /* not in this hook */
    ESPANK_NOT_LOCAL = 3010,    /* exists in the local and allocator contexts only */
    ESPANK_NODE_FAILURE = 3011, /* a failure to blame on the node */
    ESPANK_JOB_FAILURE = 3012   /* a failure to blame on the job */
} spank_err_t;

extern char *slurm_strerror(int number); /* knows these numbers and the system's */
extern int slurm_get_errno(void);
extern void slurm_seterrno(int number);
extern void slurm_perror(const char *what);

#ifdef __cplusplus
}
#endif

#endif
