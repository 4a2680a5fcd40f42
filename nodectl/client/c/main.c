/* Chooses the way of a command: the quick way in this program, or Python. */
#include "quick.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens /dev/null for each of 0, 1 and 2 that is closed: they become a task's streams, and messages go to them. */
static bool have_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd <= 2)
        if (fcntl(fd, F_SETFD, 0) != 0)
            return false;
    close(fd);
    return fd >= 0;
}

/* True if this process has, or may have, rights from a set-user-ID or set-group-ID bit of its program. Linux gives a
 * script no rights by such a bit, and Python must not have them, because its caller can make it do anything. */
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
