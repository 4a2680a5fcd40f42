/* Each pair of neighbours sends messages of many sizes there and back, and looks at every byte of them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20 };

int main(int argc, char **argv)
{
    int rank, size;
    unsigned char *sent = malloc(LARGEST), *got = malloc(LARGEST);
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int other = rank ^ 1, rounds = 0;
    for (int bytes = 1; other < size && bytes <= LARGEST; bytes *= 4) {
        memset(sent, bytes % 251 + rank / 2 % 4, bytes);
        if (rank < other) {
            MPI_Send(sent, bytes, MPI_BYTE, other, bytes, MPI_COMM_WORLD);
            MPI_Recv(got, bytes, MPI_BYTE, other, bytes, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(got, bytes, MPI_BYTE, other, bytes, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(got, bytes, MPI_BYTE, other, bytes, MPI_COMM_WORLD);
        }
        if (memcmp(sent, got, bytes) != 0)
            MPI_Abort(MPI_COMM_WORLD, 9);
        rounds++;
    }
    printf("task %d of %d: %d rounds\n", rank, size, rounds);
    MPI_Finalize();
    return 0;
}
