/* The functions that compiled plugins call: variadic, by pointer and with error codes on this side, the functions of
 * nodectl.spank on the other. What is allowed where is decided there, for plugins of both kinds.
 *
 * Owned here, and never freed: references to the modules; the arrays of S_JOB_ARGV, S_JOB_ENV and
 * S_JOB_SUPPLEMENTARY_GIDS, which plugins keep pointers to.
 */
#include "host.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PyObject *spank; /* the module nodectl.spank */
static PyObject *jobs;  /* nodectl.spank.job_info, imported before there are forks */

int api_begin(void)
{
    if (spank == NULL)
        spank = PyImport_ImportModule("nodectl.spank");
    if (jobs == NULL)
        jobs = PyImport_ImportModule("nodectl.spank.job_info");
    return spank == NULL || jobs == NULL ? -1 : 0;
}

/* --- into Python and back --------------------------------------------------------------------------------------- */

/* nodectl.spank.<function>(...), the arguments as for Py_BuildValue, in parentheses. NULL with an exception. */
static PyObject *call(const char *function, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyObject *arguments = Py_VaBuildValue(format, args);
    va_end(args);
    PyObject *named = arguments == NULL ? NULL : PyObject_GetAttrString(spank, function);
    PyObject *value = named == NULL ? NULL : PyObject_CallObject(named, arguments);
    Py_XDECREF(named);
    Py_XDECREF(arguments);
    return value;
}

static long number_of(PyObject *value) /* taken; -1 with the exception kept for the end of the call */
{
    long number = value == NULL ? -1 : PyLong_AsLong(value);
    Py_XDECREF(value);
    if (PyErr_Occurred())
        guard_keep_exception();
    return number;
}

/* The exception that is set as a code, and gone. One that is no SpankError ends the hook when it returns. */
static spank_err_t code_of_exception(void)
{
    PyObject *type, *value, *trace, *kind = NULL, *code = NULL;
    long number = ESPANK_ERROR;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    kind = PyObject_GetAttrString(spank, "SpankError");
    if (kind != NULL && PyObject_IsInstance(value, kind) == 1 &&
        (code = PyObject_GetAttrString(value, "code")) != NULL) {
        number = PyLong_AsLong(code);
        PyErr_Clear();
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    } else {
        PyErr_Restore(type, value, trace);
        guard_keep_exception();
    }
    Py_XDECREF(kind);
    Py_XDECREF(code);
    return (spank_err_t)number;
}

static spank_err_t code_of(PyObject *value) /* taken */
{
    if (value == NULL)
        return code_of_exception();
    Py_DECREF(value);
    return ESPANK_SUCCESS;
}

static PyObject *text_of(const char *text) /* NULL is "", which no variable and no option is called */
{
    return PyUnicode_DecodeFSDefault(text == NULL ? "" : text);
}

/* --- where am I ------------------------------------------------------------------------------------------------- */

EXPORTED spank_context_t spank_context(void)
{
    struct visit visit;
    visit_begin(&visit);
    long context = number_of(call("spank_context", "()"));
    visit_end(&visit);
    return context < 0 ? S_CTX_ERROR : (spank_context_t)context;
}

EXPORTED int spank_remote(spank_t sp)
{
    if (!handle_is(sp))
        return -1;
    struct visit visit;
    visit_begin(&visit);
    long remote = number_of(call("spank_remote", "(O)", handle_sp()));
    visit_end(&visit);
    return (int)remote;
}

EXPORTED int spank_symbol_supported(const char *symbol)
{
    if (symbol == NULL)
        return -1;
    struct visit visit;
    visit_begin(&visit);
    long supported = number_of(call("spank_symbol_supported", "(N)", text_of(symbol)));
    visit_end(&visit);
    return (int)supported;
}

/* Text that stays, of a str; NULL for None, and with an exception. */
static const char *kept_text(PyObject *value)
{
    PyObject *bytes = value == NULL || value == Py_None ? NULL : PyUnicode_EncodeFSDefault(value);
    const char *text = bytes == NULL ? NULL : keep(PyBytes_AsString(bytes));
    if (bytes != NULL && text == NULL)
        PyErr_NoMemory();
    Py_XDECREF(bytes);
    return text;
}

EXPORTED const char *spank_strerror(spank_err_t code)
{
    struct visit visit;
    visit_begin(&visit);
    PyObject *value = call("spank_strerror", "(i)", (int)code);
    const char *text = kept_text(value);
    Py_XDECREF(value);
    if (text == NULL)
        guard_keep_exception();
    visit_end(&visit);
    return text == NULL ? "unknown error" : text;
}

/* --- items ------------------------------------------------------------------------------------------------------ */

/* How an item is asked for and answered, in the order of the calls' pointers. */
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
    if (size > room || all == NULL) { /* who holds the old one keeps what was true */
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

/* Into the plugin's variables. 0, or -1 with an exception. */
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

/* What Slurm leaves in the variables of a call that failed. */
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
                          ? call("spank_get_item", "(OiL)", handle_sp(), (int)item, argument)
                          : call("spank_get_item", "(Oi)", handle_sp(), (int)item);
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

/* --- environments ----------------------------------------------------------------------------------------------- */

/* A plugin that holds the array of S_JOB_ENV sees what it has changed. */
static void follow_environment(void)
{
    if (live_environment.strings == NULL)
        return;
    PyObject *value = call("spank_get_item", "(Oi)", handle_sp(), (int)S_JOB_ENV);
    if (value == NULL || (value != Py_None && live_update(&live_environment, value) != 0))
        code_of_exception();
    Py_XDECREF(value);
}

static spank_err_t get_variable(const char *function, spank_t sp, const char *name, char *buffer, int size)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    PyObject *value = call(function, "(ON)", handle_sp(), text_of(name));
    PyObject *bytes = value == NULL ? NULL : PyUnicode_EncodeFSDefault(value);
    spank_err_t code = bytes == NULL ? code_of_exception() : ESPANK_SUCCESS;
    if (code == ESPANK_SUCCESS || code == ESPANK_ENV_NOEXIST)
        if (name == NULL || size < 0 || (buffer == NULL && size > 0))
            code = ESPANK_BAD_ARG;
    if (code == ESPANK_SUCCESS) {
        int length = snprintf(buffer, (size_t)size, "%s", PyBytes_AsString(bytes));
        if (length >= size)
            code = ESPANK_NOSPACE;
    }
    Py_XDECREF(value);
    Py_XDECREF(bytes);
    visit_end(&visit);
    return code;
}

static spank_err_t set_variable(
    const char *function, spank_t sp, const char *name, const char *value, int overwrite)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    const char *usable = value == NULL ? NULL : name;
    spank_err_t code =
        code_of(call(function, "(ONNi)", handle_sp(), text_of(usable), text_of(value), overwrite));
    follow_environment();
    visit_end(&visit);
    return code;
}

static spank_err_t unset_variable(const char *function, spank_t sp, const char *name)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    spank_err_t code = code_of(call(function, "(ON)", handle_sp(), text_of(name)));
    if (code == ESPANK_SUCCESS && name == NULL)
        code = ESPANK_BAD_ARG;
    follow_environment();
    visit_end(&visit);
    return code;
}

EXPORTED spank_err_t spank_getenv(spank_t sp, const char *name, char *buffer, int size)
{
    return get_variable("spank_getenv", sp, name, buffer, size);
}

EXPORTED spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    return set_variable("spank_setenv", sp, name, value, overwrite);
}

EXPORTED spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    return unset_variable("spank_unsetenv", sp, name);
}

EXPORTED spank_err_t spank_job_control_getenv(spank_t sp, const char *name, char *buffer, int size)
{
    return get_variable("spank_job_control_getenv", sp, name, buffer, size);
}

EXPORTED spank_err_t spank_job_control_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    return set_variable("spank_job_control_setenv", sp, name, value, overwrite);
}

EXPORTED spank_err_t spank_job_control_unsetenv(spank_t sp, const char *name)
{
    return unset_variable("spank_job_control_unsetenv", sp, name);
}

EXPORTED spank_err_t spank_prepend_task_argv(spank_t sp, int argc, const char *argv[])
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    PyObject *words = argv == NULL ? Py_NewRef(Py_None) : PyList_New(0);
    for (int i = 0; words != NULL && argv != NULL && i < argc && argv[i] != NULL; i++) {
        PyObject *word = text_of(argv[i]);
        if (word == NULL || PyList_Append(words, word) != 0)
            Py_CLEAR(words);
        Py_XDECREF(word);
    }
    spank_err_t code =
        code_of(words == NULL ? NULL : call("spank_prepend_task_argv", "(OiN)", handle_sp(), argc, words));
    visit_end(&visit);
    return code;
}

/* --- options ---------------------------------------------------------------------------------------------------- */

/* A nodectl.spank.SpankOption of what the plugin describes, None for NULL; a name or usage that is missing is "". */
static PyObject *option_of(const struct spank_option *option, spank_opt_cb_f cb)
{
    if (option == NULL)
        return Py_NewRef(Py_None);
    PyObject *arginfo = option->arginfo == NULL ? Py_NewRef(Py_None) : text_of(option->arginfo);
    return call("SpankOption", "(NNNiiN)", text_of(option->name), arginfo, text_of(option->usage), option->has_arg,
                option->val, callback_callable(guard_plugin(), cb));
}

EXPORTED spank_err_t spank_option_register(spank_t sp, struct spank_option *option)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    PyObject *described = option_of(option, option == NULL ? NULL : option->cb);
    spank_err_t code =
        code_of(described == NULL ? NULL : call("spank_option_register", "(ON)", handle_sp(), described));
    visit_end(&visit);
    return code;
}

EXPORTED spank_err_t spank_option_getopt(spank_t sp, struct spank_option *option, char **argument)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    PyObject *described = option_of(option, NULL); /* it is looked for by name */
    PyObject *value = described == NULL ? NULL : call("spank_option_getopt", "(ON)", handle_sp(), described);
    spank_err_t code = value == NULL ? code_of_exception() : ESPANK_SUCCESS;
    if (option != NULL && option->has_arg != 0 && argument == NULL)
        if (code == ESPANK_SUCCESS || code == ESPANK_ERROR) /* Slurm asks this before it looks for the option */
            code = ESPANK_BAD_ARG;
    const char *text = kept_text(value);
    if (PyErr_Occurred())
        code = code_of_exception();
    if (argument != NULL)
        *argument = (char *)text;
    Py_XDECREF(value);
    visit_end(&visit);
    return code;
}

/* --- jobs ------------------------------------------------------------------------------------------------------- */

PyObject *api_job(uint32_t job_id, uint16_t flags, int *number)
{
    *number = ESLURM_INVALID_JOB_ID;
    if (handle_sp() == NULL)
        return NULL;
    PyObject *job = call("slurm_load_job", "(Oki)", handle_sp(), (unsigned long)job_id, (int)flags);
    if (job == NULL)
        *number = (int)code_of_exception();
    return job;
}

/* --- messages --------------------------------------------------------------------------------------------------- */

static void say(const char *function, const char *format, va_list args)
{
    struct visit visit;
    char *text = NULL;
    visit_begin(&visit); /* leaves errno alone, which %m reads */
    if (vasprintf(&text, format, args) >= 0) {
        PyObject *value = call(function, "(N)", text_of(text));
        if (value == NULL)
            guard_keep_exception();
        Py_XDECREF(value);
        free(text);
    }
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

/* In Slurm it ends the process. Here it ends the hook: a plugin must not take the daemon with it. */
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
