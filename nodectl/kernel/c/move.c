/* A process that goes on in another cgroup: as a new process that takes over its memory as it stands, and is born there.
 *
 * To move a process costs a wait until all CPUs have passed a quiet state, and a fork copies what it touches; a child
 * that shares the caller's memory costs neither. It waits, on a stack of its own, until the caller is no more, and goes
 * on with the caller's: so nothing of theirs ever runs beside each other. The caller tells its number, because nobody
 * knows when the other cgroup, which is a user's job's, lets it run.
 *
 * Owned here: the place where the new process goes on, and the stack on which it waits, until it does.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#if CAN_SHARE_MEMORY && defined(__GLIBC__)
#include <ucontext.h>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

enum { STACK = 65536, RSEQ_SIZE = 32 /* of the first version, which every kernel takes */ };

/* What the kernel keeps of a thread for libc, and a new process lacks. */
struct kept {
    void *tid, *robust;
    size_t robust_size;
    stack_t signals;
};

static struct {
    ucontext_t place;
    int old_ones, end; /* a pipe whose writing end nobody has when the old process is no more */
    char *stack;
    int socket; /* for the number of the new process */
    long result;
    volatile bool done;
    volatile enum { UNTOLD, TELLING, TOLD } number;
} move;

static void restore(const struct kept *kept)
{
    raw(SYS_set_robust_list, kept->robust, kept->robust_size);
    if (kept->signals.ss_size != 0)
        sigaltstack(&kept->signals, NULL);
#ifdef RSEQ_SIG
    /* Else sched_getcpu() would believe what the old process wrote there last. */
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    if (__rseq_size != 0 && raw(SYS_rseq, area, RSEQ_SIZE, 0, RSEQ_SIG) != 0)
        area->cpu_id = (uint32_t)RSEQ_CPU_ID_UNINITIALIZED;
#endif
}

static bool tell(long pid)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%ld", pid);
    return raw(SYS_sendto, move.socket, text, length, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0) == length;
}

static void go_on(void *nothing)
{
    (void)nothing;
    char byte;
    raw(SYS_close, move.old_ones);
    while (raw(SYS_read, move.end, &byte, 1) == -EINTR)
        ;
    if (move.number == TELLING) /* the old process was killed meanwhile; once too often does no harm */
        tell(raw(SYS_getpid));
    if (move.number != UNTOLD) /* else whoever waits for the number learns from our end that there is none */
        setcontext(&move.place);
    raw(SYS_exit_group, 1);
}

/* Ends the caller and has the child go on; returns where the kernel makes none, -errno. */
static long begin_anew(int cgroup, void *tid)
{
    struct clone3_args clone = {
        .flags = CLONE_VM | CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | CLONE_INTO_CGROUP,
        .child_tid = (uint64_t)(uintptr_t)tid,
        .stack = (uint64_t)(uintptr_t)move.stack,
        .stack_size = STACK,
        .cgroup = (uint64_t)cgroup,
    };
    const uint64_t all = ~0ULL;
    uint64_t before = 0;
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all); /* the child's are as they were when it goes on */
    raw(SYS_set_tid_address, NULL); /* at its end the caller would clear what is the child's by then */
    long pid = raw_clone3(&clone, sizeof clone, go_on, NULL);
    if (pid > 0) {
        move.number = TELLING;
        move.number = tell(pid) ? TOLD : UNTOLD;
        raw(SYS_exit_group, 0);
    }
    raw(SYS_set_tid_address, tid);
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return pid;
}

static long moved(int cgroup, int socket)
{
    struct kept kept = {0};
    int ends[2];
    if (prctl(PR_GET_TID_ADDRESS, &kept.tid, 0, 0, 0) != 0 || kept.tid == NULL)
        return -ENOSYS; /* libc would keep the old process's thread id */
    raw(SYS_get_robust_list, 0, &kept.robust, &kept.robust_size);
    sigaltstack(NULL, &kept.signals);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    move.end = ends[0], move.old_ones = ends[1];
    move.stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    move.result = move.stack == MAP_FAILED ? -ENOMEM : 0;
    move.done = false;
    move.number = UNTOLD;
    move.socket = socket;
    getcontext(&move.place); /* the new process comes from here, too */
    if (move.done) {
        restore(&kept);
    } else if (move.result == 0) {
        move.done = true;
        move.result = begin_anew(cgroup, kept.tid);
        close(move.old_ones);
    }
    close(move.end);
    if (move.stack != MAP_FAILED)
        munmap(move.stack, STACK);
    return move.result;
}

#else

static long moved(int cgroup, int socket)
{
    (void)cgroup, (void)socket;
    return -ENOSYS;
}

#endif

PyDoc_STRVAR(move_into_doc,
"move_into(cgroup_fd: int, socket_fd: int) -> None\n\n"
"The caller ends, and goes on as a new process with the same memory, descriptors and parent, which is born in the\n"
"cgroup that cgroup_fd stands for: clone3(2), CLONE_VM. Its pid is another one, which the caller sends into the socket\n"
"as it ends, perhaps twice where it is killed; it does not go on where that fails. The caller has one thread; what is\n"
"a process's own (its session stays, timers and locks of files do not) is as after fork(2).\n"
"Raises OSError in the caller: as fork_into(), and ENOSYS where libc or the machine cannot.");

static PyObject *move_into(PyObject *self, PyObject *args)
{
    (void)self;
    int cgroup, socket;
    if (!PyArg_ParseTuple(args, "ii", &cgroup, &socket))
        return NULL;
    long result = cgroup < 0 ? -EBADF : moved(cgroup, socket);
    if (result < 0) {
        errno = (int)-result;
        return failed("clone3");
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(touch_doc,
"touch(start: int, size: int) -> bool\n\n"
"Has the kernel make these bytes of the caller's memory its own at once, rather than page by page when it writes there:\n"
"madvise(2), MADV_POPULATE_WRITE, Linux 5.14. False where it does not.");

static PyObject *touch(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long start, size;
    if (!PyArg_ParseTuple(args, "KK", &start, &size))
        return NULL;
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
    return PyBool_FromLong(madvise((void *)(uintptr_t)start, (size_t)size, MADV_POPULATE_WRITE) == 0);
}

PyMethodDef move_methods[] = {
    {"move_into", move_into, METH_VARARGS, move_into_doc},
    {"touch", touch, METH_VARARGS, touch_doc},
    {NULL, NULL, 0, NULL},
};
