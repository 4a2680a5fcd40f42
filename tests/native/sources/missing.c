/* Calls functions that do not exist, in one hook of two. */
#include <slurm/spank.h>
#include <stdio.h>

SPANK_PLUGIN(missing, 1);

extern int no_such_function(int);
extern int no_other_function(void) __attribute__((weak));
extern void *slurm_conf_lock(void);

static int option(int val, const char *optarg, int remote)
{
    (void)optarg;
    (void)remote;
    return no_such_function(val);
}

struct spank_option spank_options[] = {
    {(char *)"call", NULL, (char *)"Call it.", 0, 7, option},
    SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)av;
    printf("before\n");
    if (no_other_function != NULL)
        no_other_function();
    if (ac > 1)
        slurm_conf_lock();
    return no_such_function(ac);
}

int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
    printf("exit hook\n");
    return 0;
}
