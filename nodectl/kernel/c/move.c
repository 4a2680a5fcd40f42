/* Continues a process in another cgroup: a new process is born there, takes over the caller's memory, and goes on.
 *
 * Moving a process costs a wait until all CPUs have passed a quiet state, and a fork copies every page that it touches;
 * a child that shares the caller's memory costs neither. The child waits on its own stack until the caller has ended,
 * and goes on with the caller's stack, so the two never run at the same time. The caller sends the child's pid, because
 * the other cgroup belongs to a user's job and may keep the child from running for any time.
 *
 * Owned here: the place where the new process goes on, and the stack on which it waits until then.
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

enum { STACK = 65536, RSEQ_SIZE = 32 /* the first version's size, which every kernel accepts */ };

/* The registrations that libc made with the kernel for its thread; a new process lacks them. */
struct kept {
    void *tid, *robust;
    size_t robust_size;
    stack_t signals;
};

static struct {
    ucontext_t place;
    int old_ones, end; /* a pipe: its reading end gets EOF when the old process has ended */
    char *stack;
    int socket; /* the caller sends the new process's pid into it */
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
    /* Else sched_getcpu() would return the CPU that the kernel noted there last for the old process. */
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
    if (move.number == TELLING) /* the old process was killed while it sent the pid; sending it twice does no harm */
        tell(raw(SYS_getpid));
    if (move.number != UNTOLD) /* else exit: the process that waits for the pid then sees the socket close */
        setcontext(&move.place);
    raw(SYS_exit_group, 1);
}

/* Ends the caller and lets the child go on. Returns only if the kernel makes no child: -errno. */
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
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all); /* setcontext() restores the mask in the child */
    raw(SYS_set_tid_address, NULL); /* else the caller's end would clear the child's thread id */
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
    getcontext(&move.place); /* the new process goes on here, too */
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
