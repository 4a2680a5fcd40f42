/* Which way a command goes. */
#include "quick.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0, 1 and 2 become a task's streams, and are what is written to: they must be something. */
static bool have_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd <= 2)
        if (fcntl(fd, F_SETFD, 0) != 0)
            return false;
    close(fd);
    return fd >= 0;
}

/* Whether the rights of this process come of a bit of the file that it executes, or may. A script has none of such a
 * bit, and Python, with all that it can be asked for, is no program to have it. */
static bool is_set_id(void)
{
    struct stat status;
    return getauxval(AT_SECURE)
        && (stat("/proc/self/exe", &status) != 0 || status.st_mode & (S_ISUID | S_ISGID));
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *socket = getenv("NODECTL_SOCKET");
    struct wanted wanted = {.socket = socket != NULL && socket[0] != '\0' ? socket : NULL, .umask = -1};
    if (argv[0] == NULL)
        return 127;
    if (is_set_id()) {
        fputs("nodectl: error: this program must not be set-user-ID or set-group-ID: chmod ug-s\n", stderr);
        return 1;
    }
    if (have_streams() && !getauxval(AT_SECURE) && read_words(argv + 1, &wanted))
        run_step(&wanted, argv + 1);
    start_python(argv + 1);
    return 127;
}
