/* Memory that plugins keep pointers to.
 *
 * Owned here: all of this memory; none is ever freed. A plugin's statics live as long as its process, so the memory
 * that they point to must too.
 */
#include "host.h"

#include <stdlib.h>
#include <string.h>

struct kept {
    struct kept *next;
    char text[];
};

const char *keep(const char *text)
{
    static struct kept *all;
    for (struct kept *kept = all; kept != NULL; kept = kept->next)
        if (strcmp(kept->text, text) == 0)
            return kept->text;
    size_t size = strlen(text) + 1;
    struct kept *kept = malloc(sizeof *kept + size);
    if (kept == NULL)
        return NULL;
    memcpy(kept->text, text, size);
    kept->next = all;
    all = kept;
    return kept->text;
}

/* Returns a new list of bytes: the words of a list, or a dict's items as "K=V". */
static PyObject *encoded(PyObject *words)
{
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool is_dict = PyDict_Check(words);
    Py_ssize_t count = is_dict ? PyDict_Size(words) : PySequence_Size(words);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *word = NULL;
        if (!is_dict)
            word = PySequence_GetItem(words, i);
        else if (PyDict_Next(words, &at, &key, &value))
            word = PyUnicode_FromFormat("%U=%U", key, value);
        PyObject *bytes = word == NULL ? NULL : PyUnicode_EncodeFSDefault(word);
        Py_XDECREF(word);
        int rc = bytes == NULL ? -1 : PyList_Append(list, bytes);
        Py_XDECREF(bytes);
        if (rc != 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* Returns the string in `old` that equals `text`; NULL if there is none. Searches from `from` on. */
static char *reused(char *const *old, size_t count, size_t from, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        char *string = old[(from + i) % count];
        if (strcmp(string, text) == 0)
            return string;
    }
    return NULL;
}

static int fill(char **strings, char *const *old, size_t had, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *text = PyBytes_AsString(PyList_GetItem(list, i));
        if (text == NULL)
            return -1;
        strings[i] = reused(old, had, (size_t)i, text);
        if (strings[i] == NULL && (strings[i] = strdup(text)) == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    strings[count] = NULL;
    return 0;
}

int live_update(struct live_vector *vector, PyObject *words)
{
    PyObject *list = encoded(words);
    if (list == NULL)
        return -1;
    size_t count = (size_t)PyList_Size(list), had = 0;
    while (vector->strings != NULL && vector->strings[had] != NULL)
        had++;
    char **fresh = malloc((count + 1) * sizeof *fresh);
    int rc = fresh == NULL ? -1 : fill(fresh, vector->strings, had, list);
    Py_DECREF(list);
    if (rc == 0 && count >= vector->room) { /* a plugin may keep the old array, so do not free it */
        size_t room = 2 * count + 64;
        char **strings = malloc(room * sizeof *strings);
        if (strings == NULL)
            rc = -1;
        else
            *vector = (struct live_vector){strings, room};
    }
    if (rc == 0)
        memcpy(vector->strings, fresh, (count + 1) * sizeof *fresh);
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    free(fresh);
    return rc;
}

void *keep_zeroed(size_t size)
{
    enum { CHUNK = 4096 };
    static char *chunk;
    static size_t used = CHUNK;
    if (used + size > CHUNK) {
        chunk = aligned_alloc(CHUNK, CHUNK);
        used = chunk == NULL ? CHUNK : 0;
    }
    if (chunk == NULL)
        return NULL;
    void *place = memset(chunk + used, 0, size);
    used += (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    return place;
}
