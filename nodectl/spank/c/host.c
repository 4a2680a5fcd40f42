/* nodectl.spank._spank_host: compiled SPANK plugins, and the functions that they call.
 *
 * Preloaded (LD_PRELOAD), so that its functions stand in front of every library's; imported, it is the module that
 * loads plugins and makes Python callables of their hooks. Used in the forkserver, the stepds and tasks that come
 * from it, the command and the processes of the other contexts. What it hands out lives as long as the process:
 * libraries are never closed, since plugins leave pointers to themselves behind.
 */
#include "host.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_OPTIONS = 1000 };

extern char **environ;

/* --- calling -------------------------------------------------------------------------------------------------- */

struct arguments { /* plugins keep pointers to their arguments, and cut them up */
    struct arguments *next;
    PyObject *key;
    char **argv;
};

struct callback {
    const char *plugin;
    spank_opt_cb_f function;
};

struct callback_call {
    struct call call;
    spank_opt_cb_f function;
    int val, remote;
    const char *argument;
};

static int enter_hook(struct call *call)
{
    struct hook_call *hook = (struct hook_call *)call;
    return ((spank_f *)hook->function)(api_handle(), hook->ac, hook->argv);
}

static int enter_life(struct call *call) /* init() and fini() */
{
    return ((int (*)(void))((struct hook_call *)call)->function)();
}

static int enter_callback(struct call *call)
{
    struct callback_call *callback = (struct callback_call *)call;
    return callback->function(callback->val, callback->argument, callback->remote);
}

static PyObject *run(struct call *call)
{
    int rc;
    struct watch watch;
    call->context = api_context();
    if (call->context < 0)
        return NULL;
    guard_begin(&watch, call->context);
    int failed = guard(&watch, call, &rc);
    guard_end(&watch);
    return failed != 0 ? NULL : PyLong_FromLong(rc);
}

char **argv_of(struct plugin *plugin, PyObject *words)
{
    PyObject *key = PySequence_Tuple(words);
    if (key == NULL)
        return NULL;
    for (struct arguments *known = plugin->known; known != NULL; known = known->next)
        if (PyObject_RichCompareBool(key, known->key, Py_EQ) == 1) {
            Py_DECREF(key);
            return known->argv;
        }
    struct live_vector vector = {0};
    struct arguments *arguments = malloc(sizeof *arguments);
    if (arguments == NULL || live_update(&vector, key) != 0) {
        free(arguments);
        Py_DECREF(key);
        return PyErr_Occurred() ? NULL : (char **)PyErr_NoMemory();
    }
    *arguments = (struct arguments){plugin->known, key, vector.strings};
    plugin->known = arguments;
    return vector.strings;
}

struct hook_call call_of(const struct hook *hook, int ac, char **argv)
{
    return (struct hook_call){
        .call = {.plugin = hook->plugin->name, .hook = hook->name, .enter = enter_hook},
        .function = hook->function,
        .ac = ac,
        .argv = argv,
    };
}

static PyObject *call_hook(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct hook *hook = PyCapsule_GetPointer(self, NULL);
    if (hook == NULL)
        return NULL;
    struct hook_call call = call_of(hook, 0, NULL);
    if (count == 0) {
        call.call.enter = enter_life;
        return run(&call.call);
    }
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "a hook is called as hook(sp, ac, argv)");
        return NULL;
    }
    call.ac = (int)PyLong_AsLong(args[1]);
    if (PyErr_Occurred() || (call.argv = argv_of(hook->plugin, args[2])) == NULL)
        return NULL;
    api_use(args[0]);
    return run(&call.call);
}

static PyObject *call_callback(PyObject *self, PyObject *args)
{
    struct callback *callback = PyCapsule_GetPointer(self, NULL);
    struct callback_call call = {.call = {.hook = "option", .enter = enter_callback}};
    PyObject *argument, *bytes = NULL; /* what the user typed is not always UTF-8 */
    if (callback == NULL || !PyArg_ParseTuple(args, "iOi", &call.val, &argument, &call.remote) ||
        (argument != Py_None && !PyUnicode_FSConverter(argument, &bytes)))
        return NULL;
    call.call.plugin = callback->plugin;
    call.function = callback->function;
    call.argument = bytes == NULL ? NULL : keep(PyBytes_AsString(bytes)); /* plugins keep it, too */
    Py_XDECREF(bytes);
    return run(&call.call);
}

static PyObject *failure_mode(PyObject *self, PyObject *none)
{
    (void)none;
    const int *mode = PyCapsule_GetPointer(self, NULL);
    return mode == NULL ? NULL : PyLong_FromLong(*mode);
}

static PyMethodDef failure_mode_method = {"failure_mode", failure_mode, METH_NOARGS, NULL};
static PyMethodDef hook_method = {"hook", (PyCFunction)(void (*)(void))call_hook, METH_FASTCALL, NULL};
static PyMethodDef callback_method = {"callback", call_callback, METH_VARARGS, NULL};

struct hook *hook_of(PyObject *function)
{
    if (!PyCFunction_Check(function) || PyCFunction_GetFunction(function) != hook_method.ml_meth) {
        PyErr_SetString(PyExc_TypeError, "this is no hook of a compiled plugin");
        return NULL;
    }
    return PyCapsule_GetPointer(PyCFunction_GetSelf(function), NULL);
}

PyObject *callable(PyMethodDef *method, void *data)
{
    PyObject *capsule = data == NULL ? PyErr_NoMemory() : PyCapsule_New(data, NULL, NULL);
    PyObject *function = capsule == NULL ? NULL : PyCFunction_NewEx(method, capsule, NULL);
    Py_XDECREF(capsule);
    return function;
}

PyObject *callback_of(const char *plugin, spank_opt_cb_f function)
{
    if (function == NULL)
        return Py_NewRef(Py_None);
    struct callback *callback = malloc(sizeof *callback);
    if (callback != NULL)
        *callback = (struct callback){plugin, function};
    return callable(&callback_method, callback);
}

/* Zeroed memory that stays, side by side: every stepd writes to it, and each page that it writes to is copied. */
static void *beside(size_t size)
{
    enum { CHUNK = 4096 };
    static char *chunk;
    static size_t used = CHUNK;
    if (used + size > CHUNK) {
        chunk = aligned_alloc(CHUNK, CHUNK);
        used = chunk == NULL ? CHUNK : 0;
    }
    if (chunk == NULL)
        return NULL;
    void *place = memset(chunk + used, 0, size);
    used += (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    return place;
}

/* --- loading -------------------------------------------------------------------------------------------------- */

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

/* Loads the empty library that stands in for the libslurm.so.N which, so the error says, is not there. One that is there
 * is used: a plugin may need more of it than we provide, and what we provide stands in front of it. */
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
    fflush(NULL); /* what a constructor has printed */
    return handle;
}

/* As dlsym, but of the plugin itself: any library that it needs may have an init() too. */
static void *own_symbol(void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);
    struct link_map *map, *defines;
    Dl_info info;
    if (symbol == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 ||
        dladdr1(symbol, &info, (void **)&defines, RTLD_DL_LINKMAP) == 0)
        return NULL;
    return map == defines ? symbol : NULL;
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
    struct hook *hook = malloc(sizeof *hook);
    if (hook != NULL)
        *hook = (struct hook){plugin, name, symbol};
    PyObject *function = callable(&hook_method, hook);
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
                                      callback_of(plugin->name, option->cb));
        if (row == NULL || PyList_Append(options, row) != 0)
            Py_CLEAR(options);
        Py_XDECREF(row);
    }
    return options;
}

static PyTypeObject *library_type;

static PyObject *describe(const char *path, void *handle)
{
    struct plugin *plugin = beside(sizeof *plugin);
    if (plugin == NULL)
        return PyErr_NoMemory();
    const char *name = dlsym(handle, "plugin_name"), *slash = strrchr(path, '/');
    plugin->name = name != NULL ? name : keep(slash != NULL ? slash + 1 : path);
    void *mode = dlsym(handle, "slurm_spank_init_failure_mode");
    PyObject *library = PyStructSequence_New(library_type);
    if (library == NULL)
        return NULL;
    PyObject *fields[] = {
        PyUnicode_DecodeFSDefault(path),
        text_at(name),
        text_at(dlsym(handle, "plugin_type")),
        unsigned_at(dlsym(handle, "plugin_version")),
        unsigned_at(dlsym(handle, "spank_plugin_version")),
        mode == NULL ? Py_NewRef(Py_None) : callable(&failure_mode_method, mode),
        hooks_of(handle, plugin),
        options_of(handle, plugin),
        link_plugin(handle),
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        PyStructSequence_SetItem(library, (Py_ssize_t)i, fields[i]);
    if (!PyErr_Occurred())
        return library;
    Py_DECREF(library);
    return NULL;
}

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
    void *handle = open_library(PyBytes_AsString(path));
    PyObject *library = handle == NULL ? NULL : describe(PyBytes_AsString(path), handle);
    Py_DECREF(path);
    return library;
}

/* --- the module ----------------------------------------------------------------------------------------------- */

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
    {"lane", walk_lane, METH_O, walk_lane_doc},
    {NULL, NULL, 0, NULL},
};

static PyStructSequence_Field library_fields[] = {
    {"path", NULL},
    {"name", "plugin_name, None where the symbol is missing; so are the next four"},
    {"type", "plugin_type"},
    {"version", "plugin_version, 0x160508 for 22.05.8"},
    {"spank_version", "spank_plugin_version"},
    {"init_failure_mode", "what slurm_spank_init_failure_mode is when it is called"},
    {"hooks", "callables by name; init and fini take no arguments"},
    {"options", "rows of spank_options: name, arginfo, usage, has_arg, val, cb"},
    {"missing", "functions that it calls and nobody provides"},
    {NULL, NULL},
};

static PyStructSequence_Desc library_desc = {"nodectl.spank._spank_host.Library", "One loaded plugin.", library_fields, 9};

static int execute(PyObject *module)
{
    if (library_type == NULL)
        library_type = PyStructSequence_NewType(&library_desc);
    if (library_type == NULL || api_begin() != 0 || walk_begin() != 0)
        return -1;
    return PyModule_AddObjectRef(module, "Library", (PyObject *)library_type);
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
