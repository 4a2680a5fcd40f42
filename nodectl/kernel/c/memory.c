/* Memory policy: set_mempolicy(2), get_mempolicy(2).
 *
 * Owned here: nothing.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A set of NUMA nodes as the kernel takes it. MAX_NUMNODES is 1024 where it is largest. */
enum { MOST_NODES = 1024, NODE_BYTES = MOST_NODES / 8, LONG_BITS = 8 * (int)sizeof(long) };

PyDoc_STRVAR(set_mempolicy_doc,
"set_mempolicy(mode: int, nodes: Iterable[int]) -> None\n\n"
"The memory policy of the caller, kept by what it executes: set_mempolicy(2). mode is MPOL_*; nodes are the NUMA nodes\n"
"by their numbers. Raises OSError: EINVAL for a node that there is not, or none of which the caller may use.");

static PyObject *set_mempolicy(PyObject *self, PyObject *args)
{
    (void)self;
    int mode;
    PyObject *nodes, *node;
    unsigned long mask[NODE_BYTES / sizeof(long)] = {0};
    if (!PyArg_ParseTuple(args, "iO", &mode, &nodes) || (nodes = PyObject_GetIter(nodes)) == NULL)
        return NULL;
    while ((node = PyIter_Next(nodes)) != NULL) {
        long number = PyLong_AsLong(node);
        Py_DECREF(node);
        if (number >= 0 && number < MOST_NODES)
            mask[number / LONG_BITS] |= 1UL << number % LONG_BITS;
        else if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "set_mempolicy: %ld is no NUMA node", number);
    }
    Py_DECREF(nodes);
    if (PyErr_Occurred())
        return NULL;
    /* One more than the bits that count: the kernel leaves out the last. No nodes at all is a null mask. */
    bool empty = true;
    for (size_t i = 0; i < sizeof mask / sizeof *mask; i++)
        empty = empty && mask[i] == 0;
    long result = syscall(SYS_set_mempolicy, mode, empty ? NULL : mask, empty ? 0UL : MOST_NODES + 1UL);
    return none_or_failed(result, "set_mempolicy");
}

PyDoc_STRVAR(get_mempolicy_doc,
"get_mempolicy() -> tuple[int, list[int]]\n\n"
"The memory policy of the caller, mode and NUMA nodes: get_mempolicy(2). Raises OSError.");

static PyObject *get_mempolicy(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    int mode;
    unsigned long mask[NODE_BYTES / sizeof(long)] = {0};
    if (syscall(SYS_get_mempolicy, &mode, mask, (unsigned long)MOST_NODES, NULL, 0UL) != 0)
        return failed("get_mempolicy");
    PyObject *nodes = PyList_New(0);
    for (long number = 0; nodes != NULL && number < MOST_NODES; number++) {
        if ((mask[number / LONG_BITS] >> number % LONG_BITS & 1) == 0)
            continue;
        PyObject *item = PyLong_FromLong(number);
        if (item == NULL || PyList_Append(nodes, item) != 0)
            Py_CLEAR(nodes);
        Py_XDECREF(item);
    }
    return nodes == NULL ? NULL : Py_BuildValue("iN", mode, nodes);
}

PyMethodDef memory_methods[] = {
    {"set_mempolicy", set_mempolicy, METH_VARARGS, set_mempolicy_doc},
    {"get_mempolicy", get_mempolicy, METH_NOARGS, get_mempolicy_doc},
    {NULL, NULL, 0, NULL},
};
