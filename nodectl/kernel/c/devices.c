/* Decides which devices the processes of a cgroup may open, by a program with a few instructions per rule: bpf(2).
 *
 * cgroup v2 has no files for devices. The kernel asks the programs of type cgroup/dev of a cgroup and of all above it,
 * and allows a device only if all of them do: kernel cgroup-v2, "Device controller". This file assembles the
 * instructions; linux/bpf.h and the kernel's instruction-set.rst explain them.
 *
 * Owned here: nothing beyond a call. The cgroup holds the program that is attached to it, and frees it. The fence around
 * login sessions is a program known by its name.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OF_USERS = 5, PER_USER = 3, PROLOGUE = 4, PER_RULE = 5, END = 2, MOST_PROGRAMS = 64 };
static const char FENCE[] = "nodectl_fence";

static const struct bpf_insn ends = {.code = BPF_JMP | BPF_EXIT};

static struct bpf_insn load(unsigned to, size_t member)
{
    return (struct bpf_insn){
        .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = to & 0xf, .src_reg = BPF_REG_1, .off = (int16_t)member};
}

static struct bpf_insn skip_unless(unsigned register_, int value, size_t instructions)
{
    return (struct bpf_insn){
        .code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = register_ & 0xf, .off = (int16_t)instructions, .imm = value};
}

static struct bpf_insn answer(int allowed)
{
    return (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = allowed};
}

/* Appends one rule: each comparison that fails skips the rest of the rule. */
static struct bpf_insn *put_rule(struct bpf_insn *at, int kind, int major, int minor, int allowed)
{
    size_t left = 2 + (major >= 0) + (minor >= 0);
    *at++ = skip_unless(BPF_REG_2, kind, left--);
    if (major >= 0)
        *at++ = skip_unless(BPF_REG_3, major, left--);
    if (minor >= 0)
        *at++ = skip_unless(BPF_REG_4, minor, left--);
    *at++ = answer(allowed);
    *at++ = ends;
    return at;
}

static struct bpf_insn move(unsigned to, unsigned from)
{
    return (struct bpf_insn){
        .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = to & 0xf, .src_reg = from & 0xf};
}

static struct bpf_insn shift(unsigned direction)
{
    return (struct bpf_insn){.code = (uint8_t)(BPF_ALU64 | direction | BPF_K), .dst_reg = BPF_REG_0, .imm = 32};
}

/* Allows everything to these users, by the real uid of the process in whatever user namespace: a set-user-ID program is
 * still its caller's. Returns NULL with an exception set for what is no uid. */
static struct bpf_insn *put_free_users(struct bpf_insn *at, PyObject *uids)
{
    *at++ = move(BPF_REG_6, BPF_REG_1);
    *at++ = (struct bpf_insn){.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_uid_gid};
    *at++ = shift(BPF_LSH); /* the lower half is the uid; its sign is extended as that of a constant is */
    *at++ = shift(BPF_ARSH);
    for (Py_ssize_t i = 0; i < PySequence_Size(uids); i++) {
        PyObject *item = PySequence_GetItem(uids, i);
        unsigned long uid = item == NULL ? 0 : PyLong_AsUnsignedLong(item);
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return NULL;
        if (uid > UINT32_MAX) {
            PyErr_SetString(PyExc_OverflowError, "no uid");
            return NULL;
        }
        *at++ = skip_unless(BPF_REG_0, (int)(uint32_t)uid, 2);
        *at++ = answer(1);
        *at++ = ends;
    }
    *at++ = move(BPF_REG_1, BPF_REG_6);
    return at;
}

/* Writes the program of a sequence of rules. Returns the program's end, or NULL with an exception set. */
static struct bpf_insn *assemble(struct bpf_insn *at, PyObject *rules)
{
    int otherwise = 1;
    *at++ = load(BPF_REG_2, offsetof(struct bpf_cgroup_dev_ctx, access_type));
    *at++ = (struct bpf_insn){.code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = BPF_REG_2, .imm = 0xffff};
    *at++ = load(BPF_REG_3, offsetof(struct bpf_cgroup_dev_ctx, major));
    *at++ = load(BPF_REG_4, offsetof(struct bpf_cgroup_dev_ctx, minor));
    for (Py_ssize_t i = 0; i < PySequence_Size(rules); i++) {
        int kind, major, minor, allowed;
        PyObject *rule = PySequence_GetItem(rules, i);
        PyObject *row = rule == NULL ? NULL : PySequence_Tuple(rule);
        int parsed = row != NULL && PyArg_ParseTuple(row, "iiii", &kind, &major, &minor, &allowed);
        Py_XDECREF(row);
        Py_XDECREF(rule);
        if (!parsed)
            return NULL;
        if (kind == 0) { /* fits all, so stop: the kernel refuses a program with unreachable instructions */
            otherwise = allowed;
            break;
        }
        at = put_rule(at, kind, major, minor, allowed);
    }
    *at++ = answer(otherwise);
    *at++ = ends;
    return at;
}

static int bpf(int command, union bpf_attr *arguments)
{
    return (int)syscall(SYS_bpf, command, arguments, sizeof *arguments);
}

static int attach(int cgroup, int program)
{
    union bpf_attr arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.target_fd = (unsigned)cgroup;
    arguments.attach_bpf_fd = (unsigned)program;
    arguments.attach_type = BPF_CGROUP_DEVICE;
    arguments.attach_flags = BPF_F_ALLOW_MULTI;
    return bpf(BPF_PROG_ATTACH, &arguments);
}

/* Loads the program of these rules, which do not concern the users `free` (NULL: none). Returns its descriptor, or -1
 * with an exception set. */
static int load_program(PyObject *rules, const char *name, PyObject *free)
{
    Py_ssize_t count = PySequence_Size(rules), users = free == NULL ? 0 : PySequence_Size(free);
    if (count < 0 || users < 0)
        return -1;
    size_t most = OF_USERS + PER_USER * (size_t)users + PROLOGUE + PER_RULE * (size_t)count + END;
    struct bpf_insn *program = PyMem_Calloc(most, sizeof *program);
    if (program == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    struct bpf_insn *at = free == NULL ? program : put_free_users(program, free);
    struct bpf_insn *end = at == NULL ? NULL : assemble(at, rules);
    if (end == NULL) {
        PyMem_Free(program);
        return -1;
    }
    union bpf_attr arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    arguments.insns = (uintptr_t)program;
    arguments.insn_cnt = (unsigned)(end - program);
    arguments.license = (uintptr_t) "MIT";
    memcpy(arguments.prog_name, name, strlen(name));
    int loaded = bpf(BPF_PROG_LOAD, &arguments);
    int saved = errno;
    PyMem_Free(program);
    errno = saved;
    if (loaded < 0)
        failed("BPF_PROG_LOAD");
    return loaded;
}

PyDoc_STRVAR(constrain_devices_doc,
"constrain_devices(cgroup_fd: int, rules: Sequence[Sequence[int]]) -> None\n\n"
"Attaches to the cgroup that cgroup_fd stands for a program that decides which devices may be opened or made in it and\n"
"below, beside the programs that are there: bpf(2), BPF_PROG_TYPE_CGROUP_DEVICE, Linux 4.15. It goes with the cgroup.\n"
"A rule is (kind, major, minor, allowed): kind is 1 for a block device, 2 for a character device, 0 for everything,\n"
"which is the last rule; major and minor are -1 for any. The first rule that fits counts; what none fits is allowed.\n"
"Raises OSError: of BPF_PROG_LOAD where the kernel or our capabilities do not suffice, then of BPF_PROG_ATTACH.");

static PyObject *constrain_devices(PyObject *self, PyObject *args)
{
    (void)self;
    int cgroup;
    PyObject *rules;
    if (!PyArg_ParseTuple(args, "iO", &cgroup, &rules))
        return NULL;
    int loaded = load_program(rules, "nodectl_devices", NULL);
    if (loaded < 0)
        return NULL;
    int attached = attach(cgroup, loaded);
    shut(loaded); /* the cgroup holds it now */
    return none_or_failed(attached, "BPF_PROG_ATTACH");
}

static int info_of(int program, struct bpf_prog_info *info)
{
    union bpf_attr arguments;
    memset(&arguments, 0, sizeof arguments);
    memset(info, 0, sizeof *info);
    arguments.info.bpf_fd = (unsigned)program;
    arguments.info.info_len = sizeof *info;
    arguments.info.info = (uintptr_t)info;
    return bpf(BPF_OBJ_GET_INFO_BY_FD, &arguments);
}

/* Returns a descriptor of the program with this id where it is a fence; else -1, with ENOENT where it is none. */
static int open_fence(unsigned id, struct bpf_prog_info *info)
{
    union bpf_attr arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.prog_id = id;
    int program = bpf(BPF_PROG_GET_FD_BY_ID, &arguments);
    if (program < 0)
        return -1;
    int is_known = info_of(program, info) == 0;
    if (is_known && strcmp(info->name, FENCE) == 0)
        return program;
    shut(program);
    if (is_known)
        errno = ENOENT;
    return -1;
}

static int detach(int cgroup, int program)
{
    union bpf_attr arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.target_fd = (unsigned)cgroup;
    arguments.attach_bpf_fd = (unsigned)program;
    arguments.attach_type = BPF_CGROUP_DEVICE;
    return bpf(BPF_PROG_DETACH, &arguments);
}

/* Writes the ids of the cgroup's own device programs. Returns their number, or -1 with errno set. */
static int programs_of(int cgroup, unsigned *ids)
{
    union bpf_attr arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.query.target_fd = (unsigned)cgroup;
    arguments.query.attach_type = BPF_CGROUP_DEVICE;
    arguments.query.prog_ids = (uintptr_t)ids;
    arguments.query.prog_cnt = ids == NULL ? 0 : MOST_PROGRAMS;
    return bpf(BPF_PROG_QUERY, &arguments) == 0 ? (int)arguments.query.prog_cnt : -1;
}

/* Attaches `wanted` unless a program with the same instructions is there, then detaches all other fences, so that a
 * device is denied at every moment. Returns -1 with an exception set. */
static int renew_fence(int cgroup, int wanted)
{
    struct bpf_prog_info new, old;
    unsigned ids[MOST_PROGRAMS];
    int there = 0, count = programs_of(cgroup, ids);
    if (count < 0 || (wanted >= 0 && info_of(wanted, &new) != 0)) {
        failed("BPF_PROG_QUERY");
        return -1;
    }
    int fences[MOST_PROGRAMS], many = 0, result = 0;
    for (int i = 0; i < count && result == 0; i++) {
        int program = open_fence(ids[i], &old);
        if (program < 0) {
            if (errno != ENOENT) { /* it may be a fence: no further one beside it */
                failed("BPF_PROG_GET_FD_BY_ID");
                result = -1;
            }
        } else if (wanted >= 0 && !there && memcmp(old.tag, new.tag, sizeof old.tag) == 0) {
            there = 1;
            shut(program);
        } else
            fences[many++] = program;
    }
    if (result == 0 && wanted >= 0 && !there && (result = attach(cgroup, wanted)) != 0)
        failed("BPF_PROG_ATTACH");
    for (int i = 0; i < many; i++) {
        if (result == 0 && detach(cgroup, fences[i]) != 0 && errno != ENOENT) {
            failed("BPF_PROG_DETACH");
            result = -1;
        }
        shut(fences[i]);
    }
    return result;
}

PyDoc_STRVAR(fence_devices_doc,
"fence_devices(cgroup_fd: int, rules: Sequence[Sequence[int]], free: Sequence[int]) -> None\n\n"
"Has the cgroup that cgroup_fd stands for decide by these rules, as constrain_devices does, which devices all users but\n"
"those with the uids `free` may open or make in it and below. The program stays when this process ends. It takes the\n"
"place of the one of an earlier call; without rules there is none. Programs of others stay. Raises OSError.");

static PyObject *fence_devices(PyObject *self, PyObject *args)
{
    (void)self;
    int cgroup;
    PyObject *rules, *free;
    if (!PyArg_ParseTuple(args, "iOO", &cgroup, &rules, &free))
        return NULL;
    int wanted = -1, is_wanted = PyObject_IsTrue(rules);
    if (is_wanted < 0 || (is_wanted && (wanted = load_program(rules, FENCE, free)) < 0))
        return NULL;
    int result = renew_fence(cgroup, wanted);
    if (wanted >= 0)
        shut(wanted);
    if (result != 0)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(device_programs_doc,
"device_programs(cgroup_fd: int) -> int\n\n"
"How many programs that decide about devices are attached to the cgroup itself: BPF_PROG_QUERY. Raises OSError.");

static PyObject *device_programs(PyObject *self, PyObject *arg)
{
    (void)self;
    int cgroup;
    if (!PyArg_Parse(arg, "i", &cgroup))
        return NULL;
    int count = programs_of(cgroup, NULL);
    if (count < 0)
        return failed("BPF_PROG_QUERY");
    return PyLong_FromLong(count);
}

PyDoc_STRVAR(opened_device_doc,
"opened_device(path: str) -> tuple[int, int, int] | None\n\n"
"Kind, major and minor of the device behind a path, as in a rule; None for another file: statx(2), which asks no server\n"
"and no FUSE daemon of the file, AT_STATX_DONT_SYNC. Raises OSError.");

static PyObject *opened_device(PyObject *self, PyObject *arg)
{
    (void)self;
    const char *path;
    struct statx status;
    if (!PyArg_Parse(arg, "s", &path))
        return NULL;
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE, &status) != 0)
        return failed("statx");
    if (!S_ISBLK(status.stx_mode) && !S_ISCHR(status.stx_mode))
        Py_RETURN_NONE;
    return Py_BuildValue("(iII)", S_ISBLK(status.stx_mode) ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR,
                         status.stx_rdev_major, status.stx_rdev_minor);
}

PyMethodDef devices_methods[] = {
    {"constrain_devices", constrain_devices, METH_VARARGS, constrain_devices_doc},
    {"fence_devices", fence_devices, METH_VARARGS, fence_devices_doc},
    {"opened_device", opened_device, METH_O, opened_device_doc},
    {"device_programs", device_programs, METH_O, device_programs_doc},
    {NULL, NULL, 0, NULL},
};
