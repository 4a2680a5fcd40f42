/* The rights of a process, and what this kernel supports: capabilities(7), seccomp(2), landlock(7), keys. A task gives
 * up its rights for good in operation_confine.c.
 *
 * Owned here: nothing.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* landlock(7), Linux 5.13; the number is the same on every machine, and older headers lack it. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif
enum { TELL_VERSION = 1 };

int capabilities_of(uint64_t *effective, uint64_t *permitted, uint64_t *inheritable)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0)
        return -1;
    *effective = (uint64_t)data[1].effective << 32 | data[0].effective;
    *permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted;
    *inheritable = (uint64_t)data[1].inheritable << 32 | data[0].inheritable;
    return 0;
}

PyDoc_STRVAR(capabilities_doc,
"capabilities() -> tuple[int, int, int]\n\n"
"Effective, permitted and inheritable capabilities of the caller as bit masks: capget(2).");

static PyObject *capabilities(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    uint64_t effective, permitted, inheritable;
    if (capabilities_of(&effective, &permitted, &inheritable) != 0)
        return failed("capget");
    return Py_BuildValue("KKK", (unsigned long long)effective, (unsigned long long)permitted,
                         (unsigned long long)inheritable);
}

PyDoc_STRVAR(seccomp_doc,
"seccomp(program: bytes) -> None\n\n"
"From now on the kernel puts every system call of the caller, and of all that it becomes or starts, to this filter of\n"
"classic BPF: seccomp(2). The caller has no_new_privs set, or CAP_SYS_ADMIN. Speculation is left as it is.\n"
"Raises OSError: EINVAL for what is no program, ENOSYS or EINVAL where the kernel has no filters.");

static PyObject *seccomp_(PyObject *self, PyObject *arg)
{
    (void)self;
    char *code;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(arg, &code, &size) != 0)
        return NULL;
    struct sock_fprog program = {
        .len = (unsigned short)(size / (Py_ssize_t)sizeof(struct sock_filter)),
        .filter = (struct sock_filter *)code,
    };
    if (program.len * (Py_ssize_t)sizeof(struct sock_filter) != size) {
        errno = EINVAL;
        return failed("seccomp");
    }
    const unsigned flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    return none_or_failed(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program), "seccomp");
}

PyDoc_STRVAR(new_session_keyring_doc,
"new_session_keyring() -> None\n\n"
"The caller, and what it starts, has a session keyring(7) of its own, and in it nothing of the one that it came with.\n"
"Raises OSError: ENOSYS where the kernel has no keys, EPERM where a container denies them.");

static PyObject *new_session_keyring(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
        return failed("keyctl");
    Py_RETURN_NONE;
}

PyDoc_STRVAR(landlock_abi_doc,
"landlock_abi() -> int\n\n"
"The version of Landlock that this kernel has, 0 where it has none or has not enabled it: landlock_create_ruleset(2).");

static PyObject *landlock_abi(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, TELL_VERSION);
    return PyLong_FromLong(version < 0 ? 0 : version);
}

PyMethodDef confine_methods[] = {
    {"capabilities", capabilities, METH_NOARGS, capabilities_doc},
    {"seccomp", seccomp_, METH_O, seccomp_doc},
    {"new_session_keyring", new_session_keyring, METH_NOARGS, new_session_keyring_doc},
    {"landlock_abi", landlock_abi, METH_NOARGS, landlock_abi_doc},
    {NULL, NULL, 0, NULL},
};
