/* The sum that every MPI has as its first example: pi. With an argument task 1 calls MPI_Abort with that code. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const int steps = 10000;
    int rank, size;
    double pi, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = rank; i < steps; i += size) {
        double x = (i + 0.5) / steps;
        sum += 4 / (1 + x * x) / steps;
    }
    MPI_Reduce(&sum, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d tasks: pi is %.6f\n", size, pi);
    if (argc > 1 && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, atoi(argv[1]));
    if (argc > 1)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
