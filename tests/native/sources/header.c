/* What plugins that are in use take from Slurm's headers. */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
#include <string.h>

#ifdef WITH_SEMICOLON
SPANK_PLUGIN(header, 1);
#else
SPANK_PLUGIN(header, 1)
#endif

int slurm_spank_init_failure_mode = ESPANK_NODE_FAILURE;

_Static_assert(SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(22, 5, 0), "a version");
_Static_assert(SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER) == 22 && SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER) == 5, "parts");
_Static_assert(SLURM_BATCH_SCRIPT > SLURM_MAX_NORMAL_STEP_ID && SLURM_EXTERN_CONT > SLURM_MAX_NORMAL_STEP_ID, "steps");
_Static_assert(SLURM_INTERACTIVE_STEP > SLURM_MAX_NORMAL_STEP_ID && SLURM_PENDING_STEP > SLURM_MAX_NORMAL_STEP_ID, "too");
_Static_assert(sizeof(slurm_step_id_t) == 12 && (SHOW_ALL | SHOW_DETAIL) == 3, "steps and questions");
_Static_assert(NO_VAL64 > NO_VAL && NO_VAL > NO_VAL16 && NO_VAL16 > NO_VAL8 && INFINITE == NO_VAL + 1, "no values");

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    struct job_info job;
    job_info_t *same = &job;
    slurm_step_id_t step = {.job_id = 7, .step_het_comp = NO_VAL, .step_id = SLURM_BATCH_SCRIPT};
    memset(&job, 0, sizeof job);
    job.job_state = JOB_RUNNING;
    (void)sp;
    (void)ac;
    (void)av;
    errno = 0;
    slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE;
    return same->job_state == JOB_RUNNING && step.job_id == 7 && errno == 0 ? -1 : -2;
}
