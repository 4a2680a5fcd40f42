/* Operations that set what a task may use: CPUs, memory, resource limits. As in operation.c, only
 * the kernel is called.
 *
 * Owned here: nothing.
 */
#define _GNU_SOURCE
#include "operation.h"

#include "raw.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

/* Writes a list as in cpuset(7): "0-3,8". */
static void put_list(char *out, const char *end, const unsigned long *mask, long bits)
{
    const int width = 8 * (int)sizeof(long);
    bool first = true;
    for (long from = 0; from < bits; from++) {
        if ((mask[from / width] >> from % width & 1) == 0)
            continue;
        long to = from;
        while (to + 1 < bits && (mask[(to + 1) / width] >> (to + 1) % width & 1) != 0)
            to++;
        if (!first)
            *out++ = ',';
        first = false;
        if (end - out < PID_ROOM) {
            out = stpcpy(out, "...");
            break;
        }
        out = put_number(out, (unsigned long long)from);
        if (to > from)
            out = put_number(stpcpy(out, "-"), (unsigned long long)to);
        from = to;
    }
    *out = '\0';
}

static char *put_mask(char *out, const unsigned long *mask, long words)
{
    long word = words - 1;
    while (word > 0 && mask[word] == 0)
        word--;
    for (int least = 1; word >= 0; word--, least = 2 * (int)sizeof(long))
        out = put_hex(out, mask[word], least);
    *out = '\0';
    return out;
}

/* Binds the caller, and reads the binding back. Returns 0 or an errno. If the kernel's mask differs, sets `differs` and
 * writes the kernel's CPUs to `list`. `b`: bytes of the mask in `data`; `a`: report the binding to the user with the
 * strings that follow the mask. */
long bind_cpus(struct launch *launch, const struct operation *operation, bool *differs, char *list)
{
    unsigned long got[MOST_MASK / sizeof(long)] = {0};
    size_t wanted = (size_t)operation->b;
    if (wanted > MOST_MASK)
        return EINVAL;
    if (wanted > 0) {
        long result = raw(SYS_sched_setaffinity, 0, wanted, operation->data);
        if (result < 0)
            return -result;
    }
    long used = raw(SYS_sched_getaffinity, 0, MOST_MASK, got);
    if (used < 0)
        return -used;
    unsigned long mask[MOST_MASK / sizeof(long)] = {0};
    memcpy(mask, wanted > 0 ? operation->data : (const char *)got, wanted > 0 ? wanted : (size_t)used);
    *differs = memcmp(mask, got, MOST_MASK) != 0;
    if (*differs)
        put_list(list, list + LONGEST_WHAT, got, used * 8);
    if (operation->a) {
        char hex[2 * MOST_MASK + 1], pid[24];
        *put_number(pid, (unsigned long long)launch->pid) = '\0';
        if (put_mask(hex, mask, MOST_MASK / (long)sizeof(long)) - hex > LONGEST_WHAT)
            return 0;
        const char *before = operation->data + wanted, *between = behind(before), *after = behind(between);
        const char *const parts[] = {before, pid, between, hex, after, *differs ? " FAILED" : "", NULL};
        tell(launch, "say", parts);
    }
    return 0;
}

long set_policy(const struct operation *operation, bool *differs)
{
    unsigned long got[128] = {0}; /* the largest MAX_NUMNODES is 1024 */
    int mode = -1;
    long result = raw(SYS_set_mempolicy, operation->a, operation->size ? operation->data : NULL,
                      operation->size ? operation->size * 8 + 1 : 0);
    if (result == 0)
        result = raw(SYS_get_mempolicy, &mode, got, sizeof got * 8, NULL, 0);
    if (result < 0)
        return -result;
    *differs = mode != operation->a || memcmp(got, operation->data, operation->size) != 0;
    return 0;
}

/* Sets a resource limit. Returns an errno. */
long limit(const struct operation *operation, bool soft_only)
{
    struct rlimit64 now, next;
    if (soft_only) { /* as far as the hard limit allows */
        long result = raw(SYS_prlimit64, 0, operation->a, NULL, &now);
        if (result != 0)
            return -result;
        uint64_t wanted = (uint64_t)operation->b; /* -1 is RLIM64_INFINITY */
        next.rlim_max = now.rlim_max;
        next.rlim_cur = wanted < now.rlim_max ? wanted : now.rlim_max;
        if (next.rlim_cur == now.rlim_cur)
            return 0;
    } else {
        memcpy(&next, operation->data, sizeof next);
    }
    return -raw(SYS_prlimit64, 0, operation->a, &next, NULL);
}
