/* Calls error(), debug() and fatal() as plugins of Slurm's own tree do; its library calls those of others. */
#include <slurm/spank.h>
#include <stdio.h>

SPANK_PLUGIN(plain_names, 1);

extern void error(const char *format, ...);
extern void library_says(void);
#ifndef ONLY_ERROR
extern void info(const char *format, ...);
extern void debug(const char *format, ...);
extern void fatal(const char *format, ...);
#endif

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)av;
    error("ours, %d", ac);
#ifndef ONLY_ERROR
    info("info %s", "too");
    debug("debug %d", 5);
#endif
    library_says();
    return 0;
}

#ifndef ONLY_ERROR
int slurm_spank_exit(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
    fatal("cannot go on, %d", 42);
    return 0;
}
#endif
