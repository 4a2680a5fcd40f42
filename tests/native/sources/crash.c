/* Dies, or ends its process, in the way that its argument says. */
#include <err.h>
#include <signal.h>
#include <stdint.h>

#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(crash, 1);

int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)av;
    return ac > 0 && strcmp(av[0], "handler") == 0 && signal(SIGILL, SIG_DFL) != SIG_IGN;
}

static int deeper(volatile char *above)
{
    volatile char room[4096];
    room[0] = above[0];
    return above[0] == 2 ? 0 : deeper(room) + room[0];
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    volatile char start = 1;
    (void)sp;
    if (ac < 1)
        return 0;
    if (strcmp(av[0], "null") == 0)
        strcpy((char *)(uintptr_t)(unsigned)(ac - 1), "x");
    if (strcmp(av[0], "stack") == 0)
        return deeper(&start);
    if (strcmp(av[0], "abort") == 0)
        abort();
    if (strcmp(av[0], "raise") == 0)
        raise(SIGFPE);
    if (strcmp(av[0], "exit") == 0)
        exit(0);
    if (strcmp(av[0], "_exit") == 0)
        _exit(0);
    if (strcmp(av[0], "_Exit") == 0)
        _Exit(0);
    if (strcmp(av[0], "quick_exit") == 0)
        quick_exit(0);
    if (strcmp(av[0], "errx") == 0)
        errx(0, "gives up");
    if (strcmp(av[0], "exiting child") == 0 && fork() == 0)
        exit(ac);
    if (strcmp(av[0], "child") == 0 && fork() == 0)
        abort();
    if (strcmp(av[0], "child") == 0 || strcmp(av[0], "exiting child") == 0)
        wait(NULL);
    if (strcmp(av[0], "log") == 0)
        slurm_error("%s", (char *)(uintptr_t)(unsigned)ac);
    if (strcmp(av[0], "handler") == 0)
        signal(SIGILL, SIG_IGN);
    return 0;
}
