/* Prints what its argument, a list of hosts, stands for. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>

SPANK_PLUGIN(hostlist, 1);

#ifdef RANGED
extern char *slurm_hostlist_ranged_string_malloc(hostlist_t list); /* which only libslurm has */
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
#ifdef RANGED
    char *ranged = slurm_hostlist_ranged_string_malloc(list);
    printf("ranged %s\n", ranged);
    free(ranged);
#endif
    while ((name = slurm_hostlist_shift(list)) != NULL) {
        printf("%s ", name);
        free(name);
    }
    printf(".\n");
    slurm_hostlist_destroy(list);
    return 0;
}

/* Its arguments: a list, names to be added, one to be looked for. */
int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    hostlist_t list = slurm_hostlist_create(av[0]);
    char *name;
    (void)sp;
    printf("count %d\n", slurm_hostlist_count(list));
    free(slurm_hostlist_shift(list));
    printf("pushed %d %d\n", slurm_hostlist_push(list, av[1]), slurm_hostlist_push_host(list, av[0]));
    printf("found %d none %d\n", slurm_hostlist_find(list, av[ac - 1]), slurm_hostlist_find(list, "nowhere"));
    slurm_hostlist_uniq(list);
    printf("count %d:", slurm_hostlist_count(list));
    while ((name = slurm_hostlist_shift(list)) != NULL) {
        printf(" %s", name);
        free(name);
    }
    slurm_hostlist_uniq(list);
    printf("\nleft %d nothing %d %d\n", slurm_hostlist_count(list), slurm_hostlist_count(NULL),
           slurm_hostlist_push(list, "n[1-"));
    slurm_hostlist_destroy(list);
    return 0;
}
