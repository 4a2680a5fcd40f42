/* Functions of libslurm that plugins use besides SPANK and jobs (job.c): host lists, texts of errors.
 *
 * Owned here: nothing. The plugin owns a host list, and frees it with slurm_hostlist_destroy. It also owns each name
 * that it shifts off a list, and frees it with free(3).
 */
#include "host.h"

#include <slurm/slurm.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOSTS = 1 << 16, LONGEST_NAME = 256 };

struct hostlist {
    char **names;
    size_t count, first; /* the names before `first` were shifted off */
};

static int append(struct hostlist *list, const char *name)
{
    if (list->count == MOST_HOSTS)
        return -1;
    if ((list->count & (list->count - 1)) == 0) { /* the array is full at each power of two */
        char **more = realloc(list->names, (list->count ? 2 * list->count : 1) * sizeof *more);
        if (more == NULL)
            return -1;
        list->names = more;
    }
    if ((list->names[list->count] = strdup(name)) == NULL)
        return -1;
    list->count++;
    return 0;
}

/* Reads one number of a range, of at most nine digits. Returns its end, or NULL. */
static const char *read_number(const char *text, unsigned long *number)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return NULL;
    *number = strtoul(text, &end, 10);
    return end - text <= 9 ? end : NULL;
}

/* Appends `head` with each name that `pattern` stands for: text up to `end` with any number of ranges, "[1-3,07]".
 * Returns 0, or -1 for no pattern. */
static int expand(struct hostlist *list, const char *head, const char *pattern, const char *end)
{
    char name[LONGEST_NAME];
    const char *open = memchr(pattern, '[', (size_t)(end - pattern));
    const char *plain_end = open == NULL ? end : open;
    int length = snprintf(name, sizeof name, "%s%.*s", head, (int)(plain_end - pattern), pattern);
    if (length >= (int)sizeof name || memchr(pattern, ']', (size_t)(plain_end - pattern)) != NULL)
        return -1;
    if (open == NULL)
        return append(list, name);
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (close == NULL)
        return -1;
    for (const char *at = open;;) {
        unsigned long from = 0;
        const char *first = at + 1;
        at = read_number(first, &from);
        int width = at == NULL ? 0 : (int)(at - first); /* leading zeros are part of the name */
        unsigned long to = from;
        if (at != NULL && *at == '-')
            at = read_number(at + 1, &to);
        if (at == NULL || from > to || (*at != ',' && at != close))
            return -1;
        for (unsigned long number = from; number <= to; number++) {
            snprintf(name + length, sizeof name - (size_t)length, "%0*lu", width, number);
            if (expand(list, name, close + 1, end) != 0)
                return -1;
        }
        if (at == close)
            return 0;
    }
}

/* Adds all names of a list in text. Returns 0; or -1 on a name that is malformed, after adding those before it. */
static int add(struct hostlist *list, const char *names)
{
    for (const char *at = names; at != NULL && *at != '\0';) {
        const char *end = at;
        for (bool inside = false; *end != '\0' && (inside || (*end != ',' && !isspace((unsigned char)*end))); end++)
            inside = *end == '[' || (inside && *end != ']');
        if (end > at && expand(list, "", at, end) != 0)
            return -1;
        at = *end == '\0' ? end : end + 1;
    }
    return 0;
}

EXPORTED hostlist_t slurm_hostlist_create(const char *names)
{
    struct hostlist *list = calloc(1, sizeof *list);
    if (list != NULL && add(list, names) != 0) {
        slurm_hostlist_destroy(list);
        errno = EINVAL;
        return NULL;
    }
    return list;
}

EXPORTED int slurm_hostlist_push(hostlist_t list, const char *names)
{
    size_t before = list == NULL ? 0 : list->count;
    return list == NULL || names == NULL || add(list, names) != 0 ? 0 : (int)(list->count - before);
}

EXPORTED int slurm_hostlist_push_host(hostlist_t list, const char *name)
{
    return list != NULL && name != NULL && append(list, name) == 0;
}

EXPORTED int slurm_hostlist_count(hostlist_t list)
{
    return list == NULL ? -1 : (int)(list->count - list->first);
}

EXPORTED int slurm_hostlist_find(hostlist_t list, const char *name)
{
    for (size_t i = list == NULL ? 0 : list->first; name != NULL && list != NULL && i < list->count; i++)
        if (strcmp(list->names[i], name) == 0)
            return (int)(i - list->first);
    return -1;
}

/* Orders names with numbers by value: n2 before n10. */
static int compare(const void *left, const void *right)
{
    return strverscmp(*(char *const *)left, *(char *const *)right);
}

EXPORTED void slurm_hostlist_uniq(hostlist_t list)
{
    if (list == NULL || list->first == list->count)
        return;
    qsort(list->names + list->first, list->count - list->first, sizeof *list->names, compare);
    size_t kept = list->first;
    for (size_t i = list->first + 1; i < list->count; i++) {
        if (strcmp(list->names[kept], list->names[i]) == 0)
            free(list->names[i]);
        else
            list->names[++kept] = list->names[i];
    }
    list->count = kept + 1;
}

EXPORTED char *slurm_hostlist_shift(hostlist_t list)
{
    return list == NULL || list->first == list->count ? NULL : list->names[list->first++];
}

EXPORTED void slurm_hostlist_destroy(hostlist_t list)
{
    if (list == NULL)
        return;
    for (size_t i = list->first; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    free(list);
}

/* --- errors ----------------------------------------------------------------------------------------------------- */

EXPORTED char *slurm_strerror(int number)
{
    if (number == ESLURM_INVALID_JOB_ID)
        return (char *)"No such job on this node";
    return ESPANK_ERROR <= number && number <= ESPANK_JOB_FAILURE ? (char *)spank_strerror((spank_err_t)number)
                                                                    : strerror(number);
}

EXPORTED int slurm_get_errno(void)
{
    return errno;
}

EXPORTED void slurm_seterrno(int number)
{
    errno = number;
}

EXPORTED void slurm_perror(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, slurm_strerror(errno));
}

/* --- libslurm's begin and end ----------------------------------------------------------------------------------- */

EXPORTED void slurm_init(const char *configuration)
{
    (void)configuration; /* nodectl reads no slurm.conf */
}

EXPORTED void slurm_fini(void)
{
}
