"""The compiler of the levels' lists of system calls into programs for seccomp(2), with libseccomp.

A short-lived process that the daemon executes once in its life: pyseccomp imports ctypes, which no process that forks
others may do. It applies each program to itself as a test, and writes them to descriptor 4 as JSON:
{"landlock": version, "default": hex, "strict": hex}, without the levels that the kernel does not support, and with what
they were made of (`kept_programs.py`).
"""

import errno
import os
import struct
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import prctl

from nodectl.kernel import _kernel
from nodectl.launch.confine import denied_calls, kept_programs
from nodectl.launch.confine.confinement import LEAST_LANDLOCK, TRUNCATION_SINCE
from nodectl.model.confinement_level import DEFAULT, LEVELS, STRICT
from nodectl.model.wire import lean_json
from nodectl.spank.reporter import Reporter

_TELLER, _RESULT = 3, 4
_LIBRARY = "libseccomp.so.2"
# Another machine word that this kernel runs programs of beside its own. x32 is none: its calls do not exist here.
_COMPANIONS: dict[str, tuple[str, ...]] = {"x86_64": ("X86",), "aarch64": ("ARM",), "riscv64": (), "ppc64le": ()}
_FLAGS_OF_CLONE = 0  # the argument
# A tree in place of a list: the kernel runs a new filter for every system call number, and each task waits for that.
_AS_A_TREE = 2
# Classic BPF, linux/filter.h: operation, distances of jumps, operand; SECCOMP_RET_ERRNO.
_LOAD_NUMBER = (0x20, 0, 0, 0)
_UNLESS_EQUAL, _RETURN = 0x15, 0x06
_FAIL_WITH = 0x0005_0000
_OPENING = (("open", 1), ("openat", 2))  # and the argument that holds the flags


class CannotCompile(Exception):
    """The error of a machine on which no program can be made; str() is a line with a remedy."""


def main(arguments: Mapping[str, object]) -> None:
    """Run the whole process: compile, test and write the programs."""
    os.setsid()
    reporter = Reporter(_TELLER)
    try:
        made = programs(_kernel.landlock_abi())
        attempt(made)
    except CannotCompile as error:
        reporter.ended(str(error))
        return
    made |= kept_programs.origin(_sources())
    os.pwrite(_RESULT, lean_json.dumps(made).encode("ascii"), 0)
    reporter.ended("")


def programs(landlock: int) -> dict[str, object]:
    """Return the object to write, for a kernel with this version of Landlock. Raises CannotCompile."""
    try:
        seccomp = _library()
    except (ImportError, RuntimeError, OSError) as error:
        raise CannotCompile(f"libseccomp: {error}; install libseccomp2 (Fedora: libseccomp)") from None
    machine = os.uname().machine
    if machine not in _COMPANIONS:
        raise CannotCompile(f"no list of system calls for {machine}")
    made: dict[str, object] = {"landlock": landlock}
    try:
        for level in LEVELS:
            if level == DEFAULT or (level == STRICT and landlock >= LEAST_LANDLOCK):
                made[level] = _program(seccomp, level, _COMPANIONS[machine], landlock).hex()
    except OSError as error:
        raise CannotCompile(f"libseccomp: {error.strerror}") from None
    return made


def _library() -> ModuleType:
    """Import pyseccomp, without two runs of ldconfig(8) to learn what dlopen(3) knows. Raises the import's errors."""
    import ctypes.util

    found = ctypes.util.find_library
    ctypes.util.find_library = {"seccomp": _LIBRARY}.get  # type: ignore[assignment]  # None is libc, which is there
    try:
        import pyseccomp
    finally:
        ctypes.util.find_library = found
    return pyseccomp  # type: ignore[no-any-return]


def _sources() -> set[str]:
    """Return the foreign files that decide the result: the library, where found, and the library's module."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        libraries = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if "/libseccomp." in line}
    return {*libraries, str(sys.modules["pyseccomp"].__file__)}


def attempt(made: Mapping[str, object]) -> None:
    """Apply every program to the caller, for good. Raises CannotCompile where the kernel refuses."""
    try:
        prctl.set_no_new_privs(1)
        for level in LEVELS:
            if level in made:
                _kernel.seccomp(bytes.fromhex(str(made[level])))
    except OSError as error:
        raise CannotCompile(f"the kernel takes no filter of system calls: {os.strerror(error.errno or 0)}") from None


def _program(seccomp: ModuleType, level: str, companions: tuple[str, ...], landlock: int) -> bytes:
    made = seccomp.SyscallFilter(seccomp.ALLOW)
    absent = seccomp.ERRNO(errno.ENOSYS)
    refused = seccomp.ERRNO(errno.EPERM)
    made.set_attr(seccomp.Attr.ACT_BADARCH, absent)
    made.set_attr(seccomp.Attr.CTL_OPTIMIZE, _AS_A_TREE)
    for name in companions:
        made.add_arch(getattr(seccomp.Arch, name))
    unknown = []
    for name in _names(level):
        if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) != -1:
            made.add_rule(refused, name)
        elif name in denied_calls.NUMBERS:
            unknown.append(denied_calls.NUMBERS[name])
    if level == STRICT:
        _deny_by_arguments(seccomp, made, refused, absent)
        if landlock < TRUNCATION_SINCE:
            _deny_truncation(seccomp, made, absent)
    with open(os.memfd_create("program"), "w+b") as file:
        made.export_bpf(file)
        file.seek(0)
        return _deny_numbers(unknown) + file.read()


def _deny_numbers(numbers: list[int]) -> bytes:
    """Return the beginning of a program: denies, by number, the calls unknown to this libseccomp."""
    code = [_LOAD_NUMBER] if numbers else []
    for number in numbers:
        code += [(_UNLESS_EQUAL, 0, 1, number), (_RETURN, 0, 0, _FAIL_WITH | errno.EPERM)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _names(level: str) -> list[str]:
    groups = [denied_calls.DEFAULT, denied_calls.STRICT] if level == STRICT else [denied_calls.DEFAULT]
    return [name for group in groups for names in group.values() for name in names]


def _deny_by_arguments(seccomp: ModuleType, made: Any, refused: int, absent: int) -> None:
    for bit in denied_calls.NAMESPACES:
        made.add_rule(refused, "clone", seccomp.Arg(_FLAGS_OF_CLONE, seccomp.MASKED_EQ, bit, bit))
    for bit in (*denied_calls.NAMESPACES, denied_calls.NEW_TIME):
        made.add_rule(refused, "unshare", seccomp.Arg(0, seccomp.MASKED_EQ, bit, bit))
    made.add_rule(absent, "clone3")  # a filter cannot see its flags; programs fall back to clone
    for request in denied_calls.TYPING_FOR_OTHERS:
        made.add_rule(refused, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, denied_calls.IOCTL_BITS, request))


def _deny_truncation(seccomp: ModuleType, made: Any, absent: int) -> None:
    """Deny truncation by path.

    ftruncate(2) stays allowed: its file was opened for writing, which Landlock has checked.
    """
    not_here = seccomp.ERRNO(errno.EACCES)
    for name in ("truncate", "truncate64"):
        made.add_rule(not_here, name)
    for name, flags in _OPENING:
        mask = denied_calls.ACCESS_MODE | denied_calls.EMPTY
        made.add_rule(not_here, name, seccomp.Arg(flags, seccomp.MASKED_EQ, mask, denied_calls.EMPTY))
    made.add_rule(absent, "openat2")
