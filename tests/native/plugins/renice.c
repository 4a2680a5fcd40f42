/* renice: users choose the nice value of their tasks. The compiled twin of plugins/spank/renice.py.
 *
 *     cc -shared -fPIC -I"$(nodectl plugins --include)" -o renice.so renice.c
 *
 * Option: --renice[=PRIO], or SLURM_RENICE in the job's environment; "optional renice.so min_prio=N" in plugstack.conf
 * sets the lowest value allowed. Compiles with nodectl's slurm/spank.h and with Slurm's own.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <slurm/spank.h>

SPANK_PLUGIN(renice, 1);

#define VARIABLE "SLURM_RENICE"
#define LOWEST (-20)
#define HIGHEST 20

static int min_prio = LOWEST;
static int asked; /* by the option, for prio */
static int prio;

static int parse(const char *text, int *number)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < LOWEST || value > HIGHEST)
        return -1;
    *number = (int)value;
    return 0;
}

static int option(int val, const char *optarg, int remote)
{
    (void)val;
    if (!optarg || parse(optarg, &prio)) {
        slurm_error("renice: --renice=%s: not a number from %d to %d", optarg ? optarg : "", LOWEST, HIGHEST);
        return -1;
    }
    if (prio < min_prio && !remote)
        slurm_error("renice: --renice=%d is below the lowest allowed value, %d is used", prio, min_prio);
    asked = 1;
    return 0;
}

struct spank_option spank_options[] = {
    {"renice", "[PRIO]", "set the nice value of the tasks, -20 to 20", 2, 0, option},
    SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    int i;

    for (i = 0; i < ac; i++) {
        if (strncmp(av[i], "min_prio=", 9))
            slurm_error("renice: unknown argument '%s' in plugstack.conf", av[i]);
        else if (parse(av[i] + 9, &min_prio))
            slurm_error("renice: '%s' in plugstack.conf is ignored: not a number from %d to %d", av[i], LOWEST,
                        HIGHEST);
    }
    if (!spank_remote(sp))
        slurm_verbose("renice: nice values from %d upwards are allowed", min_prio);
    return 0;
}

/* The stepd, as root: before the task's program starts. */
int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
    char text[1024];
    int wanted = prio;
    pid_t pid;
    uint32_t rank;

    (void)ac;
    (void)av;
    if (!asked) {
        if (spank_getenv(sp, VARIABLE, text, sizeof text) != ESPANK_SUCCESS)
            return 0;
        if (parse(text, &wanted)) {
            slurm_error("renice: %s=%s: not a number from %d to %d", VARIABLE, text, LOWEST, HIGHEST);
            return -1;
        }
        if (wanted < min_prio)
            slurm_error("renice: %s=%d is below the lowest allowed value, %d is used", VARIABLE, wanted, min_prio);
    }
    if (wanted < min_prio)
        wanted = min_prio;
    if (spank_get_item(sp, S_TASK_PID, &pid) || spank_get_item(sp, S_TASK_GLOBAL_ID, &rank))
        return -1;
    slurm_info("renice: task %u, pid %ld: nice value %d", rank, (long)pid, wanted);
    if (setpriority(PRIO_PROCESS, (id_t)pid, wanted)) {
        slurm_error("renice: task %u, pid %ld: setpriority %d: %m", rank, (long)pid, wanted);
        return -1;
    }
    return 0;
}
