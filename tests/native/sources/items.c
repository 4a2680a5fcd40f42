/* Asks for every item in every hook, and looks at the bytes around what it is given. */
#include <stdint.h>
#include <sys/types.h>

#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

SPANK_PLUGIN(items, 1)

static unsigned char box[48];

static void *place(void)
{
    memset(box, 0xa5, sizeof box);
    return box + 16;
}

/* "NAME rc value", where the value is what stands in the first `size` bytes, or "untouched"; "SPILT" behind it when
 * others have changed. */
static void tell(const char *name, int rc, size_t size)
{
    uint64_t value = 0;
    int spilt = 0, touched = 0;
    size_t i;
    for (i = 0; i < sizeof box; i++) {
        if (i >= 16 && i < 16 + size)
            touched |= box[i] != 0xa5;
        else
            spilt |= box[i] != 0xa5;
    }
    memcpy(&value, box + 16, size); /* all machines that this is for are little-endian */
    if (touched)
        printf("%s %d %llu%s\n", name, rc, (unsigned long long)value, spilt ? " SPILT" : "");
    else
        printf("%s %d untouched%s\n", name, rc, spilt ? " SPILT" : "");
}

#define NUMBER(item, type) tell(#item, (int)spank_get_item(sp, item, (type *)place()), sizeof(type))
#define TRANSLATED(item, id, label) \
    tell(#item "(" label ")", (int)spank_get_item(sp, item, id, (uint32_t *)place()), sizeof(uint32_t))
#define TEXT(item) \
    do { \
        char *text = NULL; \
        rc = spank_get_item(sp, item, &text); \
        printf("%s %d %s\n", #item, (int)rc, text ? text : "NULL"); \
    } while (0)

static int ask(spank_t sp, int ac, char **av)
{
    spank_err_t rc;
    pid_t pid = ac > 0 && av[0][0] == '-' ? 0 : 4001;
    char **words = NULL;
    gid_t *gids = NULL;
    int count = -7, i;

    NUMBER(S_JOB_UID, uid_t);
    NUMBER(S_JOB_GID, gid_t);
    NUMBER(S_JOB_ID, uint32_t);
    NUMBER(S_JOB_STEPID, uint32_t);
    NUMBER(S_JOB_NNODES, uint32_t);
    NUMBER(S_JOB_NODEID, uint32_t);
    NUMBER(S_JOB_LOCAL_TASK_COUNT, uint32_t);
    NUMBER(S_JOB_TOTAL_TASK_COUNT, uint32_t);
    NUMBER(S_JOB_NCPUS, uint16_t);
    NUMBER(S_TASK_ID, int);
    NUMBER(S_TASK_GLOBAL_ID, uint32_t);
    NUMBER(S_TASK_EXIT_STATUS, int);
    NUMBER(S_TASK_PID, pid_t);
    TRANSLATED(S_JOB_PID_TO_GLOBAL_ID, pid, "4001");
    TRANSLATED(S_JOB_PID_TO_LOCAL_ID, (pid_t)1, "1");
    TRANSLATED(S_JOB_LOCAL_TO_GLOBAL_ID, (uint32_t)1, "1");
    TRANSLATED(S_JOB_LOCAL_TO_GLOBAL_ID, (uint32_t)99999, "99999");
    TRANSLATED(S_JOB_GLOBAL_TO_LOCAL_ID, (uint32_t)0xfffffffe, "0xfffffffe");
    NUMBER(S_STEP_CPUS_PER_TASK, uint32_t);
    NUMBER(S_JOB_ALLOC_MEM, uint64_t);
    NUMBER(S_STEP_ALLOC_MEM, uint64_t);
    NUMBER(S_SLURM_RESTART_COUNT, uint32_t);
    NUMBER(S_JOB_ARRAY_ID, uint32_t);
    NUMBER(S_JOB_ARRAY_TASK_ID, uint32_t);
    TEXT(S_SLURM_VERSION);
    TEXT(S_SLURM_VERSION_MAJOR);
    TEXT(S_SLURM_VERSION_MINOR);
    TEXT(S_SLURM_VERSION_MICRO);
    TEXT(S_JOB_ALLOC_CORES);
    TEXT(S_STEP_ALLOC_CORES);

    rc = spank_get_item(sp, S_JOB_ARGV, &count, &words);
    printf("S_JOB_ARGV %d %d", (int)rc, count);
    for (i = 0; words != NULL && words[i] != NULL; i++)
        printf(" %s", words[i]);
    words = NULL;
    rc = spank_get_item(sp, S_JOB_ENV, &words);
    printf("\nS_JOB_ENV %d", (int)rc);
    for (i = 0; words != NULL && words[i] != NULL; i++)
        printf(" %s", words[i]);
    count = -7;
    rc = spank_get_item(sp, S_JOB_SUPPLEMENTARY_GIDS, &gids, &count);
    printf("\nS_JOB_SUPPLEMENTARY_GIDS %d %d", (int)rc, count);
    for (i = 0; gids != NULL && i < count; i++)
        printf(" %u", (unsigned)gids[i]);
    tell("\nno_item", (int)spank_get_item(sp, (spank_item_t)999, place()), 8);
    tell("no_handle", (int)spank_get_item(NULL, S_JOB_ID, place()), 8);
    tell("other_handle", (int)spank_get_item((spank_t)(void *)box, S_JOB_ID, place()), 8);
    printf("no_place %d\n", (int)spank_get_item(sp, S_JOB_ID, (uint32_t *)NULL));
    printf("remote %d %d context %d\n", spank_remote(sp), spank_remote(NULL), (int)spank_context());
    return 0;
}

int slurm_spank_init(spank_t sp, int ac, char **av) { return ask(sp, ac, av); }
int slurm_spank_task_post_fork(spank_t sp, int ac, char **av) { return ask(sp, ac, av); }
int slurm_spank_task_exit(spank_t sp, int ac, char **av) { return ask(sp, ac, av); }
