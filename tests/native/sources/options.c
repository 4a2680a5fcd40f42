/* Two options in a table, one registered. */
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

SPANK_PLUGIN(options, 1);

static const char *kept; /* as plugins do, though nobody promised that it stays */

static int take(int val, const char *optarg, int remote)
{
    printf("cb %d %s %d\n", val, optarg ? optarg : "NULL", remote);
    kept = optarg;
    return optarg != NULL && strcmp(optarg, "bad") == 0 ? -1 : 0;
}

struct spank_option spank_options[] = {
    {(char *)"first", (char *)"WORD", (char *)"Takes a word.", 1, 11, take},
    {(char *)"silent", NULL, (char *)"Has no callback.", 0, 12, NULL},
    SPANK_OPTIONS_TABLE_END,
};

static struct spank_option registered = {(char *)"second", (char *)"N", (char *)"Takes a number.", 2, 13, take};
static char long_name[100];
static struct spank_option wrong = {NULL, NULL, NULL, 0, 0, NULL};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    char *argument = (char *)"before";
    (void)ac;
    (void)av;
    printf("register %d\n", (int)spank_option_register(sp, &registered));
    printf("no_option %d\n", (int)spank_option_register(sp, NULL));
    printf("no_name %d\n", (int)spank_option_register(sp, &wrong));
    memset(long_name, 'x', sizeof long_name - 1);
    wrong.name = long_name;
    printf("no_usage %d\n", (int)spank_option_register(sp, &wrong));
    wrong.usage = (char *)"Too long.";
    printf("long_name %d\n", (int)spank_option_register(sp, &wrong));
    printf("no_handle %d\n", (int)spank_option_register(NULL, &registered));
    printf("getopt %d", (int)spank_option_getopt(sp, &registered, &argument));
    printf(" %s\n", argument ? argument : "NULL");
    return 0;
}

int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
    char *argument = (char *)"before";
    (void)ac;
    (void)av;
    printf("register %d\n", (int)spank_option_register(sp, &registered));
    printf("first %d", (int)spank_option_getopt(sp, &spank_options[0], &argument));
    printf(" %s\n", argument ? argument : "NULL");
    printf("second %d", (int)spank_option_getopt(sp, &registered, &argument));
    printf(" %s\n", argument ? argument : "NULL");
    printf("no_place %d\n", (int)spank_option_getopt(sp, &spank_options[0], NULL));
    printf("silent %d\n", (int)spank_option_getopt(sp, &spank_options[1], NULL));
    printf("no_option %d\n", (int)spank_option_getopt(sp, NULL, &argument));
    printf("no_handle %d\n", (int)spank_option_getopt(NULL, &registered, &argument));
    printf("kept %s\n", kept);
    return 0;
}
