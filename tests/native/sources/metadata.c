/* A plugin that says of itself what the compiler's -D options make it say. */
#include <slurm/spank.h>
#include <stdint.h>

#ifdef NAME
extern const char plugin_name[];
const char plugin_name[] = NAME;
#endif
#ifdef TYPE
extern const char plugin_type[];
const char plugin_type[] = TYPE;
#endif
#ifdef VERSION
extern const uint32_t plugin_version;
const uint32_t plugin_version = VERSION;
#endif
#ifdef SPANK_VERSION
extern const uint32_t spank_plugin_version;
const uint32_t spank_plugin_version = SPANK_VERSION;
#endif
#ifdef FAILURE_MODE
extern int slurm_spank_init_failure_mode;
int slurm_spank_init_failure_mode = 12345; /* until init knows better */
#endif

#ifdef HOOK
int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
#ifdef FAILURE_MODE
    slurm_spank_init_failure_mode = FAILURE_MODE;
    return -1;
#endif
    return 0;
}
#endif
