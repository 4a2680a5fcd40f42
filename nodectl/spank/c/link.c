/* Binds symbols of a plugin that ld.so left unbound, or bound to a wrong function, in the plugin's global offset table.
 *
 * - Functions that no library provides: ld.so, which binds lazily, would end the process at their first call. Their
 *   slots get a function that only ends the hook.
 * - error(), info(), debug() and so on, as plugins of Slurm's own tree call them. libc has an error(3) of another
 *   signature, and any library may have a variable called debug. If nodectl exported these names before all others, it
 *   would break such libraries. So it exports none, and binds only the plugins that call them to its functions. It does
 *   the same with exit(3) and its kin, which end the call in the command of a user (guard.c).
 * - A plugin that brings libslurm, and uses functions of it that nodectl lacks, would hand nodectl's host lists to
 *   libslurm. So libslurm serves all these functions for it, and also the texts of errors.
 *
 * The tables are read where ld.so has mapped them. The machine's relocation types do not matter: in DT_JMPREL each
 * entry is a function's slot, in other tables the value of a slot shows whether it is one.
 *
 * Owned here: the names of missing functions, and one handle of the program itself; neither is given back. ld.so owns
 * the plugins' tables.
 */
#include "host.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if __ELF_NATIVE_CLASS == 64
#define R_SYMBOL(info) ELF64_R_SYM(info)
#define SYMBOL_TYPE(info) ELF64_ST_TYPE(info)
#define SYMBOL_BINDING(info) ELF64_ST_BIND(info)
#else
#define R_SYMBOL(info) ELF32_R_SYM(info)
#define SYMBOL_TYPE(info) ELF32_ST_TYPE(info)
#define SYMBOL_BINDING(info) ELF32_ST_BIND(info)
#endif

/* --- functions for the slots of missing functions --------------------------------------------------------------- */

enum { TRAMPOLINES = 64 };
static const char *missing_names[TRAMPOLINES];

static void leave_missing(int number)
{
    char text[200];
    snprintf(text, sizeof text, "calls %s, which nodectl does not provide", missing_names[number]);
    guard_leave(text);
}

/* One function per name, numbered in octal, because a slot holds only an address. */
#define TRAMPOLINE(number) static void missing_##number(void) { leave_missing(0##number); }
#define ADDRESS(number) missing_##number,
#define EIGHT(what, n) what(n##0) what(n##1) what(n##2) what(n##3) what(n##4) what(n##5) what(n##6) what(n##7)
#define ALL(what) EIGHT(what, 0) EIGHT(what, 1) EIGHT(what, 2) EIGHT(what, 3) \
    EIGHT(what, 4) EIGHT(what, 5) EIGHT(what, 6) EIGHT(what, 7)
ALL(TRAMPOLINE)
static void (*const trampolines[TRAMPOLINES])(void) = {ALL(ADDRESS)};

static uintptr_t trampoline_for(const char *name)
{
    int number = 0;
    while (number < TRAMPOLINES - 1 && missing_names[number] != NULL && strcmp(missing_names[number], name) != 0)
        number++;
    if (missing_names[number] == NULL)
        missing_names[number] = number < TRAMPOLINES - 1 ? keep(name) : "one of many functions";
    return (uintptr_t)trampolines[number];
}

/* --- functions for other names ---------------------------------------------------------------------------------- */

static const struct plain_name {
    const char *name;
    uintptr_t function;
} plain_names[] = {
    {"error", (uintptr_t)slurm_error},
    {"info", (uintptr_t)slurm_info},
    {"verbose", (uintptr_t)slurm_verbose},
    {"debug", (uintptr_t)slurm_debug},
    {"debug2", (uintptr_t)slurm_debug2},
    {"debug3", (uintptr_t)slurm_debug3},
    {"fatal", (uintptr_t)plain_fatal},
    {"slurm_fatal", (uintptr_t)plain_fatal},
    {"exit", (uintptr_t)plain_exit},
    {"quick_exit", (uintptr_t)plain_quick_exit},
    {"_exit", (uintptr_t)plain_exit_at_once},
    {"_Exit", (uintptr_t)plain_exit_at_once},
};

/* Prefixes of names that libslurm serves if the plugin brings it. Not slurm_init, which ends the process if there is no
 * slurm.conf. */
static const char *const libslurms[] = {"slurm_hostlist_", "slurm_strerror", "slurm_perror"};

/* True if the plugin, or a library that it brings, has the function. libc has an error(3), and does not count: every
 * plugin has libc. */
static bool brings(void *handle, const char *name)
{
    const ElfW(Sym) *symbol = NULL;
    Dl_info info, libc;
    void *address = dlsym(handle, name);
    return address != NULL && dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL &&
           SYMBOL_TYPE(symbol->st_info) == STT_FUNC && dladdr((const void *)qsort, &libc) != 0 &&
           info.dli_fbase != libc.dli_fbase;
}

/* Returns the function to which a plugin of this handle must bind the name; 0 to leave the name to ld.so. */
static uintptr_t ours(void *handle, const char *name)
{
    for (size_t i = 0; i < sizeof plain_names / sizeof plain_names[0]; i++)
        if (strcmp(plain_names[i].name, name) == 0)
            return brings(handle, name) ? 0 : plain_names[i].function;
    for (size_t i = 0; i < sizeof libslurms / sizeof libslurms[0]; i++)
        if (strncmp(name, libslurms[i], strlen(libslurms[i])) == 0)
            return (uintptr_t)dlsym(handle, name);
    return 0;
}

/* Searches from the program, not by RTLD_DEFAULT: that also finds this library's functions, which plugins do not find
 * if the library was not preloaded. */
void *link_global(const char *name)
{
    static void *program;
    if (program == NULL)
        program = dlopen(NULL, RTLD_LAZY);
    return program == NULL ? NULL : dlsym(program, name);
}

/* --- the tables ------------------------------------------------------------------------------------------------- */

struct object {
    void *handle;
    const struct link_map *map;
    const char *strings;
    const ElfW(Sym) *symbols;
    uintptr_t relro, relro_end; /* read-only since relocation */
    uintptr_t fixed, fixed_end; /* never written to: headers, code, constants */
};

static int find_parts(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct object *object = data;
    if (info->dlpi_addr != object->map->l_addr || strcmp(info->dlpi_name, object->map->l_name) != 0)
        return 0;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_GNU_RELRO) {
            object->relro = (info->dlpi_addr + header->p_vaddr) & ~(page - 1);
            object->relro_end = (info->dlpi_addr + header->p_vaddr + header->p_memsz) & ~(page - 1);
        }
        uintptr_t start = (info->dlpi_addr + header->p_vaddr) & ~(page - 1);
        uintptr_t end = (info->dlpi_addr + header->p_vaddr + header->p_memsz + page - 1) & ~(page - 1);
        if (header->p_type != PT_LOAD || (header->p_flags & PF_W) != 0)
            continue;
        if (object->fixed == 0)
            object->fixed = start;
        else if (object->fixed_end != start)
            continue;
        object->fixed_end = end;
    }
    return 1;
}

/* Joins the three mappings into which linkers put headers, code and constants of a library: every fork of every step
 * copies each of them. With one protection they are one mapping, as linkers made them before binutils 2.31. */
static void join_fixed(const struct object *object)
{
    if (object->fixed_end > object->fixed)
        mprotect((void *)object->fixed, object->fixed_end - object->fixed, PROT_READ | PROT_EXEC);
}

static void set_slot(const struct object *object, uintptr_t *slot, uintptr_t value)
{
    uintptr_t address = (uintptr_t)slot;
    if (address < object->relro || address >= object->relro_end) {
        *slot = value;
        return;
    }
    size_t size = object->relro_end - object->relro;
    if (mprotect((void *)object->relro, size, PROT_READ | PROT_WRITE) == 0) {
        *slot = value;
        mprotect((void *)object->relro, size, PROT_READ);
    }
}

/* Returns the name of an undefined symbol that must exist and may be a function; NULL for other symbols. */
static const char *wanted(const struct object *object, size_t index)
{
    const ElfW(Sym) *symbol = &object->symbols[index];
    if (index == 0 || symbol->st_shndx != SHN_UNDEF || SYMBOL_BINDING(symbol->st_info) == STB_WEAK ||
        SYMBOL_TYPE(symbol->st_info) == STT_TLS)
        return NULL;
    return object->strings + symbol->st_name;
}

static int bind_slot(const struct object *object, size_t index, uintptr_t offset, bool lazy, PyObject *missing)
{
    const char *name = wanted(object, index);
    if (name == NULL)
        return 0;
    uintptr_t *slot = (uintptr_t *)(object->map->l_addr + offset);
    uintptr_t instead = ours(object->handle, name);
    uintptr_t usual = (uintptr_t)link_global(name);
    if (instead != 0) {
        if (lazy || *slot == usual)
            set_slot(object, slot, instead);
        return 0;
    }
    if (!lazy || usual != 0 || dlsym(object->handle, name) != NULL)
        return 0;
    set_slot(object, slot, trampoline_for(name));
    PyObject *text = PyUnicode_DecodeFSDefault(name);
    int rc = text == NULL ? -1 : PyList_Append(missing, text);
    Py_XDECREF(text);
    return rc;
}

static int bind_table(
    const struct object *object, const void *table, size_t size, bool with_addend, bool lazy, PyObject *missing)
{
    size_t each = with_addend ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));
    for (size_t at = 0; table != NULL && at + each <= size; at += each) {
        const ElfW(Rel) *entry = (const void *)((const char *)table + at); /* a Rela begins with a Rel */
        if (bind_slot(object, R_SYMBOL(entry->r_info), entry->r_offset, lazy, missing) != 0)
            return -1;
    }
    return 0;
}

PyObject *link_plugin(void *handle)
{
    struct object object = {.handle = handle};
    const void *jump = NULL, *rela = NULL, *rel = NULL;
    size_t jump_size = 0, rela_size = 0, rel_size = 0;
    bool jump_addend = false;
    PyObject *missing = PyList_New(0);
    if (missing == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &object.map) != 0)
        return missing;
    for (const ElfW(Dyn) *entry = object.map->l_ld; entry->d_tag != DT_NULL; entry++) {
        /* On most machines ld.so has made the pointers of this table absolute; on a few it is read-only. */
        uintptr_t value = entry->d_un.d_ptr;
        const void *place = (const void *)(value < object.map->l_addr ? value + object.map->l_addr : value);
        switch (entry->d_tag) {
        case DT_STRTAB: object.strings = place; break;
        case DT_SYMTAB: object.symbols = place; break;
        case DT_JMPREL: jump = place; break;
        case DT_RELA: rela = place; break;
        case DT_REL: rel = place; break;
        case DT_PLTRELSZ: jump_size = value; break;
        case DT_RELASZ: rela_size = value; break;
        case DT_RELSZ: rel_size = value; break;
        case DT_PLTREL: jump_addend = value == DT_RELA; break;
        }
    }
    dl_iterate_phdr(find_parts, &object);
    join_fixed(&object);
    if (bind_table(&object, jump, jump_size, jump_addend, true, missing) != 0 ||
        bind_table(&object, rela, rela_size, true, false, missing) != 0 ||
        bind_table(&object, rel, rel_size, false, false, missing) != 0)
        Py_CLEAR(missing);
    return missing;
}

void *own_symbol(void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);
    struct link_map *map, *defines;
    Dl_info info;
    if (symbol == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 ||
        dladdr1(symbol, &info, (void **)&defines, RTLD_DL_LINKMAP) == 0)
        return NULL;
    return map == defines ? symbol : NULL;
}
