/* Checks whether a program of several tasks is linked to an MPI library; if so, nodectl/client/mpi_program.py in Python
 * finds out to which one. Both search the same places. */
#define _GNU_SOURCE
#include "quick.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 1 << 16, NAME = 16 };

/* Opens the first executable regular file of this name. Returns -1 if there is none, or it cannot be read. */
static int opened(const char *word, const char *cwd)
{
    const char *path = getenv("PATH"), *at = strchr(word, '/') != NULL || path == NULL ? "" : path;
    for (;;) {
        size_t length = strcspn(at, ":");
        const char *directory = strchr(word, '/') != NULL ? "" : length ? at : ".";
        int shown = length ? (int)length : (int)strlen(directory);
        char *full = NULL;
        bool is_whole = (shown ? directory[0] : word[0]) == '/';
        struct stat status;
        if (asprintf(&full, "%s%s%.*s%s%s", is_whole ? "" : cwd, is_whole ? "" : "/", shown, directory,
                     shown ? "/" : "", word) < 0)
            return -1;
        bool found = stat(full, &status) == 0 && S_ISREG(status.st_mode) && status.st_mode & 0111;
        int fd = found ? open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
        free(full);
        if (found || at[length] == '\0')
            return fd;
        at += length + 1;
    }
}

static bool has_read(int fd, void *data, size_t size, size_t at)
{
    return pread(fd, data, size, (off_t)at) == (ssize_t)size;
}

/* True if the library whose name stands at this place of the file is no MPI library. */
static bool is_another(int fd, size_t place)
{
    static const char *const names[] = {"libmpi", "libfmpich"};
    char name[NAME] = {0};
    if (pread(fd, name, sizeof name - 1, (off_t)place) <= 0)
        return false;
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        if (strncmp(name, names[index], strlen(names[index])) == 0)
            return false;
    return true;
}

/* Returns the offset in the file of what is loaded at this address; 0 if no part of the file is loaded there. */
static size_t place_of(const Elf64_Phdr *parts, size_t count, size_t address)
{
    for (size_t index = 0; index < count; index++) {
        const Elf64_Phdr *part = &parts[index];
        if (part->p_type == PT_LOAD && address >= part->p_vaddr && address - part->p_vaddr < part->p_filesz)
            return address - part->p_vaddr + part->p_offset;
    }
    return 0;
}

/* True if the dynamic section names no MPI library. */
static bool are_others(int fd, const Elf64_Phdr *parts, size_t count, const Elf64_Dyn *entries, size_t number)
{
    size_t strings = 0;
    for (size_t index = 0; index < number && strings == 0; index++)
        if (entries[index].d_tag == DT_STRTAB)
            strings = place_of(parts, count, entries[index].d_un.d_ptr);
    for (size_t index = 0; index < number; index++)
        if (entries[index].d_tag == DT_NEEDED && (!strings || !is_another(fd, strings + entries[index].d_un.d_val)))
            return false;
    return true;
}

/* True if the file is linked to no MPI library; false if that cannot be read from it. */
static bool has_others(int fd, const Elf64_Ehdr *head)
{
    size_t size = (size_t)head->e_phnum * sizeof(Elf64_Phdr);
    Elf64_Phdr *parts = malloc(size);
    Elf64_Dyn *entries = NULL;
    bool seen = parts != NULL && head->e_phentsize == sizeof *parts && has_read(fd, parts, size, head->e_phoff);
    for (size_t index = 0; seen && index < head->e_phnum; index++) {
        const Elf64_Phdr *part = &parts[index];
        if (part->p_type != PT_DYNAMIC)
            continue;
        entries = part->p_filesz <= MOST ? malloc(part->p_filesz) : NULL;
        seen = entries != NULL && has_read(fd, entries, part->p_filesz, part->p_offset)
            && are_others(fd, parts, head->e_phnum, entries, part->p_filesz / sizeof *entries);
        break;
    }
    free(entries);
    free(parts);
    return seen;
}

bool speaks_no_mpi(const char *word, const char *cwd)
{
    int fd = opened(word, cwd);
    if (fd < 0)
        return false;
    Elf64_Ehdr head = {0};
    ssize_t size = pread(fd, &head, sizeof head, 0);
    bool is_elf = size >= SELFMAG && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0;
    bool is_native = size == sizeof head && head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_ident[EI_DATA] == ELFDATA2LSB
        && sizeof(void *) == 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    bool none = size >= 0 && (!is_elf || (is_native && has_others(fd, &head)));
    close(fd);
    return none;
}
