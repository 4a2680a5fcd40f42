/* `nodectl`: launches a plain step without an interpreter. Python does everything else; it is installed beside this
 * program as `nodectl-python`. Nothing is implemented twice: only Python writes to the user, and handles signals,
 * refusals and failed tasks. It goes on from the point that this program has reached.
 *
 * The order of the files; each calls only what stands below it:
 *
 *   main.c      chooses the way of a command
 *   step.c      the quick way: asks, launches, reads events until the end
 *   python.c    the other way: Python, from the beginning or from a launched step
 *   request.c   the call Launch
 *   program.c   whether a program is linked to MPI
 *   cluster.c   the cluster of the allocation in which a command was typed
 *   job.c       variables, and the job in which a command was typed
 *   words.c     the options
 *   wire.c      messages, and signals that come meanwhile
 *   json.c      strings into messages, values out of messages
 *   buffer.c    a buffer that grows
 */
#ifndef NODECTL_QUICK_H
#define NODECTL_QUICK_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* A buffer that grows up to a limit. `failed` is set if bytes do not fit, or memory is short. */
struct buffer {
    char *data;
    size_t size, room, limit;
    bool failed;
};

void add(struct buffer *buffer, const char *bytes, size_t size);
void add_text(struct buffer *buffer, const char *text);
void add_number(struct buffer *buffer, long long number);

/* Returns room for `size` more bytes at the end; NULL if there is none. */
char *room_for(struct buffer *buffer, size_t size);

/* Adds bytes as a JSON string; sets `failed` if they are not UTF-8, and `*beyond_ascii` if they are not ASCII. */
void add_string(struct buffer *buffer, const char *bytes, size_t size, bool *beyond_ascii);

/* A part of a JSON message as the service writes it: no blanks, no key twice. */
struct value {
    const char *at, *end;
};

/* Returns the member of an object by its name; {NULL, NULL} if there is none. */
struct value member(struct value object, const char *name);

/* True if the value's text is `text`: a number, true, a string with its quotes. */
bool is(struct value value, const char *text);

/* A connection, and the received bytes and descriptors that no caller has taken yet. */
struct wire {
    int sock;
    int signals;    /* signalfd(2) of the signals in `blocked`, which stay pending */
    sigset_t blocked; /* signals that this program has blocked, and that were not blocked before */
    struct buffer in;
    int came[2];    /* received descriptors, -1 for none */
};

enum outcome { DONE, SIGNALLED, BROKEN };

/* Blocks the signals that a command passes on to its step. False if that fails. */
bool block_signals(struct wire *wire);
void unblock_signals(const struct wire *wire);

/* True if a blocked signal is pending, or the kernel does not say. */
bool has_signals(const struct wire *wire);

/* Takes one pending signal; returns 0 if there is none. */
int next_signal(const struct wire *wire);

/* Connects to the socket `path`. False if no process listens there, or its queue is full. */
bool connect_to(struct wire *wire, const char *path);

/* Waits until `fd` can be read, or written for POLLOUT. BROKEN on an error of `fd`, which the next call reports. */
enum outcome wait_for(const struct wire *wire, int fd, short events);

/* Sends all bytes; with `streams` also the three standard descriptors, beside the first byte. */
enum outcome send_all(const struct wire *wire, const struct buffer *buffer, bool streams);

/* Receives until `in` begins with a whole message. */
enum outcome receive(struct wire *wire);

/* Returns the message that begins at `from`, without its NUL; {NULL, NULL} if it is not whole. */
struct value message_in(const struct buffer *buffer, size_t from);

/* The request of the command line and the variables. Values that neither gives are 0 or NULL, the umask -1. */
struct wanted {
    const char *socket, *name;
    const char *sharing; /* of the job's CPUs with its other steps: "overlap" or "exact" */
    long long ntasks, cpus_per_task, nodes, mem, mem_per_cpu /* MiB */, umask, job;
    bool within_step; /* typed in a step of that job */
    bool overcommit, of_cluster;
    char **argv;
};

/* Returns a whole number from 1 in its plain form; 0 for all else. */
long long number_of(const char *text, size_t most_digits);

/* Reads the words behind the command's name. False if one of them is unknown here. */
bool read_words(char **words, struct wanted *wanted);

/* True if each variable that may have a meaning is known: as a job's, or listed in `further`, which ends with NULL. */
bool are_known(const char *const *further);

/* Reads the variables. False if one of them is unknown here. */
bool read_job(struct wanted *wanted);

/* is_in_allocation: true if the command was typed in an allocation, and names no socket. read_allocation then reads the
 * allocation's variables, and finds its cluster's gateway: false if a variable is unknown here, or there is no gateway. */
bool is_in_allocation(const struct wanted *wanted);
bool read_allocation(struct wanted *wanted);

/* True if the program of this name exists and is linked to no MPI library; false if its file does not tell. */
bool speaks_no_mpi(const char *word, const char *cwd);

/* Adds the call Launch. False if the request or this process does not fit the quick way. */
bool add_launch(struct buffer *buffer, const struct wanted *wanted);

/* Executes Python with these words, from the beginning; a Ctrl-C waits until Python has reached the command. Returns
 * only if Python cannot be executed. */
void start_python(char **words);

/* The state of a launch whose call is sent. `fd`: an empty file in memory for what Python must know; `status`: the exit
 * status of a step that has ended, else -1; `took_signals`: signals that came were taken, to be handed to Python. */
struct launch {
    struct wire wire;
    struct buffer hello, events;
    int fd, status;
    bool took_signals;
};

/* Makes that file. False if it cannot be made, or limits would keep it from being filled. */
bool prepare(struct launch *launch);

/* Executes Python, which goes on from that state. Returns only if Python cannot be executed. */
void hand_over(struct launch *launch, char **words);

/* Runs a step to its end. Returns only if Python has to begin; then no step was asked for. */
void run_step(struct wanted *wanted, char **words);

#endif
