/* Declarations shared by the files of nodectl.spank._spank_host. Plugins see only include/slurm/spank.h.
 *
 * Each file calls only what stands below it (tests/lint/test_c_sources.py):
 *
 *   host.c         the module
 *   load.c         loads a plugin, and describes its contents
 *   container.c    makes Python callables of the functions of job_container plugins
 *   walk.c         calls one hook of many plugins in one call
 *   link.c         binds symbols of a plugin that ld.so left unbound
 *   libslurm.c     functions of libslurm: host lists, errors
 *   job.c          slurm_load_job
 *   message.c      messages of plugins
 *   option.c       options
 *   environment.c  environments, the task's arguments
 *   item.c         spank_get_item and related functions
 *   python.c       calls of nodectl.spank
 *   hook.c         makes Python callables of plugins' functions
 *   guard.c        one call into a plugin, and the ways out of the call
 *   handle.c       the handle that plugins get
 *   kernel.c       the functions of nodectl.kernel._kernel
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

/* The module is also preloaded into programs other than Python, and must not break them. Functions are bound when they
 * are called, but data at once, so these symbols are weak. */
#pragma weak _Py_NoneStruct
#pragma weak PyExc_OSError
#pragma weak PyExc_RuntimeError
#pragma weak PyExc_TypeError
#pragma weak PyExc_ValueError
#pragma weak PyCFunction_Type

#define EXPORTED __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

/* --- memory.c: memory that lives as long as the process --------------------------------------------------------- */

HIDDEN const char *keep(const char *text); /* returns the same pointer for the same text; NULL if memory is short */
/* Returns zeroed memory; NULL if memory is short. The pieces lie side by side, because every stepd writes to them, and
 * each page that a stepd writes to is copied. */
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
HIDDEN void handle_use(PyObject *sp);            /* sets the Spank of the next hook */
HIDDEN int handle_set_plugin(PyObject *stacked); /* tells Python whose hook runs; -1 with an exception */
HIDDEN spank_t handle_of_plugins(void);
HIDDEN bool handle_is(spank_t sp); /* true if `sp` is the plugins' handle, and a hook has run */
HIDDEN PyObject *handle_sp(void);  /* borrowed; NULL before the first hook */
HIDDEN int handle_context(void);   /* S_CTX_*, -1 with an exception; no call of spank_context, which probes note */

/* --- guard.c ---------------------------------------------------------------------------------------------------- */

struct call {
    const char *plugin, *hook;
    int (*enter)(struct call *); /* calls the plugin's function, within a larger struct */
    int context;                 /* S_CTX_* of this process */
    PyObject *stacked;           /* the plugin in its stack, until Python has been told whose call this is; then NULL */
};

enum { DEADLY_SIGNALS = 5 };
struct watch { /* the signals of one call, or of several in a row */
    struct sigaction clock_before, deaths_before[DEADLY_SIGNALS];
    bool clocked, tells;
};
HIDDEN void guard_begin(struct watch *watch, int context);
HIDDEN void guard_again(const struct watch *watch); /* before another call: a plugin may have changed SIGALRM */
HIDDEN void guard_end(const struct watch *watch);

/* Runs call->enter with the GIL released. Returns 0 with *rc, or -1 with a Python exception. */
HIDDEN int guard(const struct watch *watch, struct call *call, int *rc);

/* Leaves the call that runs in this thread. The call then raises RuntimeError(text); text is copied. */
HIDDEN void guard_leave(const char *text) __attribute__((noreturn));

/* exit(3), quick_exit(3) and _exit(2) for plugins: in the command of a user they leave the call that runs. */
HIDDEN void plain_exit(int status) __attribute__((noreturn));
HIDDEN void plain_quick_exit(int status) __attribute__((noreturn));
HIDDEN void plain_exit_at_once(int status) __attribute__((noreturn));

/* The name of the plugin whose call runs in this thread; "" for none. */
HIDDEN const char *guard_plugin(void);

/* Takes the current exception; the running call raises it at its end. */
HIDDEN void guard_keep_exception(void);

/* These two enclose each use of Python by a plugin's call; both keep errno. */
struct visit {
    PyGILState_STATE gil;
    int saved_errno;
    bool of_call;
};
HIDDEN void visit_begin(struct visit *visit);
HIDDEN void visit_end(struct visit *visit); /* leaves the call if its time is over */

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

HIDDEN PyObject *run_call(struct call *call); /* returns the function's int; NULL with an exception */
HIDDEN struct hook *hook_of(PyObject *function); /* of a callable from hook_callable; NULL with an exception */
HIDDEN struct hook_call call_of(const struct hook *hook, int ac, char **argv);
/* Returns the same array for the same arguments in every hook of the plugin; NULL with an exception. */
HIDDEN char **argv_of(struct plugin *plugin, PyObject *words);
/* Makes a callable with `data`, which is never freed. NULL with an exception, also if `data` is NULL. */
HIDDEN PyObject *callable(PyMethodDef *method, void *data);
HIDDEN PyObject *hook_callable(struct plugin *plugin, const char *name, void *function);
HIDDEN PyObject *callback_callable(const char *plugin, spank_opt_cb_f function); /* None for NULL */
HIDDEN PyObject *failure_mode_callable(void *mode); /* the callable reads the int at `mode`; None for NULL */

/* --- python.c --------------------------------------------------------------------------------------------------- */

HIDDEN int python_begin(void); /* at import; -1 with an exception */
/* Calls nodectl.spank.<function>(...). The format is Py_BuildValue's, in parentheses. NULL with an exception. */
HIDDEN PyObject *python_call(const char *function, const char *format, ...);
/* Both release `value`; NULL means that an exception is set. */
HIDDEN long number_of(PyObject *value); /* -1 on an exception, which is kept for the end of the plugin's call */
HIDDEN spank_err_t code_of(PyObject *value);
/* Returns the current exception as a code, and clears it. If it is no SpankError, the call raises it at its end. */
HIDDEN spank_err_t code_of_exception(void);
HIDDEN PyObject *text_of(const char *text);    /* "" for NULL; no variable and no option has that name */
HIDDEN const char *kept_text(PyObject *value); /* text that is never freed; NULL for None, and with an exception */

/* --- item.c ----------------------------------------------------------------------------------------------------- */

/* Updates the array of S_JOB_ENV, so that a plugin that keeps it sees its own changes. */
HIDDEN void item_follow_environment(void);

/* --- message.c -------------------------------------------------------------------------------------------------- */

HIDDEN void plain_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* --- link.c ----------------------------------------------------------------------------------------------------- */

/* Binds symbols that ld.so cannot bind in the library of a dlopen handle. Returns a new list of the names of functions
 * that no library provides; NULL with an exception. */
HIDDEN PyObject *link_plugin(void *handle);
HIDDEN void *link_global(const char *name); /* the symbol that every plugin finds by this name */
/* As dlsym, but only finds symbols of the plugin itself: any library that the plugin needs may have an init() too. */
HIDDEN void *own_symbol(void *handle, const char *name);

/* --- walk.c ----------------------------------------------------------------------------------------------------- */

HIDDEN PyObject *make_compiled_hook(PyObject *self, PyObject *rows);
HIDDEN extern const char compiled_hook_doc[];

/* --- container.c ------------------------------------------------------------------------------------------------ */

HIDDEN int container_begin(void); /* at import; -1 with an exception */
/* Returns a dict of the functions, by name, in the library of a dlopen handle; NULL with an exception. */
HIDDEN PyObject *container_functions(void *handle, const char *plugin);

/* --- load.c ----------------------------------------------------------------------------------------------------- */

HIDDEN int load_begin(PyObject *module); /* at import: gives the module its type Library; -1 with an exception */
HIDDEN PyObject *load_plugin(const char *path); /* a Library; NULL with an exception */

#endif
