/* A number goes round from task to task, and each adds its own; all sum theirs up. Task 0 tells both sums, and on how many
   nodes they ran. With an argument task 1 then aborts with code 7.

   With RING_ENDS in their environment tasks leave without MPI_Finalize, when files in their working directory say that all
   have come out of the last barrier. Else whoever runs it ends it: in MPI_Finalize MPICH before 4.2 may hang over UCX and TCP, whoever serves PMI: a task that waits in
   PMI's barrier answers no other one that is still closing its connections (MPICH's pull request 6596). */
#include <mpi.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void leave_together(int rank, int size)
{
    char name[32];
    snprintf(name, sizeof name, "left.%d", rank);
    close(creat(name, 0600));
    for (int other = 0; other < size; other++) {
        snprintf(name, sizeof name, "left.%d", other);
        while (access(name, F_OK) != 0)
            usleep(10000);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    int rank, size, round = 0, sum = 0, first, here, nodes = 0;
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank > 0)
        MPI_Recv(&round, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    round += rank;
    MPI_Send(&round, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Recv(&round, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &here);
    first = here == 0;
    MPI_Allreduce(&first, &nodes, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d tasks on %d nodes: %d round, %d of all\n", size, nodes, round, sum);
        fflush(stdout);
    }
    if (argc > 1 && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (getenv("RING_ENDS") != NULL)
        leave_together(rank, size);
    for (;;)
        pause();
}
