/* The quick way: a step that has nothing to say and ends well. */
#define _GNU_SOURCE
#include "quick.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 65536, LONGEST_REPLY = 256 << 10, LONGEST_EVENTS = 512 << 10 };
/* Of a launch: arguments and variables of twice this size can be executed with, whatever the limit of the stack. */
enum { LONGEST_REQUEST = 64 << 10 };
enum { DIGITS_OF_A_STATUS = 3 };

/* Python's part begins, before anything was launched. As a command in Python, it is over where it was interrupted. */
static void begin_again(struct wire *wire)
{
    sigset_t pending;
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGINT) && sigismember(&wire->blocked, SIGINT))
        _exit(130);
    unblock_signals(wire);
    close(wire->signals);
    close(wire->sock);
}

/* Whether this user listens there. */
static bool is_own(int sock)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* Whether this service, or cluster, wants nothing of its clients but a launch. */
static bool wants_nothing(const struct buffer *hello, bool is_cluster)
{
    struct value message = message_in(hello, 0);
    struct value parameters = member(message, "parameters");
    bool nothing_behind = hello->size == (size_t)(message.end - message.at) + 1;
    return nothing_behind && member(message, "error").at == NULL
        && (member(parameters, "cluster").at != NULL) == is_cluster
        && is(member(parameters, "stack"), "[]") && is(member(parameters, "warnings"), "[]");
}

/* Asks who the service is, and then for the step. False where Python has to begin, or a signal came before: from the
 * moment on in which the call is sent, signals are the step's. */
static bool is_agreed(struct launch *launch, const struct wanted *wanted, const struct buffer *call)
{
    static char question[] = "{\"method\":\"org.nodectl.Hello\",\"parameters\":{}}"; /* and its NUL */
    const struct buffer hello = {.data = question, .size = sizeof question};
    struct wire *wire = &launch->wire;
    if (!connect_to(wire, wanted->socket) || (wanted->of_cluster && !is_own(wire->sock)) || !prepare(launch))
        return false;
    if (send_all(wire, &hello, false) != DONE || receive(wire) != DONE)
        return false;
    if (!wants_nothing(&wire->in, wanted->of_cluster) || wire->came[0] >= 0)
        return false;
    launch->hello = wire->in;
    wire->in = (struct buffer){.limit = LONGEST_REPLY};
    return !has_signals(wire) && send_all(wire, call, true) == DONE;
}

static bool is_launched(const struct wire *wire)
{
    struct value message = message_in(&wire->in, 0);
    struct value parameters = member(message, "parameters");
    return member(message, "error").at == NULL && member(parameters, "job").at != NULL
        && member(parameters, "step").at != NULL && wire->came[1] >= 0;
}

/* The exit status that a step's last event tells; -1 where it tells none. */
static int status_in(struct value event)
{
    struct value status = member(member(event, "record"), "exit_status");
    char text[DIGITS_OF_A_STATUS + 1] = {0};
    size_t length = status.at == NULL ? 0 : (size_t)(status.end - status.at);
    if (length == 0 || length > DIGITS_OF_A_STATUS)
        return -1;
    memcpy(text, status.at, length);
    return strspn(text, "0123456789") == length ? atoi(text) : -1;
}

/* Whether an event is none that anybody is told of. */
static bool is_quiet(struct value event)
{
    struct value kind = member(event, "event");
    return is(kind, "\"start\"")
        || (is(kind, "\"exit\"") && is(member(event, "status"), "0") && is(member(event, "out_of_memory"), "false"));
}

/* Reads events until one is for Python, or with `mute` until the end. Those that were read stay, from the first one on.
 * A step of which nothing is to be told ends this process. */
static void watch(struct launch *launch, bool mute)
{
    struct buffer *events = &launch->events;
    size_t taken = 0;
    bool quiet = true;
    int fd = launch->wire.came[0];
    for (;;) {
        for (struct value next; (next = message_in(events, taken)).at != NULL;) {
            struct value event = member(member(next, "parameters"), "event");
            if (is(member(event, "event"), "\"end\""))
                launch->status = status_in(event);
            else if (!is_quiet(event))
                quiet = false;
            taken += (size_t)(next.end - next.at) + 1;
        }
        if (launch->status == 0 && quiet)
            _exit(0);
        if (launch->status >= 0 || !(quiet || mute) || wait_for(&launch->wire, fd, POLLIN) != DONE)
            return;
        char *room = room_for(events, CHUNK);
        ssize_t size = room == NULL ? -1 : read(fd, room, CHUNK);
        if (size <= 0)
            return;
        events->size += (size_t)size;
    }
}

/* The step has ended: Python tells of it in a process of its own. Whatever becomes of that, the status is the step's. */
static void tell_of_the_end(struct launch *launch, char **words)
{
    pid_t child = fork();
    if (child > 0) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
        _exit(launch->status);
    }
    hand_over(launch, words); /* in this process, where it may have no other */
    _exit(launch->status);
}

void run_step(struct wanted *wanted, char **words)
{
    struct launch launch = {
        .wire = {.sock = -1, .signals = -1, .in = {.limit = LONGEST_REPLY}, .came = {-1, -1}},
        .events = {.limit = LONGEST_EVENTS},
        .fd = -1,
        .status = -1,
    };
    struct buffer call = {.limit = LONGEST_REQUEST};
    bool is_known = is_in_allocation(wanted) ? read_allocation(wanted) : read_job(wanted);
    if (!is_known || !add_launch(&call, wanted)) /* first of all: to look at files may take its time, and be interrupted */
        return;
    if (!block_signals(&launch.wire) || !is_agreed(&launch, wanted, &call)) {
        begin_again(&launch.wire);
        return;
    }
    bool runs = receive(&launch.wire) == DONE && is_launched(&launch.wire);
    if (runs)
        watch(&launch, false);
    if (launch.status >= 0)
        tell_of_the_end(&launch, words);
    hand_over(&launch, words);
    /* There is no Python. A step goes on to its end without a word, unless somebody has a signal for it. */
    if (runs && !launch.took_signals)
        watch(&launch, true);
    _exit(launch.status >= 0 ? launch.status : 1); /* and with this connection the step */
}
