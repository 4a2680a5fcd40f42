/* A library for LD_PRELOAD: holds the initialization of OpenPMIx's library back, between its thread's first look at
 * the listening socket and its first wait for its other thread, until that other thread has got a connection.
 *
 * The port goes into the file $HELD_PORT.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener = -1;
static atomic_int connections;

int listen(int fd, int backlog)
{
	int (*next)(int, int) = dlsym(RTLD_NEXT, "listen");
	struct sockaddr_in own = {.sin_port = 0};
	socklen_t size = sizeof own;
	int result = next(fd, backlog);

	if (getsockname(fd, (struct sockaddr *)&own, &size) == 0 && own.sin_family == AF_INET)
		listener = ntohs(own.sin_port);
	return result;
}

static void hold(void)
{
	char made[4096];
	FILE *file;

	snprintf(made, sizeof made, "%s.new", getenv("HELD_PORT"));
	file = fopen(made, "w");
	fprintf(file, "%d", listener);
	fclose(file);
	rename(made, getenv("HELD_PORT"));
	while (!connections)
		usleep(1000);
}

void event_active(void *event, int what, short calls)
{
	void (*next)(void *, int, short) = dlsym(RTLD_NEXT, "event_active");

	if (getpid() == gettid() && listener >= 0) {
		hold();
		listener = -1;
	} else if (getpid() != gettid()) {
		next(event, what, calls);
		connections++;
		return;
	}
	next(event, what, calls);
}
