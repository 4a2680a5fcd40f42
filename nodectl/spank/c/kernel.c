/* Finds the functions of nodectl.kernel._kernel that this library calls without Python.
 *
 * Owned here: nothing. The table belongs to _kernel, which stays loaded.
 */
#include "host.h"

const struct kernel_calls *kernel;

int kernel_begin(void)
{
    PyObject *module = PyImport_ImportModule("nodectl.kernel._kernel");
    if (module == NULL)
        return -1;
    Py_DECREF(module);
    kernel = PyCapsule_Import(KERNEL_CALLS, 0);
    return kernel == NULL ? -1 : 0;
}
