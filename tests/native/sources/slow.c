/* Does not come back, in the way that its argument says. */
#include <pthread.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(slow, 1);

static void *nothing(void *data)
{
    return data;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    volatile unsigned long turns = 0;
    pthread_t thread;
    void *volatile block;
    char buffer[16];
    if (ac < 1)
        return 0;
    if (strcmp(av[0], "sleep") == 0)
        sleep(1000);
    while (strcmp(av[0], "loop") == 0)
        turns++;
    while (strcmp(av[0], "call") == 0)
        spank_getenv(sp, "COLOUR", buffer, sizeof buffer);
    if (strcmp(av[0], "malloc") == 0) { /* with more than one thread malloc takes its lock */
        pthread_create(&thread, NULL, nothing, NULL);
        for (;;) {
            block = malloc(50000);
            free(block);
        }
    }
    printf("came back\n");
    return 0;
}

int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
    printf("exit hook\n");
    return 0;
}
