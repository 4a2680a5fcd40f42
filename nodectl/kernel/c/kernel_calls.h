/* Functions of nodectl.kernel._kernel that nodectl.spank._spank_host calls without Python: the capsule KERNEL_CALLS. */
#ifndef NODECTL_KERNEL_CALLS_H
#define NODECTL_KERNEL_CALLS_H

#include <stdbool.h>

#define KERNEL_CALLS "nodectl.kernel._kernel.calls"

struct kernel_calls {
    int (*clock_go_on)(double seconds, double deadline); /* set_clock() for a walk's next hook; returns -1 with errno */
    void (*clock_stop)(void);                            /* stop_clock() */
    bool (*clock_is_over)(void);                         /* the same in clock.c */
    void (*successor_expect)(void *place); /* the same in clock.c */
    bool (*successor_is)(void);
    bool (*successor_elsewhere)(void);
    void (*successor_await)(void);
    /* As write_row(); `facts` are pieces of text, the last one NULL. */
    bool (*trace_line)(int fd, long long started, const char *const facts[], const char *rc, const char *note);
};

#endif
