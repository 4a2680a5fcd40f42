/* What the files of nodectl.spank._spank_host share. Nothing here is seen by plugins; that is include/slurm/spank.h. */
#ifndef NODECTL_SPANK_HOST_H
#define NODECTL_SPANK_HOST_H

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

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

/* --- guard.c: one call into a plugin, and the ways out of it ---------------------------------- */

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

/* Whose call runs in this thread, "" for nobody's. */
HIDDEN const char *guard_plugin(void);

/* Around each use of Python by a plugin's call; errno passes through both. */
struct visit {
    PyGILState_STATE gil;
    int saved_errno;
    bool of_call;
};
HIDDEN void visit_begin(struct visit *visit);
HIDDEN void visit_end(struct visit *visit); /* does not return when the call's time is over */

/* Takes the current exception; the call that is running raises it in the end. */
HIDDEN void guard_keep_exception(void);

/* --- link.c: what ld.so has left to be bound ---------------------------------------------------- */

/* Binds what only we know how to bind in the library of a dlopen handle. Returns a new list of the names of
 * functions that nobody provides; NULL with an exception. */
HIDDEN PyObject *link_plugin(void *handle);
HIDDEN void *link_global(const char *name); /* what every plugin finds under this name */

/* --- memory.c: memory that plugins keep pointers to: it lives as long as the process ------------ */

HIDDEN const char *keep(const char *text); /* the same pointer for the same text; NULL without memory */

struct live_vector { /* a NULL-terminated char ** that follows a Python list or dict */
    char **strings;
    size_t room;
};
/* `words`: list of str, or dict of str (as "K=V"). Returns 0, or -1 with an exception. */
HIDDEN int live_update(struct live_vector *vector, PyObject *words);

/* --- api.c: the exported functions ---------------------------------------------------------------- */

HIDDEN int api_begin(void); /* at import; -1 with an exception */
HIDDEN void api_use(PyObject *sp);
HIDDEN void api_plugin(PyObject *stacked); /* whose call it is, for what Python decides */
HIDDEN int api_context(void); /* S_CTX_*, -1 with an exception */
HIDDEN spank_t api_handle(void);
HIDDEN PyObject *api_job(uint32_t job_id, uint16_t flags, int *number); /* a dict of members; NULL with an error's number */

HIDDEN void plain_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* --- host.c ------------------------------------------------------------------------------------------ */

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

HIDDEN struct hook *hook_of(PyObject *callable); /* of one of our own making; NULL with an exception */
HIDDEN struct hook_call call_of(const struct hook *hook, int ac, char **argv);
/* The same array for the same arguments, in every hook of the plugin; NULL with an exception. */
HIDDEN char **argv_of(struct plugin *plugin, PyObject *words);
/* A callable with `data`, which belongs to it: that is, stays. Frees nothing; NULL with an exception. */
HIDDEN PyObject *callable(PyMethodDef *method, void *data);

/* The Python callable for an option's callback; NULL with an exception. */
HIDDEN PyObject *callback_of(const char *plugin, spank_opt_cb_f function);

/* --- walk.c: a hook of many plugins in one call ------------------------------------------------------ */

HIDDEN int walk_begin(void); /* at import; -1 with an exception */
HIDDEN bool walk_has_heir(void); /* in a signal handler: a child has taken the hook's place, whose clock is stopped */
HIDDEN PyObject *walk_lane(PyObject *self, PyObject *rows);
HIDDEN extern const char walk_lane_doc[];

#endif
