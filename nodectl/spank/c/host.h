/* What the files of nodectl.spank._spank_host share. Nothing here is seen by plugins; that is include/slurm/spank.h.
 *
 * Each file calls only what stands below it (tests/lint/test_c_sources.py):
 *
 *   host.c         the module
 *   load.c         loads a plugin, and says what is in it
 *   container.c    the functions of job_container plugins as callables of Python
 *   walk.c         one hook of many plugins in one call
 *   link.c         binds what ld.so has left to be bound in a plugin
 *   libslurm.c     functions of libslurm: host lists, errors
 *   job.c          slurm_load_job
 *   message.c      what plugins log
 *   option.c       options
 *   environment.c  environments, the task's arguments
 *   item.c         spank_get_item and what stands around it
 *   python.c       calls of nodectl.spank
 *   hook.c         the functions of plugins as callables of Python
 *   guard.c        one call into a plugin, and the ways out of it
 *   handle.c       the handle that plugins are given
 *   kernel.c       what nodectl.kernel._kernel does for this library
 *   memory.c       memory that plugins keep pointers to
 */
#ifndef NODECTL_SPANK_HOST_H
#define NODECTL_SPANK_HOST_H

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel_calls.h"

#include <slurm/spank.h>

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* The module is preloaded, and a program that is no Python must survive that: functions are bound when they are
 * called, data is needed at once. */
#pragma weak _Py_NoneStruct
#pragma weak PyExc_OSError
#pragma weak PyExc_RuntimeError
#pragma weak PyExc_TypeError
#pragma weak PyExc_ValueError
#pragma weak PyCFunction_Type

#define EXPORTED __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

/* --- memory.c: it is given once, and lives as long as the process ----------------------------------------------- */

HIDDEN const char *keep(const char *text); /* the same pointer for the same text; NULL without memory */
/* Zeroed, side by side: every stepd writes to it, and each page that it writes to is copied. NULL without memory. */
HIDDEN void *keep_zeroed(size_t size);

struct live_vector { /* a NULL-terminated char ** that follows a Python list or dict */
    char **strings;
    size_t room;
};
/* `words`: list of str, or dict of str (as "K=V"). Returns 0, or -1 with an exception. */
HIDDEN int live_update(struct live_vector *vector, PyObject *words);

/* --- kernel.c --------------------------------------------------------------------------------------------------- */

HIDDEN int kernel_begin(void); /* at import; -1 with an exception */
HIDDEN extern const struct kernel_calls *kernel;

/* --- handle.c --------------------------------------------------------------------------------------------------- */

HIDDEN int handle_begin(void);                   /* at import; -1 with an exception */
HIDDEN void handle_use(PyObject *sp);            /* the hook that runs next is this Spank's */
HIDDEN int handle_set_plugin(PyObject *stacked); /* whose hook it is, for what Python decides; -1 with an exception */
HIDDEN spank_t handle_of_plugins(void);
HIDDEN bool handle_is(spank_t sp); /* it is what plugins were given, and a hook has run */
HIDDEN PyObject *handle_sp(void);  /* borrowed; NULL before the first hook */
HIDDEN int handle_context(void);   /* S_CTX_*, -1 with an exception; not spank_context, whose callers a probe notes */

/* --- guard.c ---------------------------------------------------------------------------------------------------- */

struct call {
    const char *plugin, *hook;
    int (*enter)(struct call *); /* calls the plugin's function, within a larger struct */
    int context;                 /* S_CTX_* of this process */
    PyObject *stacked;           /* the plugin in its stack, where Python has not been told yet whose call this is */
};

enum { DEADLY_SIGNALS = 5 };
struct watch { /* the signals of one call, or of several in a row */
    struct sigaction clock_before, deaths_before[DEADLY_SIGNALS];
    bool clocked, tells;
};
HIDDEN void guard_begin(struct watch *watch, int context);
HIDDEN void guard_again(const struct watch *watch); /* before another call: a plugin may have taken the clock's signal */
HIDDEN void guard_end(const struct watch *watch);

/* Runs call->enter with the GIL released. Returns 0 with *rc, or -1 with a Python exception. */
HIDDEN int guard(const struct watch *watch, struct call *call, int *rc);

/* Leaves the call that runs in this thread: the call raises RuntimeError(text); text is copied. */
HIDDEN void guard_leave(const char *text) __attribute__((noreturn));

/* exit(3), quick_exit(3) and _exit(2) for plugins: in the command of a user they leave the call that runs. */
HIDDEN void plain_exit(int status) __attribute__((noreturn));
HIDDEN void plain_quick_exit(int status) __attribute__((noreturn));
HIDDEN void plain_exit_at_once(int status) __attribute__((noreturn));

/* Whose call runs in this thread, "" for nobody's. */
HIDDEN const char *guard_plugin(void);

/* Takes the current exception; the call that is running raises it in the end. */
HIDDEN void guard_keep_exception(void);

/* Around each use of Python by a plugin's call; errno passes through both. */
struct visit {
    PyGILState_STATE gil;
    int saved_errno;
    bool of_call;
};
HIDDEN void visit_begin(struct visit *visit);
HIDDEN void visit_end(struct visit *visit); /* does not return when the call's time is over */

/* --- hook.c ----------------------------------------------------------------------------------------------------- */

struct arguments;
struct plugin {
    const char *name;
    struct arguments *known;
};
struct hook {
    struct plugin *plugin;
    const char *name;
    void *function;
};
struct hook_call {
    struct call call;
    void *function;
    int ac;
    char **argv;
};

HIDDEN PyObject *run_call(struct call *call); /* what it returns, as an int; NULL with an exception */
HIDDEN struct hook *hook_of(PyObject *function); /* of a callable that hook_callable made; NULL with an exception */
HIDDEN struct hook_call call_of(const struct hook *hook, int ac, char **argv);
/* The same array for the same arguments, in every hook of the plugin; NULL with an exception. */
HIDDEN char **argv_of(struct plugin *plugin, PyObject *words);
/* A callable with `data`, which stays; NULL with an exception, also where `data` is NULL. */
HIDDEN PyObject *callable(PyMethodDef *method, void *data);
HIDDEN PyObject *hook_callable(struct plugin *plugin, const char *name, void *function);
HIDDEN PyObject *callback_callable(const char *plugin, spank_opt_cb_f function); /* None for NULL */
HIDDEN PyObject *failure_mode_callable(void *mode); /* reads the number that is there; None for NULL */

/* --- python.c --------------------------------------------------------------------------------------------------- */

HIDDEN int python_begin(void); /* at import; -1 with an exception */
/* nodectl.spank.<function>(...), the arguments as for Py_BuildValue, in parentheses. NULL with an exception. */
HIDDEN PyObject *python_call(const char *function, const char *format, ...);
/* Both release `value`, which is NULL with an exception. */
HIDDEN long number_of(PyObject *value); /* -1 with the exception kept for the end of the plugin's call */
HIDDEN spank_err_t code_of(PyObject *value);
/* The exception that is set as a code, and gone. One that is no SpankError ends the hook when it returns. */
HIDDEN spank_err_t code_of_exception(void);
HIDDEN PyObject *text_of(const char *text);    /* NULL is "", which no variable and no option is called */
HIDDEN const char *kept_text(PyObject *value); /* text that stays, of a str; NULL for None, and with an exception */

/* --- item.c ----------------------------------------------------------------------------------------------------- */

/* A plugin that holds the array of S_JOB_ENV sees what it has changed. */
HIDDEN void item_follow_environment(void);

/* --- message.c -------------------------------------------------------------------------------------------------- */

HIDDEN void plain_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* --- link.c ----------------------------------------------------------------------------------------------------- */

/* Binds what only we know how to bind in the library of a dlopen handle. Returns a new list of the names of
 * functions that nobody provides; NULL with an exception. */
HIDDEN PyObject *link_plugin(void *handle);
HIDDEN void *link_global(const char *name); /* what every plugin finds under this name */
/* As dlsym, but of the plugin itself: any library that it needs may have an init() too. */
HIDDEN void *own_symbol(void *handle, const char *name);

/* --- walk.c ----------------------------------------------------------------------------------------------------- */

HIDDEN PyObject *make_compiled_hook(PyObject *self, PyObject *rows);
HIDDEN extern const char compiled_hook_doc[];

/* --- container.c ------------------------------------------------------------------------------------------------ */

HIDDEN int container_begin(void); /* at import; -1 with an exception */
/* By name, those that are in the library of a dlopen handle; NULL with an exception. */
HIDDEN PyObject *container_functions(void *handle, const char *plugin);

/* --- load.c ----------------------------------------------------------------------------------------------------- */

HIDDEN int load_begin(PyObject *module); /* at import: gives the module its type Library; -1 with an exception */
HIDDEN PyObject *load_plugin(const char *path); /* a Library; NULL with an exception */

#endif
