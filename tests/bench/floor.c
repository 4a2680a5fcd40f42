/* What it takes at least to start programs as nodectl does: the system calls of a launch, in a small program, and no more.
 *
 * usage: floor loop CGROUP COUNT SLOTS   runs /bin/true COUNT times, SLOTS at a time, each in the cgroup of its slot
 *        floor launch CGROUP ROUNDS      prints for each round the nanoseconds of posix_spawn(3) and wait, and those of
 *                                        a start in a cgroup that is made for it and removed
 *
 * The cgroups are made in the directory CGROUP.
 */
#define _GNU_SOURCE
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SLOTS = 64, STACK = 1 << 14 };

struct slot {
    char path[256];
    int cgroup;
    cpu_set_t cpus;
    pid_t pid;
};

static char program[] = "/bin/true";
static char *const arguments[] = {program, NULL};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* In the child, which has the parent's memory: binds itself and becomes the program. */
static void become_program(void *slot)
{
    raw(SYS_sched_setaffinity, 0, sizeof(cpu_set_t), &((struct slot *)slot)->cpus);
    raw(SYS_execve, program, arguments, environ);
    raw(SYS_exit_group, 127);
    __builtin_unreachable();
}

/* As vfork(2), into the slot's cgroup: goes on when the child is the program. So one stack serves all children. */
static void start(struct slot *slot)
{
    static char stack[STACK] __attribute__((aligned(16)));
    struct clone_args how = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stack,
        .stack_size = STACK,
        .cgroup = (uint64_t)slot->cgroup,
    };
    long pid = raw_clone3(&how, sizeof how, become_program, slot);
    if (pid < 0) {
        errno = (int)-pid;
        fail("clone3");
    }
    slot->pid = (pid_t)pid;
}

/* Waits for the child, or for any if it is -1. */
static pid_t ended(pid_t child)
{
    int status;
    pid_t pid = waitpid(child, &status, 0);
    if (pid < 0)
        fail("waitpid");
    if (status != 0) {
        fprintf(stderr, "%s: status %d\n", program, status);
        exit(1);
    }
    return pid;
}

static void make_cgroup(struct slot *slot)
{
    if (mkdir(slot->path, 0755) != 0)
        fail(slot->path);
    slot->cgroup = open(slot->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (slot->cgroup < 0)
        fail(slot->path);
}

static void remove_cgroup(struct slot *slot)
{
    close(slot->cgroup);
    while (rmdir(slot->path) != 0)
        if (errno != EBUSY)
            fail(slot->path);
}

/* Gives each slot a path, and the next of the CPUs that this process may use. */
static void prepare(struct slot *slots, int count, const char *directory)
{
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        fail("sched_getaffinity");
    for (int i = 0, cpu = -1; i < count; i++) {
        do
            cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &usable));
        CPU_SET(cpu, &slots[i].cpus);
        snprintf(slots[i].path, sizeof slots[i].path, "%s/floor%d", directory, i);
    }
}

static void loop(struct slot *slots, int count, int commands)
{
    int begun = 0;
    for (int i = 0; i < count; i++)
        make_cgroup(&slots[i]);
    for (; begun < count && begun < commands; begun++)
        start(&slots[begun]);
    for (int done = 0; done < commands; done++) {
        pid_t pid = ended(-1);
        struct slot *slot = slots;
        while (slot->pid != pid)
            slot++;
        if (begun < commands) {
            start(slot);
            begun++;
        }
    }
    for (int i = 0; i < count; i++)
        remove_cgroup(&slots[i]);
}

static long long nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void spawn_and_wait(void)
{
    pid_t pid;
    int error = posix_spawn(&pid, program, NULL, NULL, arguments, environ);
    if (error != 0) {
        errno = error;
        fail("posix_spawn");
    }
    ended(pid);
}

static void launch(struct slot *slot, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        long long begin = nanoseconds();
        spawn_and_wait();
        long long middle = nanoseconds();
        make_cgroup(slot);
        start(slot);
        ended(slot->pid);
        remove_cgroup(slot);
        printf("%lld %lld\n", middle - begin, nanoseconds() - middle);
    }
}

int main(int count, char **words)
{
    static struct slot slots[MOST_SLOTS];
    bool loops = count == 5 && strcmp(words[1], "loop") == 0;
    int used = loops ? atoi(words[4]) : 1;
    if ((!loops && (count != 4 || strcmp(words[1], "launch") != 0)) || used < 1 || used > MOST_SLOTS)
        return 2;
    prepare(slots, used, words[2]);
    if (loops)
        loop(slots, used, atoi(words[3]));
    else
        launch(slots, atoi(words[3]));
    return 0;
}
