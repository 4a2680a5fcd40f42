/* Makes Python callables of plugins' functions: hooks, init() and fini(), options' callbacks.
 *
 * Owned here, and never freed: each hook, callback and argument vector that a callable was made with. Plugins keep
 * pointers to their arguments.
 */
#include "host.h"

#include <stdlib.h>
#include <string.h>

struct arguments { /* of a hook; plugins keep pointers to their arguments, and cut them into pieces */
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

/* Clears the unused stack far enough down for the buffers of plugins. It holds old data, for example a line of a trace.
 * A plugin that forgets to end a text in its buffer would read on in that data, while under Slurm it finds zeros there.
 * No stack protector, because its value would stay on the stack. */
__attribute__((noinline, no_stack_protector)) static void clear_stack(void)
{
    char below[16 << 10];
    explicit_bzero(below, sizeof below);
}

/* Stands behind a call, so that the compiler makes no tail call: the plugin's frame would then lie in the place of
 * ours, which clear_stack() did not clear. */
#define STAY() __asm__ volatile("")

static int enter_hook(struct call *call)
{
    struct hook_call *hook = (struct hook_call *)call;
    clear_stack();
    int rc = ((spank_f *)hook->function)(handle_of_plugins(), hook->ac, hook->argv);
    STAY();
    return rc;
}

static int enter_life(struct call *call) /* init() and fini() */
{
    clear_stack();
    int rc = ((int (*)(void))((struct hook_call *)call)->function)();
    STAY();
    return rc;
}

static int enter_callback(struct call *call)
{
    struct callback_call *callback = (struct callback_call *)call;
    clear_stack();
    int rc = callback->function(callback->val, callback->argument, callback->remote);
    STAY();
    return rc;
}

PyObject *run_call(struct call *call)
{
    int rc;
    struct watch watch;
    call->context = handle_context();
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
        return run_call(&call.call);
    }
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "a hook is called as hook(sp, ac, argv)");
        return NULL;
    }
    call.ac = (int)PyLong_AsLong(args[1]);
    if (PyErr_Occurred() || (call.argv = argv_of(hook->plugin, args[2])) == NULL)
        return NULL;
    handle_use(args[0]);
    return run_call(&call.call);
}

static PyObject *call_callback(PyObject *self, PyObject *args)
{
    struct callback *callback = PyCapsule_GetPointer(self, NULL);
    struct callback_call call = {.call = {.hook = "option", .enter = enter_callback}};
    PyObject *argument, *bytes = NULL; /* bytes, because a user's argument is not always UTF-8 */
    if (callback == NULL || !PyArg_ParseTuple(args, "iOi", &call.val, &argument, &call.remote) ||
        (argument != Py_None && !PyUnicode_FSConverter(argument, &bytes)))
        return NULL;
    call.call.plugin = callback->plugin;
    call.function = callback->function;
    call.argument = bytes == NULL ? NULL : keep(PyBytes_AsString(bytes)); /* plugins keep the pointer */
    Py_XDECREF(bytes);
    return run_call(&call.call);
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

PyObject *callback_callable(const char *plugin, spank_opt_cb_f function)
{
    if (function == NULL)
        return Py_NewRef(Py_None);
    struct callback *callback = malloc(sizeof *callback);
    if (callback != NULL)
        *callback = (struct callback){plugin, function};
    return callable(&callback_method, callback);
}

PyObject *hook_callable(struct plugin *plugin, const char *name, void *function)
{
    struct hook *hook = malloc(sizeof *hook);
    if (hook != NULL)
        *hook = (struct hook){plugin, name, function};
    return callable(&hook_method, hook);
}

PyObject *failure_mode_callable(void *mode)
{
    return mode == NULL ? Py_NewRef(Py_None) : callable(&failure_mode_method, mode);
}
