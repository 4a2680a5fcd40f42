/* A library that a plugin needs. It uses libc's error(3), and has names of its own that Slurm has too. */
#include <errno.h>
#include <error.h>

int debug = 1;
extern void init(void);
extern void library_says(void);

void init(void)
{
    error(0, 0, "init of the library");
}

void library_says(void)
{
    error(0, ENOENT, "libc's, debug %d", debug);
}
