/* The lines of a step's trace: who a process is at one moment, as the kernel says, written with one write(2).
 *
 * Owned here: nothing beyond a call. Many groups and wide masks lie in memory that forget() frees.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <grp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What a line of a trace is put together with: each returns where the text goes on. A step writes dozens of lines,
 * and printf(3) would be half of their price. */
static char *put_number(char *out, unsigned long long number)
{
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    while (count > 0)
        *out++ = digits[--count];
    return out;
}

static char *put_signed(char *out, long long number)
{
    if (number < 0)
        *out++ = '-';
    return put_number(out, number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number);
}

static char *put_hex(char *out, uint64_t number, int least)
{
    int digits = 1;
    while (digits < 16 && (digits < least || number >> (4 * digits) != 0))
        digits++;
    while (digits-- > 0)
        *out++ = "0123456789abcdef"[number >> (4 * digits) & 0xf];
    return out;
}

enum { FEW_GROUPS = 64, FEW_BYTES = 128, MOST_BYTES = 65536 };

/* Who a process is at one moment, in the kernel's words. */
struct who {
    uid_t ruid, euid;
    gid_t rgid, egid;
    uint64_t capabilities;
    int group_count;
    long mask_words;
    gid_t *groups;
    unsigned long *mask;
    gid_t few_groups[FEW_GROUPS];
    unsigned long narrow_mask[FEW_BYTES / sizeof(unsigned long)];
};

static void forget(struct who *who)
{
    if (who->groups != who->few_groups)
        free(who->groups);
    if (who->mask != who->narrow_mask)
        free(who->mask);
}

static int ask_groups(struct who *who)
{
    who->groups = who->few_groups;
    who->group_count = getgroups(FEW_GROUPS, who->few_groups);
    if (who->group_count >= 0 || errno != EINVAL)
        return who->group_count < 0 ? -1 : 0;
    int count = getgroups(0, NULL);
    if (count < 0 || (who->groups = calloc((size_t)count + 1, sizeof *who->groups)) == NULL)
        return -1;
    who->group_count = getgroups(count, who->groups);
    return who->group_count < 0 ? -1 : 0;
}

/* The kernel's mask may be wider than what is offered: ask with growing room, as sched_getaffinity(2) advises. */
static int ask_mask(struct who *who)
{
    who->mask = who->narrow_mask;
    for (size_t bytes = FEW_BYTES; bytes <= MOST_BYTES; bytes *= 2) {
        if (bytes > FEW_BYTES) {
            unsigned long *wider = realloc(who->mask == who->narrow_mask ? NULL : who->mask, bytes);
            if (wider == NULL)
                return -1;
            who->mask = wider;
        }
        long used = syscall(SYS_sched_getaffinity, 0, bytes, who->mask);
        if (used >= 0) {
            who->mask_words = used / (long)sizeof(long);
            return 0;
        }
        if (errno != EINVAL)
            return -1;
    }
    return -1;
}

/* Asks the kernel. 0, or -1 with errno; `forget` afterwards in both cases. */
static int ask(struct who *who)
{
    uid_t suid;
    gid_t sgid;
    uint64_t permitted, inheritable;
    who->groups = who->few_groups;
    who->mask = who->narrow_mask;
    if (getresuid(&who->ruid, &who->euid, &suid) != 0 || getresgid(&who->rgid, &who->egid, &sgid) != 0 ||
        capabilities_of(&who->capabilities, &permitted, &inheritable) != 0)
        return -1;
    return ask_groups(who) != 0 ? -1 : ask_mask(who);
}

/* How much room the members of `who` take at most. */
static size_t room_for(const struct who *who)
{
    return 256 + (size_t)who->group_count * 11 + (size_t)who->mask_words * 2 * sizeof(long);
}

static char *put_who(char *out, const struct who *who)
{
    out = put_number(stpcpy(out, "\"ruid\":"), who->ruid);
    out = put_number(stpcpy(out, ",\"euid\":"), who->euid);
    out = put_number(stpcpy(out, ",\"rgid\":"), who->rgid);
    out = put_number(stpcpy(out, ",\"egid\":"), who->egid);
    out = stpcpy(out, ",\"groups\":[");
    for (int i = 0; i < who->group_count; i++) {
        if (i > 0)
            *out++ = ',';
        out = put_number(out, who->groups[i]);
    }
    out = put_hex(stpcpy(out, "],\"caps\":\""), who->capabilities, 16);
    out = stpcpy(out, "\",\"affinity\":\"");
    long word = who->mask_words - 1; /* longs, and not bytes, so that big-endian machines agree */
    while (word > 0 && who->mask[word] == 0)
        word--;
    for (int least = 1; word >= 0; word--, least = 2 * (int)sizeof(long))
        out = put_hex(out, who->mask[word], least);
    return stpcpy(out, "\"");
}

PyDoc_STRVAR(identity_doc,
"identity() -> str\n\n"
"Who the caller is right now, as the inside of a JSON object: ruid, euid, rgid, egid, groups, caps (CapEff,\n"
"hex) and affinity (hex).");

static PyObject *identity(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    struct who who;
    PyObject *result = NULL;
    char *text = NULL;
    if (ask(&who) != 0)
        failed("identity");
    else if ((text = malloc(room_for(&who))) == NULL)
        PyErr_NoMemory();
    else
        result = PyUnicode_FromStringAndSize(text, put_who(text, &who) - text);
    free(text);
    forget(&who);
    return result;
}

PyDoc_STRVAR(write_row_doc,
"write_row(fd: int, started: int, facts: str, rc: str, note: str) -> bool\n\n"
"Writes one line of a step's trace with one write(2): {\"t\": started, facts, ruid, euid, rgid, egid, groups,\n"
"caps (CapEff, hex), affinity (hex), \"rc\": rc, \"us\": microseconds since started, note}. `facts` and `note` are\n"
"members of a JSON object in ASCII; started is CLOCK_MONOTONIC in nanoseconds. Identity and time are the kernel's\n"
"word at this moment. In C, because a step writes dozens. False when the line could not be written whole, and behind\n"
"16 MiB.");

/* Bytes of a trace, which lies in memory: hundreds of tasks of dozens of plugins write no more. All of a step's processes
 * write through one open file, whose offset is behind the line that any of them wrote last. */
enum { LONGEST_TRACE = 16 << 20 };

bool trace_line(int fd, long long started, const char *const facts[], const char *rc, const char *note)
{
    if (lseek(fd, 0, SEEK_CUR) >= LONGEST_TRACE)
        return false;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* Unsigned: `started` may be anything. */
    uint64_t since = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - (uint64_t)started;
    long long us = (long long)since / 1000;
    struct who who;
    char *line = NULL;
    bool whole = false;
    size_t room = strlen(rc) + strlen(note) + 128;
    for (size_t i = 0; facts[i] != NULL; i++)
        room += strlen(facts[i]);
    if (ask(&who) == 0)
        line = malloc(room_for(&who) + room);
    if (line != NULL) {
        char *out = put_signed(stpcpy(line, "{\"t\":"), started);
        *out++ = ',';
        for (size_t i = 0; facts[i] != NULL; i++)
            out = stpcpy(out, facts[i]);
        *out++ = ',';
        out = put_who(out, &who);
        out = stpcpy(stpcpy(out, ",\"rc\":"), rc);
        out = put_signed(stpcpy(out, ",\"us\":"), us);
        if (note[0] != '\0')
            out = stpcpy(stpcpy(out, ","), note);
        out = stpcpy(out, "}\n");
        whole = write(fd, line, (size_t)(out - line)) == out - line;
    }
    free(line);
    forget(&who);
    return whole;
}

static PyObject *write_row(PyObject *self, PyObject *args)
{
    (void)self;
    int fd;
    long long started;
    const char *facts[2] = {NULL}, *rc, *note;
    if (!PyArg_ParseTuple(args, "iLsss", &fd, &started, &facts[0], &rc, &note))
        return NULL;
    return PyBool_FromLong(trace_line(fd, started, facts, rc, note));
}

PyMethodDef trace_methods[] = {
    {"identity", identity, METH_NOARGS, identity_doc},
    {"write_row", write_row, METH_VARARGS, write_row_doc},
    {NULL, NULL, 0, NULL},
};
