/* Asks for its own job as a plugin of 23.02 does, whose compiler put each member where these numbers say. */
#include <slurm/slurm.h>
#include <slurm/spank.h>

extern const char plugin_name[], plugin_type[];
extern const unsigned int plugin_version;
const char plugin_name[] = "record", plugin_type[] = "spank";
const unsigned int plugin_version = 0x170207;

#define AT(type, place) (*(type const *)(record + (place)))

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    job_info_msg_t *answer = NULL;
    uint32_t id = 0;
    (void)ac, (void)av;
    if (spank_get_item(sp, S_JOB_ID, &id) != ESPANK_SUCCESS || slurm_load_job(&answer, id, SHOW_ALL) != 0)
        return -1;
    const char *record = (const char *)answer->job_array;
    printf("job %u state %u user %u %s name %s\n", AT(uint32_t, 412), AT(uint32_t, 432), AT(uint32_t, 888),
           AT(char *, 896), AT(char *, 496));
    printf("nodes %s cpus %u tasks %u each %u partition %s\n", AT(char *, 512), AT(uint32_t, 548), AT(uint32_t, 556),
           AT(uint16_t, 200), AT(char *, 560));
    printf("limit %u start %lld submitted %lld\n", AT(uint32_t, 808), (long long)AT(time_t, 728),
           (long long)AT(time_t, 784));
    printf("memory %llu tres %s\n", (unsigned long long)AT(uint64_t, 576), AT(char *, 880));
    printf("command %s in %s out %s flags %u\n", AT(char *, 152), AT(char *, 920), AT(char *, 776), AT(uint16_t, 714));
    printf("array %u_%u batch %u restarts %u\n", AT(uint32_t, 48), AT(uint32_t, 52), AT(uint16_t, 88), AT(uint16_t, 680));
    slurm_free_job_info_msg(answer);
    return 0;
}
