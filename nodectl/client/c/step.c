/* The quick way: runs a step that ends well and needs no message to the user. */
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
/* The longest call: the kernel executes a program with twice as many bytes of arguments and variables, whatever the
 * limit of the stack. */
enum { LONGEST_REQUEST = 64 << 10 };
enum { DIGITS_OF_A_STATUS = 3 };

/* Ends the quick way before a launch, so that Python can begin. After a Ctrl-C exits, as Python would. */
static void begin_again(struct wire *wire)
{
    sigset_t pending;
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGINT) && sigismember(&wire->blocked, SIGINT))
        _exit(130);
    unblock_signals(wire);
    close(wire->signals);
    close(wire->sock);
}

/* True if a process of this user listens at the other end. */
static bool is_own(int sock)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* True if this service, or cluster, needs no more from a client than the launch: it has no plugins for the command
 * and no warnings. */
static bool wants_nothing(const struct buffer *hello, bool is_cluster)
{
    struct value message = message_in(hello, 0);
    struct value parameters = member(message, "parameters");
    bool nothing_behind = hello->size == (size_t)(message.end - message.at) + 1;
    return nothing_behind && member(message, "error").at == NULL
        && (member(parameters, "cluster").at != NULL) == is_cluster
        && is(member(parameters, "stack"), "[]") && is(member(parameters, "warnings"), "[]");
}

/* Sends Hello to the service, then the call Launch. False if Python has to begin, or a signal came before the call:
 * once the call is sent, signals are the step's. */
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

/* Returns the exit status in a step's last event; -1 if the event has none. */
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

/* True if the user need not be told of this event. */
static bool is_quiet(struct value event)
{
    struct value kind = member(event, "event");
    return is(kind, "\"start\"")
        || (is(kind, "\"exit\"") && is(member(event, "status"), "0") && is(member(event, "out_of_memory"), "false"));
}

/* Reads events until Python has to handle one, or with `mute` until the end. Keeps all events from the first one on. If
 * the step ends well with quiet events only, exits. */
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

/* After the step's end, lets Python report it in a child process. The exit status is the step's in any case. */
static void tell_of_the_end(struct launch *launch, char **words)
{
    pid_t child = fork();
    if (child > 0) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
        _exit(launch->status);
    }
    hand_over(launch, words); /* in the child; or in this process, if it cannot fork */
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
    if (!is_known || !add_launch(&call, wanted)) /* before signals are blocked: reading files may take long */
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
    /* Python cannot be executed. Let the step go on to its end in silence, unless a signal for it was taken. */
    if (runs && !launch.took_signals)
        watch(&launch, true);
    _exit(launch.status >= 0 ? launch.status : 1); /* closes the connection, which ends the step */
}
