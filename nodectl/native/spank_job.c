/* A job as libslurm's slurm_load_job tells of it. The answer is one piece of memory: message, record, what it points to.
 *
 * Which bytes of the record a member is, is for the plugin's compiler: its Slurm's header said so. We know it of 22.05.
 */
#include "spank_host.h"

#include <slurm/slurm.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The plugin_version of the plugin that has the code at this address; 0 where there is none. */
static unsigned int version_at(void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return 0;
    void *handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
    const unsigned int *version = handle == NULL ? NULL : dlsym(handle, "plugin_version");
    unsigned int number = version == NULL ? 0 : *version;
    if (handle != NULL)
        dlclose(handle); /* it was open before */
    return number;
}

struct member {
    const char *name;
    size_t offset, size; /* size 0: a string */
};

#define NUMBER(name) {#name, offsetof(slurm_job_info_t, name), sizeof(((slurm_job_info_t *)0)->name)}
#define STRING(name) {#name, offsetof(slurm_job_info_t, name), 0}

static const struct member members[] = {
    NUMBER(accrue_time), STRING(alloc_node), NUMBER(array_task_id), STRING(batch_host), NUMBER(boards_per_node),
    STRING(command), NUMBER(core_spec), NUMBER(cores_per_socket), NUMBER(cpu_freq_gov), NUMBER(cpu_freq_max),
    NUMBER(cpu_freq_min), NUMBER(cpus_per_task), NUMBER(eligible_time), NUMBER(end_time), STRING(gres_total),
    NUMBER(group_id), NUMBER(job_id), NUMBER(job_state), STRING(name), NUMBER(nice), STRING(nodes),
    NUMBER(ntasks_per_board), NUMBER(ntasks_per_core), NUMBER(ntasks_per_socket), NUMBER(ntasks_per_tres),
    NUMBER(num_cpus), NUMBER(num_nodes), NUMBER(num_tasks), STRING(partition), NUMBER(pn_min_cpus),
    NUMBER(pn_min_memory), NUMBER(priority), NUMBER(show_flags), NUMBER(sockets_per_board), NUMBER(sockets_per_node),
    NUMBER(start_time), STRING(std_err), STRING(std_in), STRING(std_out), NUMBER(submit_time), NUMBER(threads_per_core),
    NUMBER(time_limit), STRING(tres_alloc_str), STRING(tres_req_str), NUMBER(user_id), STRING(user_name),
    STRING(work_dir),
};
enum { MEMBERS = sizeof members / sizeof members[0] };

struct answer {
    job_info_msg_t message;
    slurm_job_info_t job;
    int32_t nodes[3]; /* from the first to the first, and no more */
    char strings[];
};

static void put_number(char *place, size_t size, unsigned long long number)
{
    uint16_t two = (uint16_t)number;
    uint32_t four = (uint32_t)number;
    uint64_t eight = number;
    memcpy(place, size == 2 ? (void *)&two : size == 4 ? (void *)&four : (void *)&eight, size);
}

/* Of a member's value: the bytes of a string with its end, 0 of a number. NULL of what is not there. */
static PyObject *bytes_of(const struct member *member, PyObject *job, size_t *length)
{
    PyObject *value = PyDict_GetItemString(job, member->name); /* borrowed */
    PyObject *bytes = NULL;
    *length = 0;
    if (value != NULL && value != Py_None && member->size == 0 && (bytes = PyUnicode_EncodeFSDefault(value)) != NULL)
        *length = (size_t)PyBytes_Size(bytes) + 1;
    return bytes;
}

/* The answer; NULL with an exception. */
static struct answer *answer_of(PyObject *job, uint16_t flags)
{
    PyObject *strings[MEMBERS];
    size_t lengths[MEMBERS], room = 0;
    for (int i = 0; i < MEMBERS; i++) {
        strings[i] = bytes_of(&members[i], job, &lengths[i]);
        room += lengths[i];
    }
    struct answer *answer = PyErr_Occurred() ? NULL : calloc(1, sizeof *answer + room);
    char *end = answer == NULL ? NULL : answer->strings;
    for (int i = 0; i < MEMBERS; i++) {
        char *place = answer == NULL ? NULL : (char *)&answer->job + members[i].offset;
        PyObject *value = PyDict_GetItemString(job, members[i].name);
        if (place != NULL && strings[i] != NULL) {
            memcpy(place, &end, sizeof end);
            end = (char *)memcpy(end, PyBytes_AsString(strings[i]), lengths[i]) + lengths[i];
        } else if (place != NULL && members[i].size != 0 && value != NULL) {
            put_number(place, members[i].size, PyLong_AsUnsignedLongLongMask(value));
        }
        Py_XDECREF(strings[i]);
    }
    if (answer == NULL) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return NULL;
    }
    answer->message = (job_info_msg_t){0, time(NULL), 1, &answer->job};
    answer->job.show_flags = flags;
    answer->job.billable_tres = NO_VAL;
    answer->job.node_inx = answer->nodes;
    answer->nodes[2] = -1;
    return answer;
}

EXPORTED int slurm_load_job(job_info_msg_t **message, uint32_t job_id, uint16_t flags)
{
    struct answer *answer = NULL;
    int number = ENOTSUP;
    if (message != NULL && version_at(__builtin_return_address(0)) >> 8 == SLURM_VERSION_NUMBER >> 8) {
        struct visit visit;
        visit_begin(&visit);
        PyObject *job = api_job(job_id, &number);
        if (job != NULL && (answer = answer_of(job, flags)) == NULL)
            guard_keep_exception();
        Py_XDECREF(job);
        visit_end(&visit);
    }
    if (message != NULL)
        *message = answer == NULL ? NULL : &answer->message;
    if (answer != NULL)
        return SLURM_SUCCESS;
    errno = number;
    return SLURM_ERROR;
}

EXPORTED void slurm_free_job_info_msg(job_info_msg_t *message)
{
    free(message); /* it is where its answer begins */
}
