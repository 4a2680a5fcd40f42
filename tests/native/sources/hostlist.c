/* Prints what its argument, a list of hosts, stands for. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>

SPANK_PLUGIN(hostlist, 1);

#ifdef COUNT
extern int slurm_hostlist_count(hostlist_t list); /* which only libslurm has */
#endif

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    hostlist_t list = slurm_hostlist_create(ac > 0 ? av[0] : "");
    char *name;
    (void)sp;
    if (list == NULL) {
        printf("no list %d\n", errno == EINVAL);
        return 0;
    }
#ifdef COUNT
    printf("count %d\n", slurm_hostlist_count(list));
#endif
    while ((name = slurm_hostlist_shift(list)) != NULL) {
        printf("%s ", name);
        free(name);
    }
    printf(".\n");
    slurm_hostlist_destroy(list);
    return 0;
}
