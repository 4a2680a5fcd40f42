/* Makes Python callables of the functions of compiled job_container plugins, which take and return only numbers.
 *
 * Owned here, and never given back: the struct function of each callable; a reference to nodectl.plugin_api.
 */
#include "host.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { MOST_NUMBERS = 3 };

struct function;
struct container_call {
    struct call call;
    const struct function *function;
    unsigned long long numbers[MOST_NUMBERS];
    int number; /* the errno of a function that failed, else 0 */
};

struct shape { /* a function as Slurm documents it */
    const char *name;
    Py_ssize_t arity;
    int (*enter)(const struct container_call *call);
};

struct function {
    const struct shape *shape;
    const char *plugin;
    void *symbol;
};

static PyObject *plugin_api;

int container_begin(void)
{
    if (plugin_api == NULL)
        plugin_api = PyImport_ImportModule("nodectl.plugin_api");
    return plugin_api == NULL ? -1 : 0;
}

static int enter_job(const struct container_call *call)
{
    return ((int (*)(uint32_t))call->function->symbol)((uint32_t)call->numbers[0]);
}

static int enter_cont(const struct container_call *call)
{
    return ((int (*)(uint32_t, uint64_t))call->function->symbol)((uint32_t)call->numbers[0], call->numbers[1]);
}

static int enter_pid(const struct container_call *call)
{
    return ((int (*)(uint32_t, pid_t, uid_t))call->function->symbol)((uint32_t)call->numbers[0],
                                                                     (pid_t)call->numbers[1], (uid_t)call->numbers[2]);
}

static int enter_reconfig(const struct container_call *call)
{
    ((void (*)(void))call->function->symbol)();
    return 0;
}

static int enter_init(const struct container_call *call)
{
    return ((int (*)(void))call->function->symbol)();
}

static const struct shape shapes[] = {
    {"container_p_create", 1, enter_job},
    {"container_p_add_cont", 2, enter_cont},
    {"container_p_add_pid", 3, enter_pid},
    {"container_p_delete", 1, enter_job},
    {"container_p_reconfig", 0, enter_reconfig},
    {"init", 0, enter_init},
    {"fini", 0, enter_reconfig},
};

static int enter(struct call *call)
{
    struct container_call *container = (struct container_call *)call;
    errno = 0;
    int rc = container->function->shape->enter(container);
    container->number = rc == 0 ? 0 : errno;
    return rc;
}

/* Passes the errno on to Python, as plugins in Python do by set_errno. */
static int tell_errno(int number)
{
    PyObject *none = number == 0 ? Py_NewRef(Py_None) : PyObject_CallMethod(plugin_api, "set_errno", "i", number);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

static PyObject *call_function(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const struct function *function = PyCapsule_GetPointer(self, NULL);
    if (function == NULL)
        return NULL;
    if (count != function->shape->arity)
        return PyErr_Format(PyExc_TypeError, "%s takes %zd numbers", function->shape->name, function->shape->arity);
    struct container_call call = {
        .call = {.plugin = function->plugin, .hook = function->shape->name, .enter = enter},
        .function = function,
    };
    for (Py_ssize_t i = 0; i < count; i++)
        call.numbers[i] = PyLong_AsUnsignedLongLongMask(args[i]);
    PyObject *rc = PyErr_Occurred() ? NULL : run_call(&call.call);
    if (rc != NULL && tell_errno(call.number) != 0)
        Py_CLEAR(rc);
    return rc;
}

static PyMethodDef function_method = {
    "container", (PyCFunction)(void (*)(void))call_function, METH_FASTCALL, NULL,
};

static int add_function(PyObject *functions, const char *plugin, const struct shape *shape, void *symbol)
{
    if (symbol == NULL)
        return 0;
    struct function *function = malloc(sizeof *function);
    if (function != NULL)
        *function = (struct function){shape, plugin, symbol};
    PyObject *made = callable(&function_method, function);
    int rc = made == NULL ? -1 : PyDict_SetItemString(functions, shape->name, made);
    Py_XDECREF(made);
    return rc;
}

PyObject *container_functions(void *handle, const char *plugin)
{
    PyObject *functions = PyDict_New();
    for (size_t i = 0; functions != NULL && i < sizeof shapes / sizeof shapes[0]; i++)
        if (add_function(functions, plugin, &shapes[i], own_symbol(handle, shapes[i].name)) != 0)
            Py_CLEAR(functions);
    return functions;
}
