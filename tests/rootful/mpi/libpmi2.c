/* What a program asks of Slurm's own PMI-2 library. */
#include <slurm/pmi2.h>
#include <stdio.h>

int main(void)
{
    int spawned, size, rank, appnum, length, found;
    char key[PMI2_MAX_KEYLEN], value[PMI2_MAX_VALLEN], job[256], mapping[PMI2_MAX_VALLEN], node[64];
    if (PMI2_Init(&spawned, &size, &rank, &appnum) || PMI2_Job_GetId(job, sizeof job))
        return 2;
    snprintf(key, sizeof key, "key-%d", rank);
    snprintf(value, sizeof value, "of %d; and more = %d", rank, rank);
    if (PMI2_KVS_Put(key, value) || (rank == 0 && PMI2_Info_PutNodeAttr("shared", "memory")) || PMI2_KVS_Fence())
        return 3;
    snprintf(key, sizeof key, "key-%d", (rank + 1) % size);
    if (PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length))
        return 4;
    if (PMI2_Info_GetJobAttr("PMI_process_mapping", mapping, sizeof mapping, &found) || !found)
        return 5;
    if (PMI2_Info_GetNodeAttr("shared", node, sizeof node, &found, 1) || !found)
        return 6;
    printf("%d of %d: %s, %s, %s\n", rank, size, value, mapping, node);
    return PMI2_Finalize();
}
