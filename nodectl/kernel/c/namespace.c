/* nodectl.kernel._namespace: the system calls of job containers: namespaces, mounts, and safe walks along paths.
 *
 * Separate from _kernel, so that a node without containers need not map it. Mounts are made with descriptors
 * (open_tree(2), move_mount(2), mount_setattr(2): Linux 5.12), so that no path can change between its check and its
 * use. Every function raises a plain OSError, "<reason> (<call>)".
 *
 * Owned here: nothing. Descriptors of mounts and files belong to the caller.
 */
#define _GNU_SOURCE
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* From uapi/linux/mount.h, which on some systems cannot be included together with sys/mount.h. */
enum {
    TREE_CLONE = 1, TREE_CLOEXEC = O_CLOEXEC, MOVE_FROM_EMPTY = 0x4, MOVE_TO_EMPTY = 0x40,
    FS_OPEN_CLOEXEC = 1, FS_MOUNT_CLOEXEC = 1, SET_FLAG = 0, SET_STRING = 1, CREATE = 6,
    ATTR_RDONLY = 0x1, ATTR_NOSUID = 0x2, ATTR_NODEV = 0x4, ATTR_NOEXEC = 0x8, ATTR_IDMAP = 0x100000,
    RECURSIVE = 0x8000, EMPTY_PATH = 0x1000,
};

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

struct attributes {
    uint64_t set, clear, propagation, userns_fd;
};

PyDoc_STRVAR(openat2_doc,
"openat2(directory: int, path: str, flags: int, resolve: int) -> int\n\n"
"openat2(2), Linux 5.6: opens what exists, closed at an exec; resolve is RESOLVE_*. Raises OSError: ELOOP for a link,\n"
"EXDEV for a way that leaves the directory.");

static PyObject *openat2_(PyObject *self, PyObject *args)
{
    (void)self;
    int directory;
    PyObject *path;
    unsigned long long flags, resolve;
    if (!PyArg_ParseTuple(args, "iO&KK", &directory, PyUnicode_FSConverter, &path, &flags, &resolve))
        return NULL;
    return opened(directory, path, flags, 0, resolve);
}

PyDoc_STRVAR(unshare_doc,
"unshare(kinds: int) -> None\n\n"
"New namespaces for the caller, or for its children to come: unshare(2). The caller has one thread.");

static PyObject *unshare_(PyObject *self, PyObject *arg)
{
    (void)self;
    int kinds;
    if (!PyArg_Parse(arg, "i", &kinds))
        return NULL;
    return none_or_failed(unshare(kinds), "unshare");
}

PyDoc_STRVAR(setns_doc,
"setns(fd: int) -> None\n\n"
"The caller enters the namespace that fd stands for: setns(2). The caller has one thread.");

static PyObject *setns_(PyObject *self, PyObject *arg)
{
    (void)self;
    int fd;
    if (!PyArg_Parse(arg, "i", &fd))
        return NULL;
    return none_or_failed(setns(fd, 0), "setns");
}

PyDoc_STRVAR(clone_mount_doc,
"clone_mount(fd: int) -> int\n\n"
"A descriptor of a new mount that shows what fd stands for, a directory or a file (also a namespace), and is in no\n"
"tree yet: open_tree(2).");

static PyObject *clone_mount(PyObject *self, PyObject *arg)
{
    (void)self;
    int fd;
    if (!PyArg_Parse(arg, "i", &fd))
        return NULL;
    unsigned flags = TREE_CLONE | TREE_CLOEXEC | EMPTY_PATH;
    return number_or_failed(syscall(SYS_open_tree, fd, "", flags), "open_tree");
}

static bool configure(int fs, PyObject *options)
{
    for (Py_ssize_t i = 0; i < PyList_Size(options); i++) {
        const char *name, *value;
        if (!PyArg_ParseTuple(PyList_GetItem(options, i), "ss", &name, &value))
            return false;
        if (syscall(SYS_fsconfig, fs, SET_STRING, name, value, 0) != 0) {
            failed("fsconfig");
            return false;
        }
    }
    if (syscall(SYS_fsconfig, fs, CREATE, NULL, NULL, 0) == 0)
        return true;
    failed("fsconfig");
    return false;
}

PyDoc_STRVAR(new_mount_doc,
"new_mount(type: str, options: list[tuple[str, str]], attributes: int) -> int\n\n"
"A descriptor of a new file system that is in no tree yet: fsopen(2), fsmount(2). attributes are MOUNT_ATTR_*.");

static PyObject *new_mount(PyObject *self, PyObject *args)
{
    (void)self;
    const char *type;
    PyObject *options;
    unsigned attributes;
    if (!PyArg_ParseTuple(args, "sOI", &type, &options, &attributes))
        return NULL;
    long fs = syscall(SYS_fsopen, type, FS_OPEN_CLOEXEC);
    if (fs < 0)
        return failed("fsopen");
    PyObject *result = NULL;
    if (configure((int)fs, options))
        result = number_or_failed(syscall(SYS_fsmount, (int)fs, FS_MOUNT_CLOEXEC, attributes), "fsmount");
    close((int)fs);
    return result;
}

PyDoc_STRVAR(move_mount_doc,
"move_mount(mount: int, place: int) -> None\n\n"
"Puts the mount over what the descriptor `place` stands for: move_mount(2).");

static PyObject *move_mount_(PyObject *self, PyObject *args)
{
    (void)self;
    int mount, place;
    if (!PyArg_ParseTuple(args, "ii", &mount, &place))
        return NULL;
    return none_or_failed(syscall(SYS_move_mount, mount, "", place, "", MOVE_FROM_EMPTY | MOVE_TO_EMPTY), "move_mount");
}

PyDoc_STRVAR(set_mount_doc,
"set_mount(mount: int, attributes: int, propagation: int, recursive: bool, users: int = -1) -> None\n\n"
"Adds attributes (MOUNT_ATTR_*) to a mount and sets its propagation (MS_*, 0: as it is), with all below it if\n"
"recursive: mount_setattr(2), Linux 5.12. users: the user namespace that MOUNT_ATTR_IDMAP takes.");

static PyObject *set_mount(PyObject *self, PyObject *args)
{
    (void)self;
    int mount, recursive, users = -1;
    unsigned long long set, propagation;
    if (!PyArg_ParseTuple(args, "iKKp|i", &mount, &set, &propagation, &recursive, &users))
        return NULL;
    struct attributes wanted = {.set = set, .propagation = propagation, .userns_fd = users < 0 ? 0 : (uint64_t)users};
    unsigned flags = EMPTY_PATH | (recursive ? RECURSIVE : 0U);
    return none_or_failed(syscall(SYS_mount_setattr, mount, "", flags, &wanted, sizeof wanted), "mount_setattr");
}

PyDoc_STRVAR(detach_doc,
"detach(path: str) -> None\n\n"
"Takes the topmost mount at path out of the tree, with all below it, even in use: umount2(2), MNT_DETACH. A link\n"
"at the end of path is not followed. Raises OSError: EINVAL when there is no mount.");

static PyObject *detach(PyObject *self, PyObject *arg)
{
    (void)self;
    PyObject *path;
    if (!PyUnicode_FSConverter(arg, &path))
        return NULL;
    long result = umount2(PyBytes_AsString(path), MNT_DETACH | UMOUNT_NOFOLLOW);
    release(path);
    return none_or_failed(result, "umount2");
}

PyDoc_STRVAR(raise_loopback_doc,
"raise_loopback() -> None\n\n"
"Brings up lo of the caller's network namespace; the kernel gives it 127.0.0.1 and ::1: netdevice(7).");

static PyObject *raise_loopback(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    struct ifreq request = {.ifr_name = "lo"};
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sock < 0)
        return failed("socket");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    int result = ioctl(sock, SIOCSIFFLAGS, &request);
    shut(sock);
    return none_or_failed(result, "ioctl SIOCSIFFLAGS");
}

PyDoc_STRVAR(set_hostname_doc,
"set_hostname(name: str) -> None\n\n"
"The host's name in the caller's uts namespace: sethostname(2).");

static PyObject *set_hostname(PyObject *self, PyObject *args)
{
    (void)self;
    const char *name;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "s#", &name, &length))
        return NULL;
    return none_or_failed(sethostname(name, (size_t)length), "sethostname");
}

PyDoc_STRVAR(fork_aside_doc,
"fork_aside(kinds: int, cgroup_fd: int) -> int\n\n"
"fork(2) with the child in new namespaces (CLONE_NEW*), born in the cgroup that the descriptor stands for (-1: the\n"
"caller's). It is no child of the caller's but of the caller's parent: who waits for children does not meet it.\n"
"Returns its pid, 0 in the child. Raises OSError. The caller has one thread.");

static PyObject *fork_aside(PyObject *self, PyObject *arguments)
{
    (void)self;
    unsigned long long kinds;
    int cgroup;
    if (!PyArg_ParseTuple(arguments, "Ki", &kinds, &cgroup))
        return NULL;
    return number_or_failed(fork_with(kinds | CLONE_PARENT, cgroup), "clone3");
}

PyDoc_STRVAR(reap_doc,
"reap() -> NoReturn\n\n"
"The life of a pid namespace's first process: collects every process that ends there, until it is killed from outside. Every\n"
"signal that it could be sent from inside is ignored by the kernel: pid_namespaces(7).");

static __attribute__((noreturn)) PyObject *reap(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    signal(SIGCHLD, SIG_DFL); /* an ignored signal is never pending */
    sigprocmask(SIG_SETMASK, &children, NULL);
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        sigwaitinfo(&children, NULL);
    }
}

static PyMethodDef methods[] = {
    {"openat2", openat2_, METH_VARARGS, openat2_doc},
    {"unshare", unshare_, METH_O, unshare_doc},
    {"setns", setns_, METH_O, setns_doc},
    {"clone_mount", clone_mount, METH_O, clone_mount_doc},
    {"new_mount", new_mount, METH_VARARGS, new_mount_doc},
    {"move_mount", move_mount_, METH_VARARGS, move_mount_doc},
    {"set_mount", set_mount, METH_VARARGS, set_mount_doc},
    {"detach", detach, METH_O, detach_doc},
    {"raise_loopback", raise_loopback, METH_NOARGS, raise_loopback_doc},
    {"set_hostname", set_hostname, METH_VARARGS, set_hostname_doc},
    {"fork_aside", fork_aside, METH_VARARGS, fork_aside_doc},
    {"reap", reap, METH_NOARGS, reap_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_namespace", "System calls of job containers.", -1, methods, NULL, NULL, NULL, NULL,
};

static const struct {
    const char *name;
    long value;
} constants[] = {
    {"CLONE_NEWNS", CLONE_NEWNS},           {"CLONE_NEWPID", CLONE_NEWPID},
    {"CLONE_NEWIPC", CLONE_NEWIPC},         {"CLONE_NEWUTS", CLONE_NEWUTS},
    {"CLONE_NEWNET", CLONE_NEWNET},         {"CLONE_NEWCGROUP", CLONE_NEWCGROUP},
    {"CLONE_NEWTIME", CLONE_NEWTIME},       {"CLONE_NEWUSER", CLONE_NEWUSER},
    {"MS_PRIVATE", MS_PRIVATE},             {"MS_SLAVE", MS_SLAVE},
    {"MS_SHARED", MS_SHARED},               {"MOUNT_ATTR_RDONLY", ATTR_RDONLY},
    {"MOUNT_ATTR_NOSUID", ATTR_NOSUID},     {"MOUNT_ATTR_NODEV", ATTR_NODEV},
    {"MOUNT_ATTR_NOEXEC", ATTR_NOEXEC},     {"MOUNT_ATTR_IDMAP", ATTR_IDMAP},
    {"RESOLVE_BENEATH", RESOLVE_BENEATH},
    {"RESOLVE_IN_ROOT", RESOLVE_IN_ROOT},   {"RESOLVE_NO_SYMLINKS", RESOLVE_NO_SYMLINKS},
    {"RESOLVE_NO_MAGICLINKS", RESOLVE_NO_MAGICLINKS}, {"RESOLVE_NO_XDEV", RESOLVE_NO_XDEV},
};

PyMODINIT_FUNC PyInit__namespace(void)
{
    PyObject *made = PyModule_Create(&module);
    for (size_t i = 0; made != NULL && i < sizeof constants / sizeof *constants; i++)
        if (PyModule_AddIntConstant(made, constants[i].name, constants[i].value) != 0)
            Py_CLEAR(made);
    return made;
}
