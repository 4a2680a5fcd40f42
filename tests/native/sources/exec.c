/* Executes the task's program itself, out of the arrays that it was given, and with a clock running. */
#include <slurm/spank.h>
#include <stdio.h>
#include <unistd.h>

SPANK_PLUGIN(exec, 1);

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    char **argv, **env;
    int argc;
    (void)ac;
    (void)av;
    spank_setenv(sp, "SET_BY", "plugin", 1);
    if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) || spank_get_item(sp, S_JOB_ENV, &env))
        return 1;
    execve(argv[0], argv, env);
    perror("execve");
    return 2;
}
