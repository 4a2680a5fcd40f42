/* Answers a plugin's questions about itself, its step and its task: spank_get_item and related functions.
 *
 * Owned here, and never freed: the arrays of S_JOB_ARGV, S_JOB_ENV and S_JOB_SUPPLEMENTARY_GIDS, which plugins keep
 * pointers to.
 */
#include "host.h"

#include <stdarg.h>
#include <stdlib.h>

EXPORTED spank_context_t spank_context(void)
{
    struct visit visit;
    visit_begin(&visit);
    long context = number_of(python_call("spank_context", "()"));
    visit_end(&visit);
    return context < 0 ? S_CTX_ERROR : (spank_context_t)context;
}

EXPORTED int spank_remote(spank_t sp)
{
    if (!handle_is(sp))
        return -1;
    struct visit visit;
    visit_begin(&visit);
    long remote = number_of(python_call("spank_remote", "(O)", handle_sp()));
    visit_end(&visit);
    return (int)remote;
}

EXPORTED int spank_symbol_supported(const char *symbol)
{
    if (symbol == NULL)
        return -1;
    struct visit visit;
    visit_begin(&visit);
    long supported = number_of(python_call("spank_symbol_supported", "(N)", text_of(symbol)));
    visit_end(&visit);
    return (int)supported;
}

EXPORTED const char *spank_strerror(spank_err_t code)
{
    struct visit visit;
    visit_begin(&visit);
    PyObject *value = python_call("spank_strerror", "(i)", (int)code);
    const char *text = kept_text(value);
    Py_XDECREF(value);
    if (text == NULL)
        guard_keep_exception();
    visit_end(&visit);
    return text == NULL ? "unknown error" : text;
}

/* The types of an item's arguments and answers, in the order of the call's pointers. */
enum kind { NUMBER_16, NUMBER_32, NUMBER_64, TEXT, ARGV, ENVIRONMENT, GIDS, OF_PID, OF_ID };

static const char kinds[] = {
    [S_JOB_UID] = NUMBER_32,
    [S_JOB_GID] = NUMBER_32,
    [S_JOB_ID] = NUMBER_32,
    [S_JOB_STEPID] = NUMBER_32,
    [S_JOB_NNODES] = NUMBER_32,
    [S_JOB_NODEID] = NUMBER_32,
    [S_JOB_LOCAL_TASK_COUNT] = NUMBER_32,
    [S_JOB_TOTAL_TASK_COUNT] = NUMBER_32,
    [S_JOB_NCPUS] = NUMBER_16,
    [S_JOB_ARGV] = ARGV,
    [S_JOB_ENV] = ENVIRONMENT,
    [S_TASK_ID] = NUMBER_32,
    [S_TASK_GLOBAL_ID] = NUMBER_32,
    [S_TASK_EXIT_STATUS] = NUMBER_32,
    [S_TASK_PID] = NUMBER_32,
    [S_JOB_PID_TO_GLOBAL_ID] = OF_PID,
    [S_JOB_PID_TO_LOCAL_ID] = OF_PID,
    [S_JOB_LOCAL_TO_GLOBAL_ID] = OF_ID,
    [S_JOB_GLOBAL_TO_LOCAL_ID] = OF_ID,
    [S_JOB_SUPPLEMENTARY_GIDS] = GIDS,
    [S_SLURM_VERSION] = TEXT,
    [S_SLURM_VERSION_MAJOR] = TEXT,
    [S_SLURM_VERSION_MINOR] = TEXT,
    [S_SLURM_VERSION_MICRO] = TEXT,
    [S_STEP_CPUS_PER_TASK] = NUMBER_32,
    [S_JOB_ALLOC_CORES] = TEXT,
    [S_JOB_ALLOC_MEM] = NUMBER_64,
    [S_STEP_ALLOC_CORES] = TEXT,
    [S_STEP_ALLOC_MEM] = NUMBER_64,
    [S_SLURM_RESTART_COUNT] = NUMBER_32,
    [S_JOB_ARRAY_ID] = NUMBER_32,
    [S_JOB_ARRAY_TASK_ID] = NUMBER_32,
};
_Static_assert(sizeof(uid_t) == 4 && sizeof(gid_t) == 4 && sizeof(pid_t) == 4 && sizeof(int) == 4, "NUMBER_32");

static struct live_vector live_argv, live_environment;

static int put_gids(PyObject *value, gid_t **gids, int *count)
{
    static gid_t *all;
    static Py_ssize_t room;
    Py_ssize_t size = PySequence_Size(value);
    if (size > room || all == NULL) { /* a plugin may keep the old array, so do not free it */
        gid_t *more = malloc(((size_t)size + 1) * sizeof *more);
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        all = more;
        room = size;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *gid = PySequence_GetItem(value, i);
        all[i] = gid == NULL ? 0 : (gid_t)PyLong_AsUnsignedLongMask(gid);
        Py_XDECREF(gid);
    }
    *gids = all;
    *count = (int)size;
    return PyErr_Occurred() ? -1 : 0;
}

/* Writes the value to the plugin's variables. Returns 0, or -1 with an exception. */
static int put(enum kind kind, PyObject *value, void *out, void *second)
{
    unsigned long long number;
    switch (kind) {
    case TEXT:
        *(const char **)out = kept_text(value);
        return PyErr_Occurred() ? -1 : 0;
    case ARGV:
        if (live_update(&live_argv, value) != 0)
            return -1;
        *(char ***)second = live_argv.strings;
        *(int *)out = (int)PySequence_Size(value);
        return 0;
    case ENVIRONMENT:
        if (value == Py_None) {
            *(char ***)out = NULL;
            return 0;
        }
        if (live_update(&live_environment, value) != 0)
            return -1;
        *(char ***)out = live_environment.strings;
        return 0;
    case GIDS:
        return put_gids(value, out, second);
    default:
        number = PyLong_AsUnsignedLongLongMask(value);
        if (number == (unsigned long long)-1 && PyErr_Occurred())
            return -1;
        if (kind == NUMBER_16)
            *(uint16_t *)out = (uint16_t)number;
        else if (kind == NUMBER_64)
            *(uint64_t *)out = number;
        else
            *(uint32_t *)out = (uint32_t)number;
        return 0;
    }
}

/* After a failed call, sets the plugin's variable as Slurm does. */
static void put_failed(spank_item_t item, spank_err_t code, void *out)
{
    bool counted = item == S_JOB_TOTAL_TASK_COUNT || item == S_JOB_NNODES;
    bool translated = S_JOB_PID_TO_GLOBAL_ID <= item && item <= S_JOB_GLOBAL_TO_LOCAL_ID;
    if (item == S_TASK_ID && code == ESPANK_NOT_TASK)
        *(int *)out = -1;
    else if (translated && (code == ESPANK_NOEXIST || code == ESPANK_NOT_EXECD || code == ESPANK_BAD_ARG))
        *(uint32_t *)out = UINT32_MAX;
    else if (counted && code == ESPANK_ENV_NOEXIST)
        *(uint32_t *)out = 0;
}

EXPORTED spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    bool known = item < sizeof kinds;
    enum kind kind = known ? (enum kind)kinds[item] : NUMBER_32;
    long long argument = 0;
    void *out = NULL, *second = NULL;
    va_list args;
    va_start(args, item);
    if (kind == OF_PID)
        argument = va_arg(args, pid_t);
    else if (kind == OF_ID)
        argument = va_arg(args, uint32_t);
    if (known)
        out = va_arg(args, void *);
    if (kind == ARGV || kind == GIDS)
        second = va_arg(args, void *);
    va_end(args);

    struct visit visit;
    visit_begin(&visit);
    spank_err_t code = ESPANK_SUCCESS;
    PyObject *value = kind == OF_PID || kind == OF_ID
                          ? python_call("spank_get_item", "(OiL)", handle_sp(), (int)item, argument)
                          : python_call("spank_get_item", "(Oi)", handle_sp(), (int)item);
    bool no_place = known && (out == NULL || (second == NULL && (kind == ARGV || kind == GIDS)));
    if (value == NULL)
        code = code_of_exception();
    else if (!known || no_place)
        code = ESPANK_BAD_ARG;
    else if (put(kind, value, out, second) != 0)
        code = code_of_exception();
    Py_XDECREF(value);
    if (code != ESPANK_SUCCESS && known && !no_place)
        put_failed(item, code, out);
    visit_end(&visit);
    return code;
}

/* Updates the array of S_JOB_ENV, so that a plugin that keeps it sees its own changes. */
void item_follow_environment(void)
{
    if (live_environment.strings == NULL)
        return;
    PyObject *value = python_call("spank_get_item", "(Oi)", handle_sp(), (int)S_JOB_ENV);
    if (value == NULL || (value != Py_None && live_update(&live_environment, value) != 0))
        code_of_exception();
    Py_XDECREF(value);
}
