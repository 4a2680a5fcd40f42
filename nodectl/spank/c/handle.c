/* The handle that every hook gets and every call of a plugin hands back: it tells whose hook runs.
 *
 * Owned here: a reference to the Spank of the hook that runs, or ran last. The next hook replaces it.
 */
#include "host.h"

struct spank_handle {
    PyObject *sp; /* a nodectl.spank.handle.Spank */
};

static struct spank_handle handle;
static PyObject *handles; /* the module nodectl.spank.handle */

int handle_begin(void)
{
    if (handles == NULL)
        handles = PyImport_ImportModule("nodectl.spank.handle");
    return handles == NULL ? -1 : 0;
}

void handle_use(PyObject *sp)
{
    PyObject *before = handle.sp;
    Py_INCREF(sp);
    handle.sp = sp;
    Py_XDECREF(before);
}

int handle_set_plugin(PyObject *stacked)
{
    return handle.sp == NULL ? 0 : PyObject_SetAttrString(handle.sp, "plugin", stacked);
}

spank_t handle_of_plugins(void)
{
    return &handle;
}

PyObject *handle_sp(void)
{
    return handle.sp;
}

bool handle_is(spank_t sp)
{
    return sp == &handle && handle.sp != NULL;
}

int handle_context(void)
{
    PyObject *value = PyObject_CallMethod(handles, "current_context", NULL);
    long context = value == NULL ? -1 : PyLong_AsLong(value);
    Py_XDECREF(value);
    return (int)context;
}
