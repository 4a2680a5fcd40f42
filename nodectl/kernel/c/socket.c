/* Single system calls on a socket given by its number. Python's socket object and its methods would cost a fresh fork
 * some twenty pages.
 *
 * Owned here: nothing. Received descriptors belong to the caller.
 */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { MOST_DESCRIPTORS = 253 /* SCM_MAX_FD */, MOST_GROUPS = 4096 };

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59 /* the same on every architecture but parisc and sparc */
#endif

PyDoc_STRVAR(say_doc,
"say(socket: int, data: bytes) -> bool\n\n"
"Sends what there is room for at once, send(2). False when nothing was sent: the other end has gone, or does not read.");

static PyObject *say(PyObject *self, PyObject *args)
{
    (void)self;
    int fd;
    const char *data;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "iy#", &fd, &data, &size))
        return NULL;
    return PyBool_FromLong(send(fd, data, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0);
}

PyDoc_STRVAR(has_come_doc,
"has_come(socket: int) -> bool\n\n"
"True when something is there to be received; it stays there, as do descriptors that came with it: recv(2), MSG_PEEK.\n"
"Raises OSError: EPIPE where nothing will ever come.");

static PyObject *has_come(PyObject *self, PyObject *arg)
{
    (void)self;
    int fd;
    char byte;
    if (!PyArg_Parse(arg, "i", &fd))
        return NULL;
    ssize_t size = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (size > 0)
        Py_RETURN_TRUE;
    if (size < 0 && errno == EAGAIN)
        Py_RETURN_FALSE;
    if (size == 0)
        errno = EPIPE;
    return failed("recv");
}

PyDoc_STRVAR(take_descriptors_doc,
"take_descriptors(socket: int, stay: bool) -> list[int]\n\n"
"Receives one byte, waiting for it, and the descriptors that came with it, closed at an exec: recvmsg(2). With `stay`\n"
"byte and descriptors remain there, too, and these are copies. Raises OSError: EMFILE where not all have come.");

static PyObject *take_descriptors(PyObject *self, PyObject *args)
{
    (void)self;
    int fd, stay;
    if (!PyArg_ParseTuple(args, "ip", &fd, &stay))
        return NULL;
    char byte;
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t size;
    while ((size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | (stay ? MSG_PEEK : 0))) < 0 && errno == EINTR)
        if (PyErr_CheckSignals() != 0)
            return NULL;
    if (size < 0)
        return failed("recvmsg");
    PyObject *found = PyList_New(0);
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head != NULL && found != NULL; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= head->cmsg_len && found != NULL; at += sizeof(int)) {
            int came;
            memcpy(&came, (char *)head + at, sizeof came);
            PyObject *number = PyLong_FromLong(came);
            if (number == NULL || PyList_Append(found, number) != 0)
                Py_CLEAR(found);
            Py_XDECREF(number);
        }
    }
    if (found == NULL || !(message.msg_flags & MSG_CTRUNC))
        return found;
    for (Py_ssize_t at = 0; at < PyList_Size(found); at++)
        close((int)PyLong_AsLong(PyList_GetItem(found, at)));
    Py_DECREF(found);
    errno = EMFILE; /* this process has no number left for one of them */
    return failed("recvmsg");
}

PyDoc_STRVAR(peer_groups_doc,
"peer_groups(socket: int) -> list[int]\n\n"
"The supplementary groups of a local socket's peer when it connected: SO_PEERGROUPS, Linux 4.13. None where they are\n"
"more than 4096. Raises OSError.");

static PyObject *peer_groups(PyObject *self, PyObject *arg)
{
    (void)self;
    int fd;
    if (!PyArg_Parse(arg, "i", &fd))
        return NULL;
    gid_t groups[MOST_GROUPS];
    socklen_t size = sizeof groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0) {
        if (errno != ERANGE)
            return failed("getsockopt");
        size = 0;
    }
    Py_ssize_t count = (Py_ssize_t)(size / sizeof(gid_t));
    PyObject *found = PyList_New(count);
    for (Py_ssize_t at = 0; at < count && found != NULL; at++) {
        PyObject *number = PyLong_FromUnsignedLong(groups[at]);
        if (number == NULL || PyList_SetItem(found, at, number) != 0) /* steals the reference, even if it fails */
            Py_CLEAR(found);
    }
    return found;
}

PyMethodDef socket_methods[] = {
    {"say", say, METH_VARARGS, say_doc},
    {"has_come", has_come, METH_O, has_come_doc},
    {"take_descriptors", take_descriptors, METH_VARARGS, take_descriptors_doc},
    {"peer_groups", peer_groups, METH_O, peer_groups_doc},
    {NULL, NULL, 0, NULL},
};
