/* Calls nodectl.spank for the functions that plugins call, and converts arguments and results. nodectl.spank decides
 * which call is allowed in which hook, for compiled plugins and for those in Python.
 *
 * Owned here, and never given back: references to the modules.
 */
#include "host.h"

#include <stdarg.h>

static PyObject *spank; /* the module nodectl.spank */
static PyObject *jobs;  /* nodectl.spank.job_info, imported early, so that no fork has to import it */

int python_begin(void)
{
    if (spank == NULL)
        spank = PyImport_ImportModule("nodectl.spank");
    if (jobs == NULL)
        jobs = PyImport_ImportModule("nodectl.spank.job_info");
    return spank == NULL || jobs == NULL ? -1 : 0;
}

PyObject *python_call(const char *function, const char *format, ...)
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

long number_of(PyObject *value)
{
    long number = value == NULL ? -1 : PyLong_AsLong(value);
    Py_XDECREF(value);
    if (PyErr_Occurred())
        guard_keep_exception();
    return number;
}

spank_err_t code_of_exception(void)
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

spank_err_t code_of(PyObject *value)
{
    if (value == NULL)
        return code_of_exception();
    Py_DECREF(value);
    return ESPANK_SUCCESS;
}

PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeFSDefault(text == NULL ? "" : text);
}

const char *kept_text(PyObject *value)
{
    PyObject *bytes = value == NULL || value == Py_None ? NULL : PyUnicode_EncodeFSDefault(value);
    const char *text = bytes == NULL ? NULL : keep(PyBytes_AsString(bytes));
    if (bytes != NULL && text == NULL)
        PyErr_NoMemory();
    Py_XDECREF(bytes);
    return text;
}
