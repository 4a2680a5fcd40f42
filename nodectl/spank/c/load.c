/* Loads a plugin, and describes its contents as a nodectl.spank._spank_host.Library.
 *
 * Owned here, and never given back: the handles of dlopen(3), because other code keeps pointers into plugins; the
 * plugins' names; the type Library.
 */
#include "host.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_OPTIONS = 1000 };

static const char *const hook_names[] = {
    "slurm_spank_init",
    "slurm_spank_slurmd_init",
    "slurm_spank_job_prolog",
    "slurm_spank_init_post_opt",
    "slurm_spank_local_user_init",
    "slurm_spank_user_init",
    "slurm_spank_task_init_privileged",
    "slurm_spank_task_init",
    "slurm_spank_task_post_fork",
    "slurm_spank_task_exit",
    "slurm_spank_job_epilog",
    "slurm_spank_slurmd_exit",
    "slurm_spank_exit",
};
static const char *const life_names[] = {"init", "fini"};

static void raise_os(int number, const char *text)
{
    PyObject *args = Py_BuildValue("iN", number, PyUnicode_DecodeFSDefault(text));
    if (args != NULL) {
        PyErr_SetObject(PyExc_OSError, args);
        Py_DECREF(args);
    }
}

/* Loads an empty library in place of the libslurm.so.N that is missing according to dlopen's error. An installed
 * libslurm is used, because a plugin may need more functions than nodectl provides; nodectl's functions
 * still come first. */
static bool stand_in(const char *error)
{
    char own[PATH_MAX], path[PATH_MAX + 32];
    Dl_info self;
    int number, length = 0;
    if (sscanf(error, "libslurm.so.%d:%n", &number, &length) != 1 || length == 0 ||
        dladdr((const void *)spank_get_item, &self) == 0)
        return false;
    snprintf(own, sizeof own, "%s", self.dli_fname);
    snprintf(path, sizeof path, "%s/libslurm/libslurm.so.%d", dirname(own), number);
    return access(path, R_OK) == 0 && dlopen(path, RTLD_LAZY | RTLD_GLOBAL) != NULL;
}

static void *open_library(const char *path)
{
    const char *error = NULL;
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (handle == NULL) {
        error = keep(dlerror());
        if (error != NULL && stand_in(error) && (handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL)) == NULL)
            error = dlerror();
    }
    if (handle == NULL)
        raise_os(ENOEXEC, error == NULL ? "no memory" : error);
    fflush(NULL); /* a constructor may have printed text */
    return handle;
}

static PyObject *text_at(const char *text)
{
    return text == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeFSDefault(text);
}

static PyObject *unsigned_at(const uint32_t *number)
{
    return number == NULL ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(*number);
}

static int add_hook(PyObject *hooks, struct plugin *plugin, const char *name, void *symbol)
{
    if (symbol == NULL)
        return 0;
    PyObject *function = hook_callable(plugin, name, symbol);
    int rc = function == NULL ? -1 : PyDict_SetItemString(hooks, name, function);
    Py_XDECREF(function);
    return rc;
}

static PyObject *hooks_of(void *handle, struct plugin *plugin)
{
    PyObject *hooks = PyDict_New();
    for (size_t i = 0; hooks != NULL && i < sizeof hook_names / sizeof hook_names[0]; i++)
        if (add_hook(hooks, plugin, hook_names[i], dlsym(handle, hook_names[i])) != 0)
            Py_CLEAR(hooks);
    for (size_t i = 0; hooks != NULL && i < sizeof life_names / sizeof life_names[0]; i++)
        if (add_hook(hooks, plugin, life_names[i], own_symbol(handle, life_names[i])) != 0)
            Py_CLEAR(hooks);
    return hooks;
}

static PyObject *options_of(void *handle, const struct plugin *plugin)
{
    const struct spank_option *option = dlsym(handle, "spank_options");
    PyObject *options = PyList_New(0);
    for (int i = 0; options != NULL && option != NULL && option->name != NULL && i < MOST_OPTIONS; i++, option++) {
        PyObject *row = Py_BuildValue("(NNNiiN)", text_at(option->name), text_at(option->arginfo),
                                      text_at(option->usage), option->has_arg, option->val,
                                      callback_callable(plugin->name, option->cb));
        if (row == NULL || PyList_Append(options, row) != 0)
            Py_CLEAR(options);
        Py_XDECREF(row);
    }
    return options;
}

static PyStructSequence_Field library_fields[] = {
    {"path", NULL},
    {"name", "plugin_name, None where the symbol is missing; so are the next four"},
    {"type", "plugin_type"},
    {"version", "plugin_version, 0x160508 for 22.05.8"},
    {"spank_version", "spank_plugin_version"},
    {"init_failure_mode", "what slurm_spank_init_failure_mode is when it is called"},
    {"hooks", "callables by name; init and fini take no arguments"},
    {"options", "rows of spank_options: name, arginfo, usage, has_arg, val, cb"},
    {"missing", "functions that it calls and no library provides"},
    {"container", "functions of a job_container plugin, which take numbers; init and fini among them"},
    {NULL, NULL},
};

static PyStructSequence_Desc library_desc = {"nodectl.spank._spank_host.Library", "One loaded plugin.", library_fields, 10};

static PyTypeObject *library_type;

int load_begin(PyObject *module)
{
    if (library_type == NULL)
        library_type = PyStructSequence_NewType(&library_desc);
    return library_type == NULL ? -1 : PyModule_AddObjectRef(module, "Library", (PyObject *)library_type);
}

static PyObject *describe(const char *path, void *handle)
{
    struct plugin *plugin = keep_zeroed(sizeof *plugin);
    if (plugin == NULL)
        return PyErr_NoMemory();
    const char *name = dlsym(handle, "plugin_name"), *slash = strrchr(path, '/');
    plugin->name = name != NULL ? name : keep(slash != NULL ? slash + 1 : path);
    PyObject *library = PyStructSequence_New(library_type);
    if (library == NULL)
        return NULL;
    PyObject *fields[] = {
        PyUnicode_DecodeFSDefault(path),
        text_at(name),
        text_at(dlsym(handle, "plugin_type")),
        unsigned_at(dlsym(handle, "plugin_version")),
        unsigned_at(dlsym(handle, "spank_plugin_version")),
        failure_mode_callable(dlsym(handle, "slurm_spank_init_failure_mode")),
        hooks_of(handle, plugin),
        options_of(handle, plugin),
        link_plugin(handle),
        container_functions(handle, plugin->name),
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        PyStructSequence_SetItem(library, (Py_ssize_t)i, fields[i]);
    if (!PyErr_Occurred())
        return library;
    Py_DECREF(library);
    return NULL;
}

PyObject *load_plugin(const char *path)
{
    void *handle = open_library(path);
    return handle == NULL ? NULL : describe(path, handle);
}
