/* A program that tries what a step may not do: each word is an attempt, each line "word errno", 0 for success. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long ended(long child)
{
    if (child > 0)
        waitpid((pid_t)child, NULL, 0);
    return child < 0 ? -1 : 0;
}

static long born(unsigned long flags)
{
    long child = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(0);
    return ended(child);
}

static long born3(unsigned long flags)
{
    unsigned long long args[8] = {flags, 0, 0, 0, SIGCHLD};
    long child = syscall(SYS_clone3, args, sizeof args);
    if (child == 0)
        _exit(0);
    return ended(child);
}

static long spied(const char *pid)
{
    pid_t who = atoi(pid);
    if (ptrace(PTRACE_SEIZE, who, NULL, NULL) != 0)
        return -1;
    kill(who, SIGKILL);
    return 0;
}

#ifdef __x86_64__
/* The same kernel by its old gateway: i386's keyctl is 288. */
static long by_int80(long number)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(99L), "c"(0L), "d"(0L), "S"(0L), "D"(0L) : "memory");
    if ((int)result < 0) {
        errno = -(int)result;
        return -1;
    }
    return 0;
}
#endif

static long attempt(const char *what)
{
    char name[1024];
    if (sscanf(what, "ptrace:%1000s", name) == 1)
        return spied(name);
    if (sscanf(what, "write:%1000s", name) == 1)
        return open(name, O_WRONLY) < 0 ? -1 : 0;
    if (sscanf(what, "mount:%1000s", name) == 1)
        return mount("none", name, "tmpfs", 0, NULL) ? -1 : umount(name);
    if (strcmp(what, "keyctl") == 0)
        return syscall(SYS_keyctl, 99, 0, 0, 0, 0);
    if (strcmp(what, "add_key") == 0)
        return syscall(SYS_add_key, NULL, NULL, NULL, 0, 0);
    if (strcmp(what, "userfaultfd") == 0)
        return syscall(SYS_userfaultfd, -1);
    if (strcmp(what, "bpf") == 0)
        return syscall(SYS_bpf, 9999, NULL, 0);
    if (strcmp(what, "quotactl") == 0)
        return syscall(SYS_quotactl, -1, NULL, 0, NULL);
    if (strcmp(what, "open_by_handle_at") == 0)
        return syscall(SYS_open_by_handle_at, -1, NULL, 0);
    if (strcmp(what, "unshare user") == 0)
        return unshare(CLONE_NEWUSER);
    if (strcmp(what, "unshare files") == 0)
        return unshare(CLONE_FILES);
    if (strcmp(what, "clone user") == 0)
        return born(CLONE_NEWUSER);
    if (strcmp(what, "clone") == 0)
        return born(0);
    if (strcmp(what, "clone3") == 0)
        return born3(0);
    if (strcmp(what, "clone3 user") == 0)
        return born3(CLONE_NEWUSER);
    if (strcmp(what, "setns") == 0)
        return setns(-1, 0);
    if (strcmp(what, "io_uring") == 0)
        return syscall(SYS_io_uring_setup, 0, NULL);
    if (strcmp(what, "perf") == 0)
        return syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0);
    if (strcmp(what, "TIOCSTI") == 0)
        return syscall(SYS_ioctl, -1, TIOCSTI, "x");
    if (strcmp(what, "TIOCSTI, high bits") == 0)
        return syscall(SYS_ioctl, -1, TIOCSTI | 1UL << 40, "x");
#ifdef __x86_64__
    if (strcmp(what, "int 0x80 keyctl") == 0)
        return by_int80(288);
    if (strcmp(what, "int 0x80 getpid") == 0)
        return by_int80(20);
    if (strcmp(what, "x32 keyctl") == 0)
        return syscall(0x40000000 | SYS_keyctl, 99, 0, 0, 0, 0);
    if (strcmp(what, "x32 getpid") == 0)
        return syscall(0x40000000 | SYS_getpid);
#endif
    fprintf(stderr, "what is %s?\n", what);
    exit(2);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        long result = attempt(argv[i]);
        printf("%s=%d\n", argv[i], result < 0 ? errno : 0);
        fflush(stdout);
    }
    return 0;
}
