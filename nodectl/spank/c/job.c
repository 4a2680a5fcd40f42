/* A job as libslurm's slurm_load_job describes it. The answer is one piece of memory: message, record, nodes, strings.
 *
 * A plugin's compiler took the offsets of the record's members from the header of the plugin's Slurm. They were
 * measured on 64-bit machines with Debian's headers (22.05, 24.11, 26.05), with pyslurm's declarations (25.11), and
 * with the order of the members in two public copies of 23.02's header, which agree.
 *
 * Owned here: nothing. The plugin owns an answer, and frees it with slurm_free_job_info_msg.
 */
#include "host.h"

#include <slurm/slurm.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYOUTS = 5, WITH_STEP = 0x1a05 };

static const struct layout {
    unsigned int release; /* major and minor number */
    size_t size;          /* of the record */
} layouts[LAYOUTS] = {{0x1605, 904}, {0x1702, 928}, {0x180b, 960}, {0x190b, 1016}, {WITH_STEP, 1032}};

enum kind { STRING, NUMBER_16, NUMBER_32, NUMBER_64, REAL, NODES };

/* Offsets in the order of the layouts; 0: the layout lacks the member. Offset 0 is `account`, which is unknown here. */
static const struct member {
    const char *name;
    enum kind kind;
    unsigned short at[LAYOUTS];
} members[] = {
    {"accrue_time", NUMBER_64, {8, 8, 8, 8, 8}},
    {"alloc_node", STRING, {24, 24, 24, 24, 24}},
    {"array_job_id", NUMBER_32, {48, 48, 48, 48, 48}},
    {"array_task_id", NUMBER_32, {52, 52, 52, 52, 52}},
    {"batch_flag", NUMBER_16, {88, 88, 88, 88, 88}},
    {"batch_host", STRING, {96, 96, 96, 96, 96}},
    {"billable_tres", REAL, {184, 192, 192, 192, 200}},
    {"boards_per_node", NUMBER_16, {112, 112, 112, 112, 112}},
    {"cluster", STRING, {136, 136, 136, 136, 136}},
    {"command", STRING, {152, 152, 152, 152, 152}},
    {"core_spec", NUMBER_16, {178, 186, 186, 186, 194}},
    {"cores_per_socket", NUMBER_16, {180, 188, 188, 188, 196}},
    {"cpu_freq_gov", NUMBER_32, {204, 212, 212, 212, 220}},
    {"cpu_freq_max", NUMBER_32, {200, 208, 208, 208, 216}},
    {"cpu_freq_min", NUMBER_32, {196, 204, 204, 204, 212}},
    {"cpus_per_task", NUMBER_16, {192, 200, 200, 200, 208}},
    {"eligible_time", NUMBER_64, {256, 264, 264, 264, 272}},
    {"end_time", NUMBER_64, {264, 272, 272, 272, 280}},
    {"gres_total", STRING, {360, 384, 384, 384, 392}},
    {"group_id", NUMBER_32, {368, 392, 392, 392, 400}},
    {"job_id", NUMBER_32, {388, 412, 412, 1008, 1024}},
    {"job_state", NUMBER_32, {400, 432, 432, 432, 440}},
    {"name", STRING, {464, 496, 496, 504, 520}},
    {"nice", NUMBER_32, {488, 520, 520, 528, 544}},
    {"node_inx", NODES, {496, 528, 528, 536, 552}},
    {"nodes", STRING, {480, 512, 512, 520, 536}},
    {"ntasks_per_board", NUMBER_16, {512, 544, 544, 552, 568}},
    {"ntasks_per_core", NUMBER_16, {504, 536, 536, 544, 560}},
    {"ntasks_per_socket", NUMBER_16, {510, 542, 542, 550, 566}},
    {"ntasks_per_tres", NUMBER_16, {506, 538, 538, 546, 562}},
    {"num_cpus", NUMBER_32, {516, 548, 548, 556, 572}},
    {"num_nodes", NUMBER_32, {520, 552, 552, 560, 576}},
    {"num_tasks", NUMBER_32, {524, 556, 556, 564, 580}},
    {"partition", STRING, {528, 560, 568, 576, 592}},
    {"pn_min_cpus", NUMBER_16, {552, 584, 592, 600, 616}},
    {"pn_min_memory", NUMBER_64, {544, 576, 584, 592, 608}},
    {"priority", NUMBER_32, {592, 624, 624, 632, 648}},
    {"restart_cnt", NUMBER_16, {648, 680, 704, 712, 728}},
    {"show_flags", NUMBER_16, {690, 714, 0, 0, 0}},
    {"sockets_per_board", NUMBER_16, {696, 720, 752, 784, 800}},
    {"sockets_per_node", NUMBER_16, {698, 722, 754, 786, 802}},
    {"start_time", NUMBER_64, {704, 728, 760, 792, 808}},
    {"std_err", STRING, {736, 760, 792, 824, 840}},
    {"std_in", STRING, {744, 768, 800, 832, 848}},
    {"std_out", STRING, {752, 776, 808, 840, 856}},
    {"submit_time", NUMBER_64, {760, 784, 816, 864, 880}},
    {"threads_per_core", NUMBER_16, {792, 816, 848, 896, 912}},
    {"time_limit", NUMBER_32, {784, 808, 840, 888, 904}},
    {"tres_alloc_str", STRING, {856, 880, 912, 960, 976}},
    {"tres_req_str", STRING, {848, 872, 904, 952, 968}},
    {"user_id", NUMBER_32, {864, 888, 920, 968, 984}},
    {"user_name", STRING, {872, 896, 928, 976, 992}},
    {"work_dir", STRING, {896, 920, 952, 1000, 1016}},
    {"job_id", NUMBER_32, {0, 0, 0, 768, 784}},
    {"step_het_comp", NUMBER_32, {0, 0, 0, 772, 788}},
    {"step_id", NUMBER_32, {0, 0, 0, 776, 792}},
};
enum { MEMBERS = sizeof members / sizeof members[0] };

struct answer {
    job_info_msg_t message;
    int32_t nodes[3]; /* node_inx: the range from 0 to 0, and -1 as its end */
    _Alignas(max_align_t) char record[];
};

/* Returns the plugin_version of the plugin whose code has this address; 0 if there is none. */
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
        dlclose(handle); /* the plugin stays loaded by its first dlopen */
    return number;
}

/* Returns the layout that a plugin of this version expects; NULL if it is unknown. */
static const struct layout *layout_of(unsigned int version)
{
    for (int i = 0; i < LAYOUTS; i++)
        if (layouts[i].release == version >> 8 && sizeof(void *) == 8 && sizeof(time_t) == 8)
            return &layouts[i];
    return NULL;
}

/* Returns a string member as bytes, and their length with the NUL. NULL if it is missing, and with an exception. */
static PyObject *string_of(const struct member *member, PyObject *job, size_t *length)
{
    PyObject *value = PyDict_GetItemString(job, member->name); /* borrowed */
    bool is_string = member->kind == STRING && value != NULL && value != Py_None;
    PyObject *bytes = is_string ? PyUnicode_EncodeFSDefault(value) : NULL;
    *length = bytes == NULL ? 0 : (size_t)PyBytes_Size(bytes) + 1;
    return bytes;
}

static void put(char *place, enum kind kind, PyObject *value, const int32_t *nodes)
{
    unsigned long long number = kind == REAL || kind == NODES ? 0 : PyLong_AsUnsignedLongLongMask(value);
    switch (kind) {
    case STRING: break;
    case NUMBER_16: *(uint16_t *)place = (uint16_t)number; break;
    case NUMBER_32: *(uint32_t *)place = (uint32_t)number; break;
    case NUMBER_64: *(uint64_t *)place = number; break;
    case REAL: *(double *)place = PyFloat_AsDouble(value); break;
    case NODES: *(const int32_t **)place = nodes; break;
    }
}

/* Fills the record, and copies the strings behind it. */
static void fill(struct answer *answer, const struct layout *layout, PyObject *job, PyObject *const strings[MEMBERS])
{
    char *end = answer->record + layout->size;
    for (int i = 0; i < MEMBERS; i++) {
        size_t at = members[i].at[layout - layouts];
        PyObject *value = PyDict_GetItemString(job, members[i].name);
        if (at != 0 && strings[i] != NULL) {
            size_t length = (size_t)PyBytes_Size(strings[i]) + 1;
            *(char **)(answer->record + at) = memcpy(end, PyBytes_AsString(strings[i]), length);
            end += length;
        } else if (at != 0 && value != NULL && value != Py_None) {
            put(answer->record + at, members[i].kind, value, answer->nodes);
        }
    }
    answer->nodes[2] = -1;
    answer->message.last_update = time(NULL);
    answer->message.record_count = 1;
    answer->message.job_array = (slurm_job_info_t *)answer->record;
}

/* Makes the answer; NULL with an exception. */
static struct answer *answer_of(PyObject *job, const struct layout *layout)
{
    PyObject *strings[MEMBERS];
    size_t length, room = 0;
    for (int i = 0; i < MEMBERS; i++) {
        strings[i] = string_of(&members[i], job, &length);
        room += length;
    }
    struct answer *answer = NULL;
    if (!PyErr_Occurred() && (answer = calloc(1, sizeof *answer + layout->size + room)) == NULL)
        PyErr_NoMemory();
    if (answer != NULL)
        fill(answer, layout, job, strings);
    for (int i = 0; i < MEMBERS; i++)
        Py_XDECREF(strings[i]);
    return answer;
}

/* Returns a dict of the job's members; NULL with an errno in `number`. */
static PyObject *job_of(uint32_t job_id, uint16_t flags, int *number)
{
    *number = ESLURM_INVALID_JOB_ID;
    if (handle_sp() == NULL)
        return NULL;
    PyObject *job = python_call("slurm_load_job", "(Oki)", handle_sp(), (unsigned long)job_id, (int)flags);
    if (job == NULL)
        *number = (int)code_of_exception();
    return job;
}

static int load_job(const struct layout *layout, job_info_msg_t **message, uint32_t job_id, uint16_t flags)
{
    struct answer *answer = NULL;
    int number = ENOTSUP;
    if (message != NULL && layout != NULL) {
        struct visit visit;
        visit_begin(&visit);
        PyObject *job = job_of(job_id, flags, &number);
        if (job != NULL && (answer = answer_of(job, layout)) == NULL)
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

/* In 26.05 the second argument of slurm_load_job is this struct, by value, instead of a job id. A function with another
 * name in C takes both, and has that name for the linker. */
struct step_of_26_05 {
    uint64_t sluid;
    uint32_t job_id, step_het_comp, step_id;
};

#if defined __x86_64__ /* the struct comes on the stack, and the flags in the register of the second argument */
#define SECOND uint32_t second
#define BEHIND , struct step_of_26_05 step
#define JOB_ID step.job_id
#define FLAGS(flags) (uint16_t)second
#elif defined __aarch64__ /* the second argument is the address of a copy of the struct */
#define SECOND uintptr_t second
#define BEHIND
#define JOB_ID ((const struct step_of_26_05 *)second)->job_id
#define FLAGS(flags) flags
#else /* the calling convention is unknown */
#define SECOND uint32_t second
#define BEHIND
#endif

EXPORTED int load_job_of_any_release(job_info_msg_t **message, SECOND, uint16_t flags BEHIND) __asm__("slurm_load_job");

int load_job_of_any_release(job_info_msg_t **message, SECOND, uint16_t flags BEHIND)
{
    const struct layout *layout = layout_of(version_at(__builtin_return_address(0)));
    if (layout == NULL || layout->release != WITH_STEP)
        return load_job(layout, message, (uint32_t)second, flags);
#ifdef JOB_ID
    return load_job(layout, message, JOB_ID, FLAGS(flags));
#else
    return load_job(NULL, message, 0, 0);
#endif
}

EXPORTED void slurm_free_job_info_msg(job_info_msg_t *message)
{
    free(message); /* the first member of its answer */
}
