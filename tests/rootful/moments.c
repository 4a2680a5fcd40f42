/* Runs a program, and sends it a signal when it enters its Nth system call: moments NOTES N SIGNAL PROGRAM [WORD]...
 *
 * NOTES is a file of three numbers of eight bytes, which tell while it runs: the program's pid, how many system calls it
 * has entered, and whether the signal was sent. With 0 for N none is sent. After the signal nobody looks at the program
 * any more. It is traced through each execve(2); children of it are not. This process ends as the program does. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

struct notes {
    volatile int64_t pid, count, sent;
};

static void fail(const char *what)
{
    perror(what);
    exit(99);
}

static int await(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid");
    return status;
}

/* As the program ended. */
static void end_as(int status)
{
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        prctl(PR_SET_DUMPABLE, 0);
        raise(WTERMSIG(status));
    }
    exit(WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 99;
    long moment = atol(argv[2]);
    int number = atoi(argv[3]), fd = open(argv[1], O_RDWR | O_CLOEXEC);
    struct notes *notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || notes == MAP_FAILED)
        fail(argv[1]);
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            fail("ptrace");
        raise(SIGSTOP);
        execv(argv[4], argv + 4);
        fail(argv[4]);
    }
    int status = await(pid);
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (pid < 0 || !WIFSTOPPED(status) || ptrace(PTRACE_SETOPTIONS, pid, NULL, options) != 0)
        fail("ptrace");
    notes->pid = pid;
    /* Others than this program are for the tracer: what is sent to it is the traced program's own affair. */
    for (int other = 1; other < NSIG; other++)
        if (other != SIGCHLD)
            signal(other, SIG_IGN);
    int passed = 0;
    for (long stops = 0; ptrace(PTRACE_SYSCALL, pid, NULL, (long)passed) == 0;) {
        status = await(pid);
        if (!WIFSTOPPED(status))
            break;
        passed = 0;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            if (stops++ % 2 != 0)
                continue;
            notes->count++;
            if (moment == 0 || notes->count != moment)
                continue;
            kill(pid, number);
            notes->sent = 1;
            if (ptrace(PTRACE_DETACH, pid, NULL, NULL) != 0)
                fail("detach");
            status = await(pid);
            break;
        } else if (status >> 16 == 0) { /* no event of ptrace's */
            passed = WSTOPSIG(status);
        }
    }
    end_as(status);
}
