/* Decides which devices the processes of a cgroup may open, by a program with a few instructions per rule: bpf(2).
 *
 * cgroup v2 has no files for devices. The kernel asks the programs of type cgroup/dev of a cgroup and of all above it,
 * and allows a device only if all of them do: kernel cgroup-v2, "Device controller". This file assembles the
 * instructions; linux/bpf.h and the kernel's instruction-set.rst explain them.
 *
 * Owned here: nothing beyond a call. The cgroup holds the program that is attached to it, and frees it.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROLOGUE = 4, PER_RULE = 5, END = 2 };

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
    Py_ssize_t count = PySequence_Size(rules);
    if (count < 0)
        return NULL;
    struct bpf_insn *program = PyMem_Calloc(PROLOGUE + PER_RULE * (size_t)count + END, sizeof *program);
    if (program == NULL)
        return PyErr_NoMemory();
    struct bpf_insn *end = assemble(program, rules);
    if (end == NULL) {
        PyMem_Free(program);
        return NULL;
    }
    union bpf_attr arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    arguments.insns = (uintptr_t)program;
    arguments.insn_cnt = (unsigned)(end - program);
    arguments.license = (uintptr_t) "MIT";
    memcpy(arguments.prog_name, "nodectl_devices", sizeof "nodectl_devices");
    int loaded = bpf(BPF_PROG_LOAD, &arguments);
    int saved = errno;
    PyMem_Free(program);
    errno = saved;
    if (loaded < 0)
        return failed("BPF_PROG_LOAD");
    int attached = attach(cgroup, loaded);
    shut(loaded); /* the cgroup holds it now */
    return none_or_failed(attached, "BPF_PROG_ATTACH");
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
    union bpf_attr arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.query.target_fd = (unsigned)cgroup;
    arguments.query.attach_type = BPF_CGROUP_DEVICE;
    if (bpf(BPF_PROG_QUERY, &arguments) != 0)
        return failed("BPF_PROG_QUERY");
    return PyLong_FromUnsignedLong(arguments.query.prog_cnt);
}

PyMethodDef devices_methods[] = {
    {"constrain_devices", constrain_devices, METH_VARARGS, constrain_devices_doc},
    {"device_programs", device_programs, METH_O, device_programs_doc},
    {NULL, NULL, 0, NULL},
};
