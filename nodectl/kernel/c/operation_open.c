/* Operations that open files named by a user, as that user. As in operation.c, this code calls only the kernel.
 *
 * Owned here: nothing. The exec closes the descriptors that operations open.
 */
#define _GNU_SOURCE
#include "operation.h"

#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

enum { MOST_DESCRIPTORS = 253 /* SCM_MAX_FD */, IN = 0, OUT = 1, FIRST_OF_CLIENT = -2 };
enum { TRIES = 100, PAUSE = 20 * 1000 * 1000 }; /* ns; waits two seconds in all for a missing directory */
enum { TAKES_ALL = 0, LAST_TAKES_ALL = 2 }; /* `b` of OP_TAKE_STREAMS; with another value the streams stay */

/* Returns a descriptor, or -errno. `named`: a user named the path, so do not follow /proc's links to open files. */
long open_path(const char *path, uint64_t flags, uint64_t mode, bool named)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = named ? RESOLVE_NO_MAGICLINKS : 0};
    return raw(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

/* Drops the streams in the socket when the last taker has its copies. The copies stay open, so the kernel closes no
 * file and asks no file system of a user. If recvfrom(2) fails, the streams stay visible to the socket's other users.
 */
static void drop_streams(long socket)
{
    char byte;
    raw(SYS_recvfrom, socket, &byte, 1, MSG_DONTWAIT, NULL, NULL);
}

/* Receives the client's descriptors into the launch. Returns an errno. */
long take_streams(struct launch *launch, const struct operation *operation)
{
    if (operation->b == LAST_TAKES_ALL && launch->takers == NULL)
        return EINVAL;
    char byte;
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    long size;
    while ((size = raw(SYS_recvmsg, operation->a, &message, MSG_CMSG_CLOEXEC | (operation->b == TAKES_ALL ? 0 : MSG_PEEK))) == -EINTR)
        ;
    if (size < 0)
        return -size;
    int came = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head != NULL; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= head->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, (char *)head + at, sizeof fd);
            if (came < STREAMS)
                launch->taken[came] = fd;
            else
                raw(SYS_close, fd);
            came++;
        }
    }
    if (message.msg_flags & MSG_CTRUNC)
        return EMFILE; /* this process has no number left for one of them */
    if (came != STREAMS)
        return EBADF; /* the daemon has checked that they are three */
    if (operation->b == LAST_TAKES_ALL && __atomic_sub_fetch(launch->takers, 1, __ATOMIC_SEQ_CST) == 0)
        drop_streams(operation->a);
    return 0;
}

/* Truncates a file. Returns an errno. Skips an empty file, for which O_TRUNC costs as much as for a full one. */
static long make_empty(long fd)
{
    struct stat status;
    long error = -raw(SYS_fstat, fd, &status);
    if (error || !S_ISREG(status.st_mode) || status.st_size == 0)
        return error;
    return -raw(SYS_ftruncate, fd, 0);
}

/* Returns a descriptor, or -errno. A client may make the directory of a script's output only once it knows the job's
 * number. So the script's task waits for the directory, as the user; the step runner goes on, and can kill it.
 */
static long open_output(const char *path, bool named, bool of_script)
{
    const struct timespec pause = {.tv_nsec = PAUSE};
    for (int left = of_script ? TRIES : 0;; left--) {
        long opened = open_path(path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 0666, named);
        if (opened != -ENOENT || left == 0)
            return opened;
        raw(SYS_nanosleep, &pause, NULL);
    }
}

/* Connects one stream of the task. `a`: the stream's number, and flags for its path; `b`: an open descriptor, or one of
 * the client's. Returns an errno. */
long connect_stream(struct launch *launch, const struct operation *operation)
{
    long number = operation->a & 3, source = operation->b;
    bool shared = operation->a & 4, named = !(operation->a & 8), of_script = operation->a & OF_SCRIPT;
    if (source <= FIRST_OF_CLIENT)
        source = launch->taken[FIRST_OF_CLIENT - source];
    if (operation->size > 0) {
        long opened = number == IN ? open_path(operation->data, O_RDONLY | O_NOCTTY, 0, named)
                                   : open_output(operation->data, named, of_script);
        if (opened < 0)
            return -opened;
        long error = number == IN || shared ? 0 : make_empty(opened);
        if (error)
            return error;
        if (source < 0)
            source = opened;
        else /* a relay writes the file; opening it here only checked that the user may */
            raw(SYS_close, opened);
    }
    long result = source == number ? raw(SYS_fcntl, source, F_SETFD, 0) : raw(SYS_dup3, source, number, 0);
    for (int i = 0; number == STREAMS - 1 && i < STREAMS; i++) { /* the last stream */
        if (launch->taken[i] >= STREAMS)
            raw(SYS_close, launch->taken[i]);
        launch->taken[i] = -1;
    }
    return result < 0 ? -result : 0;
}

/* Makes a directory with mode 0700, unless it exists. Returns an errno. */
long make_directory(char *room, const char *path)
{
    size_t size = strlen(path);
    if (size == 0 || size > PATH_MAX)
        return size == 0 ? ENOENT : ENAMETOOLONG;
    memcpy(room, path, size + 1);
    while (size > 1 && room[size - 1] == '/')
        room[--size] = '\0';
    char *slash = strrchr(room, '/');
    const char *name = slash == NULL ? room : slash + 1, *parent = slash == NULL ? "." : slash == room ? "/" : room;
    if (slash != NULL && slash != room)
        *slash = '\0';
    long where = open_path(parent, O_PATH | O_DIRECTORY, 0, true);
    if (where < 0)
        return -where;
    long result = raw(SYS_mkdirat, where, name, 0700);
    raw(SYS_close, where);
    if (result != -EEXIST)
        return -result;
    long there = open_path(path, O_PATH | O_DIRECTORY, 0, true);
    if (there < 0)
        return -there;
    raw(SYS_close, there);
    return 0;
}
