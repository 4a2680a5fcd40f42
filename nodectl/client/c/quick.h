/* `nodectl`: a step that wants nothing unusual is launched here, without an interpreter; all else is Python's, beside
 * this program as `nodectl-python`. Nothing is done in two ways: what is said to the user, and what is done about a
 * signal, a refusal or a task that failed, Python says and does, and goes on where this program has come to.
 *
 * The order of the files; each calls only what stands below it:
 *
 *   main.c      which way a command goes
 *   step.c      the quick way: asks, launches, reads events until the end
 *   python.c    the other way: from the beginning, or from a step that was launched
 *   request.c   what is asked for
 *   program.c   whether a program is one of MPI's
 *   cluster.c   the cluster of the allocation in which a command was typed
 *   job.c       variables, and the job in which a command was typed
 *   words.c     the options
 *   wire.c      messages, and signals that come meanwhile
 *   json.c      texts into a message, values out of one
 *   buffer.c    bytes
 */
#ifndef NODECTL_QUICK_H
#define NODECTL_QUICK_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes that grow, up to a limit; what does not fit, or finds no memory, leaves `failed`. */
struct buffer {
    char *data;
    size_t size, room, limit;
    bool failed;
};

void add(struct buffer *buffer, const char *bytes, size_t size);
void add_text(struct buffer *buffer, const char *text);
void add_number(struct buffer *buffer, long long number);

/* Room for `size` more bytes at the end, NULL where there is none. */
char *room_for(struct buffer *buffer, size_t size);

/* A JSON string of bytes that are UTF-8; else `failed`. Sets `*beyond_ascii` where they are more than ASCII. */
void add_string(struct buffer *buffer, const char *bytes, size_t size, bool *beyond_ascii);

/* A part of a message that is JSON as the service writes it: no blanks, no key twice. */
struct value {
    const char *at, *end;
};

/* The member of an object by its name; nothing, {NULL, NULL}, where there is none. */
struct value member(struct value object, const char *name);

/* Whether that is its text: a number, true, a string with its quotes. */
bool is(struct value value, const char *text);

/* A connection, and what has come on it beyond what was taken. */
struct wire {
    int sock;
    int signals;    /* signalfd(2) of those in `blocked`; they stay pending */
    sigset_t blocked; /* that this program has blocked, and nobody before it */
    struct buffer in;
    int came[2];    /* descriptors that came, -1 for none */
};

enum outcome { DONE, SIGNALLED, BROKEN };

/* Blocks what a command passes on to its step. False where that cannot be. */
bool block_signals(struct wire *wire);
void unblock_signals(const struct wire *wire);

/* Whether one of them waits, or that cannot be told. */
bool has_signals(const struct wire *wire);

/* Takes one that waits; 0 where none does. */
int next_signal(const struct wire *wire);

/* False where nobody listens, or somebody who is busy. */
bool connect_to(struct wire *wire, const char *path);

/* Until `fd` can be read, or written for POLLOUT. BROKEN where something is wrong with it, which stays to be found. */
enum outcome wait_for(const struct wire *wire, int fd, short events);

/* All of the bytes, and the standard descriptors with the first one where `streams` says so. */
enum outcome send_all(const struct wire *wire, const struct buffer *buffer, bool streams);

/* Until there is a whole message in `in`, which it then begins with. */
enum outcome receive(struct wire *wire);

/* The message that these bytes begin with, without its NUL; {NULL, NULL} where it is not whole. */
struct value message_in(const struct buffer *buffer, size_t from);

/* What the words of a command line say, and the variables; 0 and NULL for what neither says, -1 for the umask. */
struct wanted {
    const char *socket, *name;
    long long ntasks, cpus_per_task, nodes, mem, mem_per_cpu /* MiB */, umask, job;
    bool within_step; /* of that job */
    bool overcommit, of_cluster;
    char **argv;
};

/* A whole number from 1 in its plain form; 0 for all else. */
long long number_of(const char *text, size_t most_digits);

/* Reads the words behind the command's name. False where they are not all known here. */
bool read_words(char **words, struct wanted *wanted);

/* Whether all variables that may mean something are known, as those of a job or among `further`, which ends with NULL. */
bool are_known(const char *const *further);

/* Reads the variables. False where one is not known here. */
bool read_job(struct wanted *wanted);

/* Whether this was typed in an allocation, and leads to no other node; then reads its variables, and finds the door of
 * its cluster. False where one is not known here, or there is no door. */
bool is_in_allocation(const struct wanted *wanted);
bool read_allocation(struct wanted *wanted);

/* Whether the program of this name is there, and is linked to no MPI library. False where that is not to be seen. */
bool speaks_no_mpi(const char *word, const char *cwd);

/* Adds the call Launch. False where something of it, or of this process, is not for the quick way. */
bool add_launch(struct buffer *buffer, const struct wanted *wanted);

/* Executes Python with these words, from the beginning; a Ctrl-C waits until it is there. Returns only where there is
 * none. */
void start_python(char **words);

/* Where a launch has come to: the call is sent. `fd` is an empty file in memory for what Python is to know; `status` is
 * the exit status of a step that has ended, else -1; `took_signals`: some that have come were taken for Python. */
struct launch {
    struct wire wire;
    struct buffer hello, events;
    int fd, status;
    bool took_signals;
};

/* Makes that file. False where it cannot be, or could not be filled. */
bool prepare(struct launch *launch);

/* Executes Python, which goes on from there. Returns only where that is not possible. */
void hand_over(struct launch *launch, char **words);

/* The whole life of a step. Returns where Python has to begin, with nothing asked for. */
void run_step(struct wanted *wanted, char **words);

#endif
