/* The options that plugins register, and the user's arguments for them.
 *
 * Owned here: nothing. Python owns the options; memory.c keeps their arguments.
 */
#include "host.h"

/* Makes a nodectl.spank.SpankOption of the plugin's struct; None for NULL. A missing name or usage becomes "". */
static PyObject *option_of(const struct spank_option *option, spank_opt_cb_f cb)
{
    if (option == NULL)
        return Py_NewRef(Py_None);
    PyObject *arginfo = option->arginfo == NULL ? Py_NewRef(Py_None) : text_of(option->arginfo);
    return python_call("SpankOption", "(NNNiiN)", text_of(option->name), arginfo, text_of(option->usage), option->has_arg,
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
        code_of(described == NULL ? NULL : python_call("spank_option_register", "(ON)", handle_sp(), described));
    visit_end(&visit);
    return code;
}

EXPORTED spank_err_t spank_option_getopt(spank_t sp, struct spank_option *option, char **argument)
{
    if (!handle_is(sp))
        return ESPANK_BAD_ARG;
    struct visit visit;
    visit_begin(&visit);
    PyObject *described = option_of(option, NULL); /* Python finds the option by its name */
    PyObject *value = described == NULL ? NULL : python_call("spank_option_getopt", "(ON)", handle_sp(), described);
    spank_err_t code = value == NULL ? code_of_exception() : ESPANK_SUCCESS;
    if (option != NULL && option->has_arg != 0 && argument == NULL)
        if (code == ESPANK_SUCCESS || code == ESPANK_ERROR) /* Slurm checks `argument` before it looks for the option */
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
