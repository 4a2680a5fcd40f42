/* Memory that a process and its children share: the first bytes of a file.
 *
 * Owned here: the mapping. Its object lives as long as a memoryview of it.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <sys/mman.h>

struct shared {
    PyObject_HEAD
    void *memory;
    Py_ssize_t size;
};

static PyTypeObject *type;

static int view(PyObject *self, Py_buffer *buffer, int flags)
{
    struct shared *shared = (struct shared *)self;
    return PyBuffer_FillInfo(buffer, self, shared->memory, shared->size, 0, flags);
}

static void unmap(PyObject *self)
{
    struct shared *shared = (struct shared *)self;
    PyTypeObject *own = Py_TYPE(self);
    if (shared->memory != NULL)
        munmap(shared->memory, (size_t)shared->size);
    PyObject_Free(self);
    Py_DECREF(own);
}

static PyType_Slot slots[] = {
    {Py_bf_getbuffer, view},
    {Py_tp_dealloc, unmap},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "nodectl.kernel._kernel.Shared",
    .basicsize = sizeof(struct shared),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

PyDoc_STRVAR(shared_doc,
"shared(fd: int, size: int) -> memoryview\n\n"
"The first bytes of a file as memory that this process and its children share, until the view has gone: mmap(2).\n"
"Unlike Python's mmap it keeps no descriptor.");

static PyObject *shared(PyObject *self, PyObject *args)
{
    (void)self;
    int fd;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "in", &fd, &size))
        return NULL;
    if (type == NULL && (type = (PyTypeObject *)PyType_FromSpec(&spec)) == NULL)
        return NULL;
    struct shared *made = PyObject_New(struct shared, type);
    if (made == NULL)
        return NULL;
    made->size = size;
    made->memory = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made->memory == MAP_FAILED) {
        made->memory = NULL;
        Py_DECREF(made);
        return failed("mmap");
    }
    PyObject *seen = PyMemoryView_FromObject((PyObject *)made);
    Py_DECREF(made);
    return seen;
}

PyMethodDef shared_methods[] = {
    {"shared", shared, METH_VARARGS, shared_doc},
    {NULL, NULL, 0, NULL},
};
