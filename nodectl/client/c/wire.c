/* Messages over a local socket, each ended by a NUL, with descriptors beside them; and signals, which stay pending
 * until this program exits or hands them to Python. */
#define _GNU_SOURCE
#include "quick.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CHUNK = 65536, MOST_DESCRIPTORS = 253 /* SCM_MAX_FD */, STREAMS = 3 };

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

bool block_signals(struct wire *wire)
{
    sigset_t before;
    sigemptyset(&wire->blocked);
    if (sigprocmask(SIG_BLOCK, NULL, &before) != 0)
        return false;
    for (size_t index = 0; index < sizeof forwarded / sizeof *forwarded; index++) {
        struct sigaction action;
        if (sigaction(forwarded[index], NULL, &action) != 0)
            return false;
        /* A blocked signal becomes pending even if it is ignored. So leave ignored ones alone, for nohup(1). */
        if (action.sa_handler != SIG_IGN && !sigismember(&before, forwarded[index]))
            sigaddset(&wire->blocked, forwarded[index]);
    }
    wire->signals = signalfd(-1, &wire->blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    return wire->signals >= 0 && sigprocmask(SIG_BLOCK, &wire->blocked, NULL) == 0;
}

void unblock_signals(const struct wire *wire)
{
    sigprocmask(SIG_UNBLOCK, &wire->blocked, NULL);
}

bool has_signals(const struct wire *wire)
{
    struct pollfd ready = {.fd = wire->signals, .events = POLLIN};
    return poll(&ready, 1, 0) != 0;
}

int next_signal(const struct wire *wire)
{
    struct signalfd_siginfo found;
    return read(wire->signals, &found, sizeof found) == sizeof found ? (int)found.ssi_signo : 0;
}

bool connect_to(struct wire *wire, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, path, length);
    wire->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (wire->sock < 0 || connect(wire->sock, (struct sockaddr *)&address, sizeof address) != 0)
        return false;
    return fcntl(wire->sock, F_SETFL, 0) == 0; /* blocking, as Python would have made the socket */
}

enum outcome wait_for(const struct wire *wire, int fd, short events)
{
    struct pollfd ready[] = {{.fd = fd, .events = events}, {.fd = wire->signals, .events = POLLIN}};
    while (poll(ready, 2, -1) < 0)
        if (errno != EINTR)
            return BROKEN;
    if (ready[0].revents & (POLLERR | POLLNVAL))
        return BROKEN;
    return ready[0].revents ? DONE : SIGNALLED;
}

enum outcome send_all(const struct wire *wire, const struct buffer *buffer, bool streams)
{
    static const int standard[STREAMS] = {0, 1, 2};
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof standard)] = {0};
    size_t sent = 0;
    while (sent < buffer->size) {
        struct iovec data = {buffer->data + sent, buffer->size - sent};
        struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
        if (streams && sent == 0) {
            message.msg_control = room;
            message.msg_controllen = sizeof room;
            struct cmsghdr *head = CMSG_FIRSTHDR(&message);
            *head = (struct cmsghdr){CMSG_LEN(sizeof standard), SOL_SOCKET, SCM_RIGHTS};
            memcpy(CMSG_DATA(head), standard, sizeof standard);
        }
        ssize_t size = sendmsg(wire->sock, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (size > 0) {
            sent += (size_t)size;
        } else if (size < 0 && errno == EAGAIN) {
            enum outcome outcome = wait_for(wire, wire->sock, POLLOUT);
            if (outcome != DONE)
                return outcome;
        } else if (size == 0 || errno != EINTR) {
            return BROKEN;
        }
    }
    return DONE;
}

/* Keeps the first two descriptors, and closes the others: no reply to this program has more. */
static void keep(struct wire *wire, struct msghdr *message)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= head->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, (char *)head + at, sizeof fd);
            if (wire->came[0] < 0)
                wire->came[0] = fd;
            else if (wire->came[1] < 0)
                wire->came[1] = fd;
            else
                close(fd);
        }
    }
}

enum outcome receive(struct wire *wire)
{
    while (message_in(&wire->in, 0).at == NULL) {
        enum outcome outcome = wait_for(wire, wire->sock, POLLIN);
        if (outcome != DONE)
            return outcome;
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
        struct iovec data = {room_for(&wire->in, CHUNK), CHUNK};
        struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        if (data.iov_base == NULL)
            return BROKEN;
        ssize_t size = recvmsg(wire->sock, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (size > 0) {
            wire->in.size += (size_t)size;
            keep(wire, &message);
        } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
            return BROKEN;
        }
    }
    return DONE;
}

struct value message_in(const struct buffer *buffer, size_t from)
{
    const char *begin = buffer->data + from;
    const char *end = buffer->size > from ? memchr(begin, '\0', buffer->size - from) : NULL;
    return end == NULL ? (struct value){NULL, NULL} : (struct value){begin, end};
}
