/* nodectl.spank._spank_host: compiled SPANK plugins, and the functions that they call. This file makes the module.
 *
 * If the library is preloaded (LD_PRELOAD), its functions precede those of every other library. When imported, it loads
 * plugins and makes Python callables of their hooks. The forkserver imports it for the stepds and tasks that it forks;
 * the command and the processes of the other contexts import it themselves.
 *
 * Owned here: nothing. The objects that its functions return belong to their callers.
 */
#include "host.h"

#include <string.h>
#include <unistd.h>

PyDoc_STRVAR(open_doc,
"open(path: str) -> Library\n\n"
"Loads a compiled plugin for good: dlopen(3) with RTLD_LAZY and RTLD_LOCAL; its constructors run. The same file is\n"
"loaded once, however often it is opened. Raises OSError(ENOEXEC, what dlopen says).");

static PyObject *open_(PyObject *self, PyObject *arg)
{
    (void)self;
    PyObject *path = PyUnicode_EncodeFSDefault(arg);
    if (path == NULL)
        return NULL;
    PyObject *library = load_plugin(PyBytes_AsString(path));
    Py_DECREF(path);
    return library;
}

PyDoc_STRVAR(preloaded_doc,
"preloaded() -> bool\n\n"
"True when plugins that this process loads find the functions of this module, as the first of their names.");

static PyObject *preloaded(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyBool_FromLong(link_global("spank_get_item") == (void *)spank_get_item);
}

PyDoc_STRVAR(environ_doc,
"environ() -> dict[str, str]\n\n"
"The environment as C code sees it, setenv(3) by plugins included; os.environ does not.");

static PyObject *environ_(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    PyObject *all = PyDict_New();
    for (char **entry = environ; all != NULL && entry != NULL && *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        if (equals == NULL)
            continue;
        PyObject *name = PyUnicode_DecodeFSDefaultAndSize(*entry, equals - *entry);
        PyObject *value = PyUnicode_DecodeFSDefault(equals + 1);
        if (name == NULL || value == NULL || PyDict_SetItem(all, name, value) != 0)
            Py_CLEAR(all);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return all;
}

static PyMethodDef methods[] = {
    {"open", open_, METH_O, open_doc},
    {"preloaded", preloaded, METH_NOARGS, preloaded_doc},
    {"environ", environ_, METH_NOARGS, environ_doc},
    {"compiled_hook", make_compiled_hook, METH_O, compiled_hook_doc},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    return kernel_begin() != 0 || handle_begin() != 0 || python_begin() != 0 || container_begin() != 0 ? -1 : load_begin(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "nodectl.spank._spank_host", "Compiled SPANK plugins.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__spank_host(void)
{
    return PyModuleDef_Init(&definition);
}
