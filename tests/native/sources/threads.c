/* Lets a thread write a message while the hook waits for it; asks often for the same variable. */
#include <pthread.h>
#include <slurm/spank.h>
#include <stdio.h>

SPANK_PLUGIN(threads, 1);

static void *work(void *data)
{
    slurm_info("from a thread");
    return data;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    pthread_t thread;
    (void)sp;
    (void)ac;
    (void)av;
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    return 0;
}

int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
    struct spank_option option = {(char *)"none", NULL, (char *)"None.", 1, 0, NULL};
    char buffer[32], *argument, **env;
    int i;
    (void)ac;
    (void)av;
    for (i = 0; i < 10000; i++) {
        spank_getenv(sp, "COLOUR", buffer, sizeof buffer);
        spank_getenv(sp, "NO_SUCH", buffer, sizeof buffer);
        spank_get_item(sp, S_JOB_ENV, &env);
        spank_option_getopt(sp, &option, &argument);
        spank_strerror(ESPANK_ERROR);
    }
    return 0;
}
