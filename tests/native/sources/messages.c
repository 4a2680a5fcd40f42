/* Says one line at each level, and looks whether errno comes through. */
#include <errno.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

SPANK_PLUGIN(messages, 1);

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    char text[3000];
    (void)sp;
    (void)ac;
    (void)av;
    errno = ENOENT;
    slurm_error("open %s: %m", "x");
    printf("errno %d\n", errno == ENOENT);
    slurm_info("info %d %s", 1, "two");
    slurm_verbose("verbose");
    slurm_debug("debug");
    slurm_debug2("debug2");
    slurm_debug3("debug3");
    errno = EPERM;
    slurm_spank_log("log: %m");
    printf("errno %d\n", errno == EPERM);
    slurm_info("not UTF-8: \xff.");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    slurm_spank_log("%s", text);
    printf("%s\n", spank_strerror(ESPANK_NOT_TASK));
    printf("%d %d %d\n", spank_symbol_supported("slurm_spank_task_init"), spank_symbol_supported("slurm_spank_x"),
           spank_symbol_supported(NULL));
    return 0;
}
