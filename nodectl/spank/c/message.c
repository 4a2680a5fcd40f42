/* Messages of plugins: slurm_error and the other functions with printf's formats.
 *
 * Owned here: nothing beyond a call.
 */
#include "host.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void say(const char *function, const char *format, va_list args)
{
    struct visit visit;
    char *text = NULL;
    int saved_errno = errno;
    int length = vasprintf(&text, format, args); /* before the visit: it follows the plugin's pointers, and may crash */
    errno = saved_errno;
    if (length < 0)
        return;
    visit_begin(&visit);
    PyObject *value = python_call(function, "(N)", text_of(text));
    if (value == NULL)
        guard_keep_exception();
    Py_XDECREF(value);
    free(text);
    visit_end(&visit);
}

#define MESSAGE(name, function) \
    void name(const char *format, ...) \
    { \
        va_list args; \
        va_start(args, format); \
        say(function, format, args); \
        va_end(args); \
    }

EXPORTED MESSAGE(slurm_error, "slurm_error")
EXPORTED MESSAGE(slurm_info, "slurm_info")
EXPORTED MESSAGE(slurm_verbose, "slurm_verbose")
EXPORTED MESSAGE(slurm_debug, "slurm_debug")
EXPORTED MESSAGE(slurm_debug2, "slurm_debug2")
EXPORTED MESSAGE(slurm_debug3, "slurm_debug3")
EXPORTED MESSAGE(slurm_spank_log, "slurm_spank_log")

/* In Slurm fatal() ends the process. Here it only ends the hook, because a plugin must not end the daemon. */
void plain_fatal(const char *format, ...)
{
    char text[200];
    int length = snprintf(text, sizeof text, "called fatal: ");
    va_list args;
    va_start(args, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, args);
    va_end(args);
    guard_leave(text);
}
