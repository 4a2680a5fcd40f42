/* Operations that cannot be undone: becoming the user, and being confined. As in operation.c, this code calls only the
 * kernel; libc's set*id would change the parent's threads too.
 *
 * Owned here: nothing.
 */
#define _GNU_SOURCE
#include "operation.h"

#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* landlock(7), Linux 5.13; numbers and shapes are the same on every machine, and older headers lack them. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
enum { PATH_BENEATH = 1 };
struct beneath {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed));

/* Drops all but these capabilities from the bounding set. Returns an errno. */
long bound_capabilities_to(uint64_t kept)
{
    for (unsigned number = 0; number < 64; number++) {
        if (kept >> number & 1)
            continue;
        long result = raw(SYS_prctl, PR_CAPBSET_DROP, number);
        if (result == -EINVAL)
            break; /* the kernel knows no higher capability */
        if (result < 0)
            return -result;
    }
    return 0;
}

static const unsigned LOCKED = SECBIT_KEEP_CAPS_LOCKED;

struct sets {
    struct __user_cap_data_struct data[2];
};

static long get_sets(struct sets *sets)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    return -raw(SYS_capget, &header, sets->data);
}

static long set_sets(const struct sets *sets)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    return -raw(SYS_capset, &header, sets->data);
}

static bool has_any(const struct sets *sets)
{
    bool any = false;
    for (int i = 0; i < 2; i++)
        any = any || sets->data[i].effective || sets->data[i].permitted || sets->data[i].inheritable;
    return any;
}

/* Returns in words which of root's rights are left; NULL for none. `groups` are in ascending order, as the kernel's. */
static const char *left_over(const struct launch *launch, uid_t uid, gid_t gid, const gid_t *groups, size_t count)
{
    uid_t ids[3];
    gid_t gids[3];
    struct sets sets;
    if (raw(SYS_getresuid, &ids[0], &ids[1], &ids[2]) != 0 || ids[0] != uid || ids[1] != uid || ids[2] != uid)
        return "the user ids are others afterwards";
    if (raw(SYS_getresgid, &gids[0], &gids[1], &gids[2]) != 0 || gids[0] != gid || gids[1] != gid || gids[2] != gid)
        return "the group ids are others afterwards";
    if (count > 0 && (launch->room_size < count * sizeof *groups || raw(SYS_getgroups, count, launch->room) != (long)count ||
        memcmp(launch->room, groups, count * sizeof *groups) != 0))
        return "the groups are others afterwards";
    if (raw(SYS_prctl, PR_GET_SECUREBITS) & ~LOCKED)
        return "securebits are left";
    if (uid == 0)
        return NULL;
    if (get_sets(&sets) != 0 || has_any(&sets))
        return "capabilities are left";
    bool in_group_0 = false; /* a member may return to group 0, so that setgid(0) proves nothing */
    for (size_t i = 0; i < count; i++)
        in_group_0 = in_group_0 || groups[i] == 0;
    if (raw(SYS_setuid, 0) == 0)
        return "setuid(0) succeeded after the drop";
    if (!in_group_0 && raw(SYS_setgid, 0) == 0)
        return "setgid(0) succeeded after the drop";
    return NULL;
}

/* The effective uid at the start of this process: root, or the user of a private node. */
static uid_t began_as;

static void __attribute__((constructor)) remember(void)
{
    began_as = geteuid();
}

/* Becomes the user. Returns an errno, or 0 and in `left` what is left of root's rights.
 *
 * Sets the groups while that is allowed, then gids, then uids, saved ones included (setresuid(2)); the kernel then
 * empties the permitted, effective and ambient capabilities (capabilities(7), "Effect of user ID changes"). Inheritable
 * capabilities and securebits survive a change of uid, so they are cleared first. A step of root keeps root's
 * capabilities.
 *
 * The memory may be the step runner's, so only root may ever read it. The kernel makes a process that changes its ids
 * undumpable, unless an admin wants all cores; PR_SET_DUMPABLE does it always. If the process has memory of its own,
 * libc's calls are used, because they also change threads that a plugin left behind. */
long become_user(const struct launch *launch, const struct operation *operation, const char **left)
{
    uid_t uid = (uid_t)operation->a;
    gid_t gid = (gid_t)operation->b;
    const gid_t *groups = (const gid_t *)(const void *)operation->data;
    size_t count = operation->size / sizeof *groups;
    struct sets sets;
    long error;
    /* A user's private node has no rights to give up. A process that began as root never counts as one, whatever ids a
     * plugin gave it: it may still have root's groups. */
    bool is_already = uid != 0 && began_as == uid;
    if (raw(SYS_prctl, PR_GET_SECUREBITS) & ~LOCKED && (error = -raw(SYS_prctl, PR_SET_SECUREBITS, 0)) != 0)
        return error;
    if ((error = get_sets(&sets)) != 0)
        return error;
    if (sets.data[0].inheritable || sets.data[1].inheritable) {
        sets.data[0].inheritable = sets.data[1].inheritable = 0;
        if ((error = set_sets(&sets)) != 0)
            return error;
    }
    if (is_already) {
        error = 0;
    } else if (!launch->shared) {
        if (setgroups(count, groups) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0)
            return errno;
    } else if ((error = -raw(SYS_setgroups, count, groups)) != 0 || (error = -raw(SYS_setresgid, gid, gid, gid)) != 0 ||
               (error = -raw(SYS_setresuid, uid, uid, uid)) != 0) {
        return error;
    }
    if (uid != 0)
        raw(SYS_prctl, PR_SET_DUMPABLE, 0);
    if (uid != 0 && (error = get_sets(&sets)) == 0 && has_any(&sets)) {
        const struct sets none = {0}; /* in a user namespace without uid 0 the kernel empties no set */
        error = set_sets(&none);
    }
    if (error == 0)
        *left = left_over(launch, uid, gid, groups, is_already ? 0 : count);
    return error;
}

/* Sets no_new_privs and the system call filter; leaves speculation as it is. Without a program only checks that the
 * caller was born with both. Returns an errno. */
long confine_to(const char *program, size_t size)
{
    if (size == 0) {
        bool is_confined = raw(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 &&
                           raw(SYS_prctl, PR_GET_SECCOMP) == SECCOMP_MODE_FILTER;
        return is_confined ? 0 : EPERM;
    }
    struct sock_fprog filter = {
        .len = (unsigned short)(size / sizeof(struct sock_filter)),
        .filter = (struct sock_filter *)(uintptr_t)program,
    };
    long error = -raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1);
    return error ? error : -raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter);
}

bool is_root(int directory, const char *path)
{
    struct stat this, root;
    return raw(SYS_newfstatat, directory, path, &this, path[0] == '\0' ? AT_EMPTY_PATH : 0) == 0 &&
           raw(SYS_newfstatat, AT_FDCWD, "/", &root, 0) == 0 && this.st_dev == root.st_dev && this.st_ino == root.st_ino;
}

static long allow(long rules, long file, long rights)
{
    struct beneath rule = {.allowed = (uint64_t)rights, .parent = (int32_t)file};
    return -raw(SYS_landlock_add_rule, rules, PATH_BENEATH, &rule, 0);
}

/* Allows the rights below a directory. Returns an errno; 0 for a directory that is missing or closed to the user,
 * because the user cannot write there anyway. */
static long allow_beneath(long rules, const char *path, long rights)
{
    /* Not openat2(2): the strict filter answers that it is missing, because no filter can see its flags. */
    long directory = raw(SYS_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory == -ENOENT || directory == -ENOTDIR || directory == -EACCES)
        return 0;
    if (directory < 0)
        return -directory;
    long error = is_root((int)directory, "") ? 0 : allow(rules, directory, rights);
    raw(SYS_close, directory);
    return error;
}

/* Confines the caller's writes by Landlock. `a`: the rights below all paths but the last; `b`: the rights below the
 * last path, and of files that are open as output. Returns an errno. */
long lock_files(const struct operation *operation)
{
    uint64_t rights = (uint64_t)operation->a;
    long error = 0, rules = raw(SYS_landlock_create_ruleset, &rights, sizeof rights, 0);
    if (rules < 0)
        return -rules;
    const char *end = operation->data + operation->size;
    for (const char *path = operation->data, *next; !error && path < end; path = next) {
        next = path + strlen(path) + 1;
        error = allow_beneath(rules, path, next < end ? operation->a : operation->b);
    }
    for (int output = 1; !error && output <= 2; output++) {
        struct stat status;
        if (raw(SYS_newfstatat, output, "", &status, AT_EMPTY_PATH) == 0 && S_ISREG(status.st_mode))
            error = allow(rules, output, operation->b); /* a program may open /dev/stdout again */
    }
    if (!error)
        error = -raw(SYS_landlock_restrict_self, rules, 0);
    raw(SYS_close, rules);
    return error;
}
