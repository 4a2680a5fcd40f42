/* Writes lines of a step's trace: a process's identity at one moment, as the kernel reports it, in one write(2).
 *
 * Owned here: nothing beyond a call. trace_line_in and the functions that it calls write only to the given room.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include "raw.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* These functions put a line together; each returns the end of what it wrote. A step writes dozens of lines, and
 * printf(3) would make up half of their cost. */
char *put_number(char *out, unsigned long long number)
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

char *put_hex(char *out, uint64_t number, int least)
{
    int digits = 1;
    while (digits < 16 && (digits < least || number >> (4 * digits) != 0))
        digits++;
    while (digits-- > 0)
        *out++ = "0123456789abcdef"[number >> (4 * digits) & 0xf];
    return out;
}

/* A process's identity at one moment, as the kernel reports it. */
struct who {
    uid_t ruid, euid;
    gid_t rgid, egid;
    uint64_t capabilities;
    long group_count, mask_words;
    gid_t *groups;
    unsigned long *mask;
};

/* Bytes that groups, mask and line take together at most, and that nearly always suffice; sizes of the mask; the most
 * that the other members of a line take. */
enum { MOST_ROOM = 2 << 20, FEW_ROOM = 6144, LEAST_MASK = 128, MOST_MASK = 65536, PLAIN_MEMBERS = 256 };

/* Asks the kernel for the caller's identity. Returns the beginning of the unused rest of the room; NULL if the room is
 * too small or the kernel does not answer. */
static char *ask(struct who *who, char *room, const char *end)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    uid_t suid;
    gid_t sgid;
    if (raw(SYS_getresuid, &who->ruid, &who->euid, &suid) != 0 || raw(SYS_getresgid, &who->rgid, &who->egid, &sgid) != 0 ||
        raw(SYS_capget, &header, data) != 0)
        return NULL;
    who->capabilities = (uint64_t)data[1].effective << 32 | data[0].effective;
    room += -(uintptr_t)room % sizeof(long);
    who->groups = (gid_t *)(void *)room;
    who->group_count = raw(SYS_getgroups, (end - room) / (long)sizeof(gid_t), who->groups);
    if (who->group_count < 0)
        return NULL;
    room += (size_t)who->group_count * sizeof(gid_t);
    room += -(uintptr_t)room % sizeof(long);
    who->mask = (unsigned long *)(void *)room;
    /* The kernel's mask may be wider than the room: ask again with more, as sched_getaffinity(2) advises. */
    for (long bytes = LEAST_MASK; bytes <= MOST_MASK && bytes <= end - room; bytes *= 2) {
        long used = raw(SYS_sched_getaffinity, 0, bytes, who->mask);
        if (used >= 0) {
            who->mask_words = used / (long)sizeof(long);
            return room + used;
        }
        if (used != -EINVAL)
            return NULL;
    }
    return NULL;
}

/* The most bytes that the members of `who` take. */
static size_t room_for(const struct who *who)
{
    return PLAIN_MEMBERS + (size_t)who->group_count * 11 + (size_t)who->mask_words * 2 * sizeof(long);
}

static char *put_who(char *out, const struct who *who)
{
    out = put_number(stpcpy(out, "\"ruid\":"), who->ruid);
    out = put_number(stpcpy(out, ",\"euid\":"), who->euid);
    out = put_number(stpcpy(out, ",\"rgid\":"), who->rgid);
    out = put_number(stpcpy(out, ",\"egid\":"), who->egid);
    out = stpcpy(out, ",\"groups\":[");
    for (long i = 0; i < who->group_count; i++) {
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
    char *room = malloc(MOST_ROOM);
    if (room == NULL)
        return PyErr_NoMemory();
    char *text = ask(&who, room, room + MOST_ROOM);
    if (text == NULL || room_for(&who) > (size_t)(room + MOST_ROOM - text)) {
        errno = EINVAL;
        failed("identity");
    } else {
        result = PyUnicode_FromStringAndSize(text, put_who(text, &who) - text);
    }
    free(room);
    return result;
}

PyDoc_STRVAR(write_row_doc,
"write_row(fd: int, started: int, facts: str, rc: str, note: str) -> bool\n\n"
"Writes one line of a step's trace with one write(2): {\"t\": started, facts, ruid, euid, rgid, egid, groups,\n"
"caps (CapEff, hex), affinity (hex), \"rc\": rc, \"us\": microseconds since started, note}. `facts` and `note` are\n"
"members of a JSON object in ASCII; started is CLOCK_MONOTONIC in nanoseconds. Identity and time are the kernel's\n"
"word at this moment. In C, because a step writes dozens. False when the line could not be written whole, and when\n"
"the trace has no room for it.");

/* The most bytes of a trace, which lies in memory. The stepd sets its step's limit, and its children inherit it. All
 * processes of a step share one open file, whose offset is the end of the line that was written last. */
enum { LONGEST_TRACE = 16 << 20 };
static long long trace_room = LONGEST_TRACE;

long long monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* As trace_line, but uses only the given room, so that a process that shares its memory may call it. Returns 1; 0 if
 * the line could not be written whole, -1 if the room is too small. */
int trace_line_in(char *room, size_t size, int fd, long long started, const char *const facts[], const char *rc,
                  const char *note)
{
    long long place = raw(SYS_lseek, fd, 0, SEEK_CUR); /* negative for a pipe or socket, which has no limit */
    if (place >= trace_room)
        return 0;
    /* Unsigned: `started` may be anything. */
    long long us = (long long)((uint64_t)monotonic() - (uint64_t)started) / 1000;
    struct who who;
    const char *end = room + size;
    char *line = ask(&who, room, end);
    if (line == NULL)
        return -1;
    size_t text = strlen(rc) + strlen(note) + 128;
    for (size_t i = 0; facts[i] != NULL; i++)
        text += strlen(facts[i]);
    if (room_for(&who) + text > (size_t)(end - line))
        return -1;
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
    if (place + (out - line) > trace_room)
        return 0;
    return raw(SYS_write, fd, line, out - line) == out - line;
}

bool trace_line(int fd, long long started, const char *const facts[], const char *rc, const char *note)
{
    char few[FEW_ROOM];
    int written = trace_line_in(few, sizeof few, fd, started, facts, rc, note);
    if (written >= 0)
        return written;
    char *room = malloc(MOST_ROOM);
    written = room == NULL ? 0 : trace_line_in(room, MOST_ROOM, fd, started, facts, rc, note);
    free(room);
    return written > 0;
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

PyDoc_STRVAR(limit_trace_doc,
"limit_trace(room: int) -> None\n\n"
"From now on a line that would end behind so many bytes of a trace is not written, by this process and by those that it\n"
"forks.");

static PyObject *limit_trace(PyObject *self, PyObject *args)
{
    (void)self;
    if (!PyArg_ParseTuple(args, "L", &trace_room))
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef trace_methods[] = {
    {"limit_trace", limit_trace, METH_VARARGS, limit_trace_doc},
    {"identity", identity, METH_NOARGS, identity_doc},
    {"write_row", write_row, METH_VARARGS, write_row_doc},
    {NULL, NULL, 0, NULL},
};
