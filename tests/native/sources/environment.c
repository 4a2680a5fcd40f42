/* Calls the functions of both environments, rightly and wrongly, and prints what they answer. */
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(environment, 1);

/* not in every release's header */
extern spank_err_t spank_prepend_task_argv(spank_t sp, int argc, const char *argv[]);

static char **held; /* the job's environment as it was handed out first */

static void get(spank_t sp, const char *label, const char *name, int size)
{
    char buffer[32];
    spank_err_t rc;
    memset(buffer, '#', sizeof buffer);
    buffer[31] = '\0';
    rc = spank_getenv(sp, name, buffer, size);
    printf("%s %d %s\n", label, (int)rc, buffer[0] == '#' ? "untouched" : buffer);
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    char buffer[8];
    const char *words[] = {"nice", "-n"};
    (void)ac;
    (void)av;
    get(sp, "get", "COLOUR", 32);
    get(sp, "get_short", "COLOUR", 3);
    get(sp, "get_exact", "COLOUR", 5);
    get(sp, "get_size_0", "COLOUR", 0);
    get(sp, "get_size_-1", "COLOUR", -1);
    get(sp, "get_absent", "NO_SUCH", 32);
    get(sp, "get_absent_size_-1", "NO_SUCH", -1);
    get(sp, "get_no_name", NULL, 32);
    get(NULL, "get_no_handle", "COLOUR", 32);
    printf("get_no_buffer %d\n", (int)spank_getenv(sp, "COLOUR", NULL, 8));
    printf("set_new %d\n", (int)spank_setenv(sp, "FRESH", "1", 0));
    printf("set_again %d\n", (int)spank_setenv(sp, "FRESH", "2", 0));
    printf("set_over %d\n", (int)spank_setenv(sp, "FRESH", "3", 1));
    printf("set_no_name %d\n", (int)spank_setenv(sp, NULL, "1", 1));
    printf("set_no_value %d\n", (int)spank_setenv(sp, "FRESH", NULL, 1));
    printf("set_equals %d\n", (int)spank_setenv(sp, "A=B", "1", 1));
    printf("set_bytes %d\n", (int)spank_setenv(sp, "BYTES", "\xff\xfe", 1));
    get(sp, "get_bytes", "BYTES", 32);
    printf("set_no_handle %d\n", (int)spank_setenv(NULL, "FRESH", "1", 1));
    printf("unset %d\n", (int)spank_unsetenv(sp, "COLOUR"));
    printf("unset_absent %d\n", (int)spank_unsetenv(sp, "NO_SUCH"));
    printf("unset_no_name %d\n", (int)spank_unsetenv(sp, NULL));
    printf("control_set %d\n", (int)spank_job_control_setenv(sp, "CONTROL", "value", 1));
    strcpy(buffer, "#######");
    printf("control_get %d", (int)spank_job_control_getenv(sp, "CONTROL", buffer, 3));
    printf(" %s\n", buffer);
    printf("control_unset %d\n", (int)spank_job_control_unsetenv(sp, "CONTROL"));
    printf("control_get_absent %d\n", (int)spank_job_control_getenv(sp, "CONTROL", buffer, 8));
    printf("prepend %d\n", (int)spank_prepend_task_argv(sp, 2, words));
    setenv("FROM_C", "yes", 1);
    return 0;
}

static void print_held(void)
{
    int i;
    for (i = 0; held != NULL && held[i] != NULL; i++)
        printf(" %s", held[i]);
    printf("\n");
}

/* The array that was handed out goes on to show what the plugin does. */
int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
    char name[16];
    int i;
    (void)ac;
    (void)av;
    spank_get_item(sp, S_JOB_ENV, &held);
    print_held();
    spank_setenv(sp, "COLOUR", "blue", 1);
    spank_setenv(sp, "LATER", "1", 1);
    print_held();
    spank_unsetenv(sp, "COLOUR");
    print_held();
    for (i = 0; i < 200; i++) { /* more than any room that was left */
        snprintf(name, sizeof name, "V%d", i);
        spank_setenv(sp, name, "", 1);
    }
    spank_get_item(sp, S_JOB_ENV, &held);
    for (i = 0; held[i] != NULL; i++)
        ;
    printf("%d\n", i);
    return 0;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    const char *words[] = {"nice", "-n", "4"};
    int i, count;
    char **argv = NULL;
    (void)ac;
    (void)av;
    printf("no_words %d\n", (int)spank_prepend_task_argv(sp, 1, NULL));
    printf("no_handle %d\n", (int)spank_prepend_task_argv(NULL, 3, words));
    printf("words %d\n", (int)spank_prepend_task_argv(sp, 3, words));
    spank_get_item(sp, S_JOB_ARGV, &count, &argv);
    printf("%d", count);
    for (i = 0; argv[i] != NULL; i++)
        printf(" %s", argv[i]);
    printf("\n");
    return 0;
}
