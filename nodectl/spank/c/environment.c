/* The environments of a step and of a job's scripts, and words in front of a task's arguments.
 *
 * Owned here: nothing. Python owns the environments; a plugin provides the buffer for a value.
 */
#include "host.h"

#include <stdio.h>

static spank_err_t get_variable(const char *function, spank_t sp, const char *name, char *buffer, int size)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    PyObject *value = python_call(function, "(ON)", handle_sp(), text_of(name));
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
        code_of(python_call(function, "(ONNi)", handle_sp(), text_of(usable), text_of(value), overwrite));
    item_follow_environment();
    visit_end(&visit);
    return code;
}

static spank_err_t unset_variable(const char *function, spank_t sp, const char *name)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    spank_err_t code = code_of(python_call(function, "(ON)", handle_sp(), text_of(name)));
    if (code == ESPANK_SUCCESS && name == NULL)
        code = ESPANK_BAD_ARG;
    item_follow_environment();
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
        code_of(words == NULL ? NULL : python_call("spank_prepend_task_argv", "(OiN)", handle_sp(), argc, words));
    visit_end(&visit);
    return code;
}
