/* environment: sets, extends and removes variables of every task. The compiled twin of plugins/spank/environment.py,
 * but for file=.
 *
 * Arguments in plugstack.conf, done in the order in which they stand: set=NAME=VALUE, default=NAME=VALUE (only where
 * there is none), prepend=NAME=VALUE and append=NAME=VALUE (lists parted by colons; not twice), unset=NAME.
 */
#include <stdio.h>
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(environment, 1);

#define LONGEST (128 * 1024) /* of NAME=VALUE: what execve(2) takes */

enum action { SET, DEFAULT, PREPEND, APPEND, UNSET, UNKNOWN };

static const char *const actions[] = {"set", "default", "prepend", "append", "unset"};
static char name[LONGEST], old[LONGEST], joined[2 * LONGEST];

/* Takes a word apart: its action, `name`, and the value, NULL where there is none. */
static enum action parse(const char *word, const char **value)
{
    const char *rest = strchr(word, '='), *end;
    int action = SET;

    while (action < UNKNOWN
           && (strncmp(word, actions[action], strcspn(word, "=")) || actions[action][strcspn(word, "=")]))
        action++;
    rest = rest ? rest + 1 : "";
    end = strchr(rest, '=');
    *value = end ? end + 1 : NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(rest, "="), rest);
    return action;
}

static const char *wrong(enum action action, const char *value)
{
    if (action == UNKNOWN)
        return "begins with none of set, default, prepend, append, unset";
    if (!name[0])
        return "names no variable";
    if (action == UNSET)
        return value ? "has a value" : NULL;
    return value ? NULL : "has no value";
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    int i, rc = 0;

    (void)sp;
    for (i = 0; i < ac; i++) {
        const char *value, *why;
        enum action action = parse(av[i], &value);

        why = wrong(action, value);
        if (why) {
            slurm_error("environment: plugstack.conf: '%s' %s", av[i], why);
            rc = -1;
        }
    }
    return rc;
}

/* What a list becomes; as it was, where the value stands at that end already. */
static const char *longer(enum action action, const char *value)
{
    size_t all = strlen(old), part = strlen(value);

    if (!all)
        return value;
    if (action == PREPEND) {
        if (!strncmp(old, value, part) && (old[part] == ':' || !old[part]))
            return old;
        snprintf(joined, sizeof joined, "%s:%s", value, old);
    } else {
        if (all >= part && !strcmp(old + all - part, value) && (all == part || old[all - part - 1] == ':'))
            return old;
        snprintf(joined, sizeof joined, "%s:%s", old, value);
    }
    return joined;
}

/* The stepd, as root: before any task is forked. */
int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    int i;

    if (spank_remote(sp) != 1)
        return 0;
    for (i = 0; i < ac; i++) {
        const char *value;
        enum action action = parse(av[i], &value);
        spank_err_t rc = spank_getenv(sp, name, old, sizeof old);

        if (action == UNSET)
            rc = spank_unsetenv(sp, name);
        else if (action == SET || rc == ESPANK_ENV_NOEXIST)
            rc = spank_setenv(sp, name, value, 1);
        else if (action != DEFAULT && rc == ESPANK_SUCCESS)
            rc = spank_setenv(sp, name, longer(action, value), 1);
        if (rc != ESPANK_SUCCESS) {
            slurm_error("environment: '%s': %s", av[i], spank_strerror(rc));
            return -1;
        }
    }
    return 0;
}
