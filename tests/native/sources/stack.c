/* Looks at what stands in a buffer that it has not written to. */
#include <slurm/spank.h>
#include <stdio.h>

SPANK_PLUGIN(stack, 1);

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    char text[8192];
    int written = 0;
    (void)sp, (void)ac, (void)av;
    __asm__ volatile("" : "=m"(text)); /* the compiler need not know that nobody has written there */
    for (unsigned int i = 0; i < sizeof text; i++)
        written += text[i] != 0;
    printf("bytes that are not zero: %d\n", written);
    return 0;
}
