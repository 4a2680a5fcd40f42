/* Reports of an operation: to the step runner through the report pipe, and to the step's trace. As in operation.c, this
 * code calls only the kernel.
 *
 * Owned here: nothing.
 */
#define _GNU_SOURCE
#include "operation.h"

#include "raw.h"

#include <errno.h>
#include <string.h>

const char *words(long error)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
    const char *found = strerrordesc_np((int)error);
    return found == NULL ? "Unknown error" : found;
#else
    return strerror((int)error);
#endif
}

/* As words(), but names both causes of ELOOP for a path that a user named. */
const char *reason(const struct operation *operation, long error)
{
    bool named = operation->code == OP_STREAM || operation->code == OP_ENTER_DIRECTORY || operation->code == OP_MAKE_TMPDIR;
    if (error == ELOOP && named)
        return "Too many levels of symbolic links, or one of /proc to what a process has open";
    return words(error);
}

/* Sends {"task":N,"key":"text"} and a NUL to the step runner, in one write. */
void tell(const struct launch *launch, const char *key, const char *const parts[])
{
    if (launch->report < 0)
        return;
    char *out = put_number(stpcpy(launch->room, "{\"task\":"), (unsigned long long)launch->task);
    out = stpcpy(stpcpy(stpcpy(out, ",\""), key), "\":\"");
    for (size_t i = 0; parts[i] != NULL; i++)
        out = stpcpy(out, parts[i]);
    out = stpcpy(out, "\"}") + 1;
    raw(SYS_write, launch->report, launch->room, out - launch->room);
}

void write_row(const struct launch *launch, const struct operation *row, long rc, const char *const note[])
{
    if (launch->trace < 0 || row->size == 0)
        return;
    char pid[24], status[24], said[3 * LONGEST_WHAT] = "";
    *put_number(pid, (unsigned long long)launch->pid) = '\0';
    *put_number(stpcpy(status, rc < 0 ? "-" : ""), (unsigned long long)(rc < 0 ? -rc : rc)) = '\0';
    if (note != NULL) {
        char *out = stpcpy(said, "\"note\":\"");
        for (size_t i = 0; note[i] != NULL; i++)
            out = stpcpy(out, note[i]);
        stpcpy(out, "\"");
    }
    const char *const facts[] = {row->data, pid, launch->facts, NULL};
    trace_line_in(launch->room, launch->room_size, launch->trace, launch->started, facts, status, said);
}

void say(const struct launch *launch, const struct operation *operation, long error)
{
    const char *const parts[] = {operation->what, reason(operation, error), behind(operation->what), NULL};
    if (operation->what[0] != '\0')
        tell(launch, "say", parts);
}
