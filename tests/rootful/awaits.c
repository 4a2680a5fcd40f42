/* Says "ready", waits for a signal, and says which. As the first word a number: ends with it at once. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void got(int number)
{
    const char *name = sigabbrev_np(number);
    if (write(1, "got ", 4) < 0 || write(1, name, strlen(name)) < 0 || write(1, "\n", 1) < 0)
        _exit(98);
    _exit(0);
}

int main(int argc, char **argv)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    if (argc > 1)
        return atoi(argv[1]);
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++)
        signal(numbers[index], got);
    if (write(1, "ready\n", 6) < 0)
        return 97;
    for (;;)
        pause();
}
