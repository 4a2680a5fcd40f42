"""OpenPMIx's server library, in the part needed by a step: structures, and calls by ctypes.

The sizes are those of pmix_common.h and pmix_server.h, which are the same from release 3 on.
"""

import ctypes as c

SUCCESS, DONE, NOT_SUPPORTED, NOT_FOUND = 0, -157, -47, -46
STRING, UINT32, BOOL = 3, 14, 1
WILDCARD = 0xFFFFFFFE
_LIBRARIES = ("libpmix.so.2",)
_MEMBERS = 28
_COMPRESSED = "blob"  # later releases compress long texts, into bytes whose length is not returned


class Proc(c.Structure):
    """pmix_proc_t."""

    _fields_ = (("nspace", c.c_char * 256), ("rank", c.c_uint32))


class _Data(c.Union):
    _fields_ = (("flag", c.c_bool), ("string", c.c_char_p), ("uint32", c.c_uint32), ("room", c.c_char * 24))


class _Value(c.Structure):
    _fields_ = (("type", c.c_uint16), ("data", _Data))


class Info(c.Structure):
    """pmix_info_t."""

    _fields_ = (("key", c.c_char * 512), ("flags", c.c_uint32), ("value", _Value))


_PROC, _INFO, _ANY = c.POINTER(Proc), c.c_void_p, c.c_void_p
RELEASE = c.CFUNCTYPE(None, _ANY)
OF_MODEX = c.CFUNCTYPE(None, c.c_int, _ANY, c.c_size_t, _ANY, _ANY, _ANY)
OF_REQUEST = c.CFUNCTYPE(None, c.c_int, _ANY, c.c_size_t, _ANY)
CLIENT = c.CFUNCTYPE(c.c_int, _PROC, _ANY, _ANY, _ANY)
ABORT = c.CFUNCTYPE(c.c_int, _PROC, _ANY, c.c_int, c.c_char_p, _ANY, c.c_size_t, _ANY, _ANY)
FENCE = c.CFUNCTYPE(c.c_int, _PROC, c.c_size_t, _INFO, c.c_size_t, _ANY, c.c_size_t, OF_MODEX, _ANY)
DIRECT_MODEX = c.CFUNCTYPE(c.c_int, _PROC, _INFO, c.c_size_t, OF_MODEX, _ANY)
SPAWN = c.CFUNCTYPE(c.c_int, _PROC, _INFO, c.c_size_t, _ANY, c.c_size_t, _ANY, _ANY)
CONNECT = c.CFUNCTYPE(c.c_int, _PROC, c.c_size_t, _INFO, c.c_size_t, _ANY, _ANY)
REGISTER = c.CFUNCTYPE(c.c_int, _ANY, c.c_size_t, _INFO, c.c_size_t, _ANY, _ANY)
DEREGISTER = c.CFUNCTYPE(c.c_int, _ANY, c.c_size_t, _ANY, _ANY)


class Module(c.Structure):
    """pmix_server_module_t. All further members are empty."""

    _fields_ = (
        ("client_connected", CLIENT), ("client_finalized", CLIENT), ("abort", ABORT), ("fence_nb", FENCE),
        ("direct_modex", DIRECT_MODEX), ("publish", _ANY), ("lookup", _ANY), ("unpublish", _ANY), ("spawn", SPAWN),
        ("connect", CONNECT), ("disconnect", CONNECT), ("register_events", REGISTER),
        ("deregister_events", DEREGISTER), ("rest", _ANY * (_MEMBERS + 100)),
    )  # fmt: skip


class Failed(Exception):
    """A call of the library failed; str() names the call and the status."""


def infos(values: "dict[str, str | int | bool]") -> "tuple[c.Array[Info], int]":
    """Return an array of pmix_info_t and the array's length."""
    made = (Info * len(values))()
    for one, (key, value) in zip(made, values.items(), strict=True):
        one.key = key.encode("ascii")
        if isinstance(value, bool):
            one.value.type, one.value.data.flag = BOOL, value
        elif isinstance(value, int):
            one.value.type, one.value.data.uint32 = UINT32, value
        else:
            one.value.type, one.value.data.string = STRING, value.encode("ascii")
    return made, len(values)


class Library:
    """The library's calls. Raises Failed where the library is missing."""

    def __init__(self) -> None:
        for name in _LIBRARIES:
            try:
                self._calls = c.CDLL(name)
            except OSError:
                continue
            return
        raise Failed(f"there is no {_LIBRARIES[0]} (OpenPMIx)")

    def call(self, name: str, *arguments: object) -> None:
        """Call a function with a status as result. Raises Failed for an error status."""
        status = getattr(self._calls, name)(*arguments)
        if status not in (SUCCESS, DONE):
            raise Failed(f"{name} returned {status}")

    def folded(self, name: str, text: str) -> str:
        """Call PMIx_generate_regex or PMIx_generate_ppn and return the result. Raises Failed."""
        found = c.c_char_p()
        self.call(name, text.encode("ascii"), c.byref(found))
        short = (found.value or b"").decode("ascii", "replace")
        return f"raw:{text}" if short.startswith(_COMPRESSED) else short

    def variables(self, proc: Proc) -> "list[str]":
        """Return a client's environment from PMIx_server_setup_fork, as NAME=VALUE. Raises Failed."""
        found = c.POINTER(c.c_char_p)()
        self.call("PMIx_server_setup_fork", c.byref(proc), c.byref(found))
        variables: list[str] = []
        while (word := found[len(variables)]) is not None:
            variables.append(word.decode("utf-8", "surrogateescape"))
        return variables
