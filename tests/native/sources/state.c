/* Counts its hooks in a static, cuts up its arguments and keeps pointers to them, has init() and fini(). */
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

#ifndef NAME
#define NAME state
#endif
#define PLUGIN(name) SPANK_PLUGIN(name, 1)
PLUGIN(NAME);

extern int init(void);
extern int fini(void);
static int calls;
static char *value;

__attribute__((constructor)) static void constructed(void)
{
    printf("constructed\n");
}

int init(void)
{
    printf("init\n");
    return 0;
}

int fini(void)
{
    printf("fini\n");
    return 5;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)sp;
    calls++;
    if (ac > 0 && strtok(av[0], "=") != NULL)
        value = strtok(NULL, "=");
    printf("calls %d value %s\n", calls, value ? value : "none");
    return 0;
}

int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)sp;
    printf("calls %d value %s argument %s\n", calls, value ? value : "none", ac > 0 ? av[0] : "none");
    return 0;
}
