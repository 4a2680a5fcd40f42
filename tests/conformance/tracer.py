"""A SPANK plugin that writes down every hook: context, identity, arguments, what each call answers, what it returns.

`tracer.c` is the same in C; both write the same records. A copy called traceb.py is a second plugin, tracetab.py one
whose options begin with a table. Arguments, as in the recordings, HOOK without its prefix, CTX in small letters:

    out=FILE             where records go, one JSON object a line; the file exists and anybody may write to it
    fail=HOOK:RC[:CTX]   the hook returns RC
    exit=HOOK:CODE[:CTX] the hook ends its process
    segv=HOOK[:CTX]      the hook dies of SIGSEGV
    sleep=HOOK:MS[:CTX]  the hook takes its time
    optret=RC[:CTX]      the callback of an option returns RC
    calls=1              every call of the interface is tried in every hook
    say=1                every hook speaks at every level, and writes to stdout and stderr
"""

import contextlib
import json
import os
import signal
import time

from nodectl import spank
from nodectl.spank import SpankError, SpankOption
from nodectl.spank.handle import Spank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

plugin_type = "spank"
plugin_name = os.path.basename(__file__)[: -len(".py")]
plugin_version = (22, 5, 8)

CONTEXTS = ("ERROR", "LOCAL", "REMOTE", "ALLOCATOR", "SLURMD", "JOB_SCRIPT")
ITEMS = {name: value for name, value in vars(spank).items() if name.startswith("S_") and not name.startswith("S_CTX_")}
FAR = 99999


class _State:
    """What callbacks of options, which are given no arguments, need to know."""

    argv: "tuple[str, ...]" = ()


def option_cb(val: int, optarg: "str | None", remote: int) -> int:
    """The callback of every option."""
    del val
    context = CONTEXTS[spank.spank_context()]
    rc = int(_order(_State.argv, "optret", "", context) or 0)
    _write({"hook": "option_cb", "optarg": optarg, "remote": remote, "ret": rc, **_who(context)}, _State.argv)
    return rc


def _option(name: str, arginfo: "str | None", has_arg: int) -> SpankOption:
    usage = ("without argument", "with required argument", "with optional argument")[has_arg]
    return SpankOption(f"{plugin_name}-{name}", arginfo, f"trace: option {usage}", has_arg, has_arg, option_cb)


REGISTERED = (_option("opt", "ARG", 1), _option("flag", None, 0), _option("maybe", "[ARG]", 2))
UNKNOWN = SpankOption("never-registered", None, "unknown", 1, 0, None)
if plugin_name == "tracetab":
    spank_options = [_option("tab", "ARG", 1)]


def _order(argv: "Sequence[str]", word: str, hook: str, context: str) -> "str | None":
    """The value that an argument orders for this hook in this context: `word`=hook:value:context."""
    for argument in argv:
        name, _, text = argument.partition("=")
        parts = text.split(":")
        if name != word or (hook and parts.pop(0) != hook):
            continue
        if parts and parts[-1].replace("_", "").isalpha() and parts.pop() != context.lower():
            continue
        return parts[0] if parts else ""
    return None


def _who(context: str) -> "dict[str, object]":
    ids = (os.getresuid(), os.getresgid())
    return {"plugin": plugin_name, "ctx": context, "uids": ids[0][:2], "gids": ids[1][:2], "pid": os.getpid()}


def _write(record: "dict[str, object]", argv: "Sequence[str]") -> None:
    path = next(word.partition("=")[2] for word in argv if word.startswith("out="))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.write(fd, json.dumps(record).encode() + b"\n")
    os.close(fd)


def _try(function: "Callable[..., object]", *arguments: object) -> "dict[str, object]":
    try:
        value = function(*arguments)
    except SpankError as error:
        return {"rc": error.code, "str": spank.spank_strerror(error.code)}
    found: dict[str, object] = {"rc": 0, "str": spank.spank_strerror(0)}
    return found if value is None else {**found, "val": value}


def _items(sp: Spank) -> "dict[str, object]":
    found: dict[str, object] = {}
    for name, item in ITEMS.items():
        if "_PID_TO_" in name:
            pid = _try(spank.spank_get_item, sp, spank.S_TASK_PID).get("val", 1)
            one = _try(spank.spank_get_item, sp, item, pid)
            if one["rc"] == 0:
                unknown = _try(spank.spank_get_item, sp, item, 1)
                one["val"] = {"arg_pid": pid, "val": one["val"], "pid1_rc": unknown["rc"]}
        elif "_TO_" in name:
            one = _try(spank.spank_get_item, sp, item, 0)
            if one["rc"] == 0:
                far = _try(spank.spank_get_item, sp, item, FAR)
                one["val"] = {"arg0": one["val"], "arg99999_rc": far["rc"]}
        else:
            one = _try(spank.spank_get_item, sp, item)
        if name == "S_JOB_ARGV" and one["rc"] == 0:
            one["val"] = {"argc": len(one["val"]), "argv": one["val"]}  # type: ignore[arg-type]
        if name == "S_JOB_ENV":
            one.pop("val", None)
        one.pop("str")
        found[name] = one
    found["item_999"] = {"rc": _try(spank.spank_get_item, sp, 999)["rc"]}
    found["null_handle"] = {"rc": _try(spank.spank_get_item, None, spank.S_JOB_UID)["rc"]}
    return found


def _environment(sp: Spank, hook: str) -> "dict[str, object]":
    new = f"TRACE_SET_{hook}"
    with contextlib.suppress(SpankError):
        spank.spank_unsetenv(sp, new)  # the same hook for another task has set it
    return {
        "getenv_PATH": _try(spank.spank_getenv, sp, "PATH"),
        "getenv_missing": _try(spank.spank_getenv, sp, "TRACE_NO_SUCH"),
        "setenv_new": _try(spank.spank_setenv, sp, new, "first", 0),
        "setenv_exists_ow0": _try(spank.spank_setenv, sp, new, "second", 0),
        "setenv_exists_ow1": _try(spank.spank_setenv, sp, new, "third", 1),
        "getenv_back": _try(spank.spank_getenv, sp, new),
        "setenv_null_val": _try(spank.spank_setenv, sp, new, None, 1),
        "setenv_null_var": _try(spank.spank_setenv, sp, None, "x", 1),
        "unsetenv": _try(spank.spank_unsetenv, sp, f"TRACE_UNSET_{hook}"),
        "unsetenv_missing": _try(spank.spank_unsetenv, sp, "TRACE_NO_SUCH"),
        "unsetenv_null": _try(spank.spank_unsetenv, sp, None),
        "getenv_null_handle": _try(spank.spank_getenv, None, "PATH"),
    }


def _job_control(sp: Spank, hook: str) -> "dict[str, object]":
    new, gone = f"TRACE_JC_{hook}", f"TRACE_JCDEL_{hook}"
    return {
        "setenv": _try(spank.spank_job_control_setenv, sp, new, "one", 1),
        "setenv_exists_ow0": _try(spank.spank_job_control_setenv, sp, new, "two", 0),
        "getenv": _try(spank.spank_job_control_getenv, sp, new),
        "getenv_missing": _try(spank.spank_job_control_getenv, sp, "TRACE_NO_SUCH"),
        "setenv_null": _try(spank.spank_job_control_setenv, sp, None, None, 1),
        "setenv_del": _try(spank.spank_job_control_setenv, sp, gone, "x", 1),
        "unsetenv": _try(spank.spank_job_control_unsetenv, sp, gone),
        "unsetenv_missing": _try(spank.spank_job_control_unsetenv, sp, "TRACE_NO_SUCH"),
    }


def _process() -> "dict[str, object]":
    umask = os.umask(0)
    os.umask(umask)
    found = {
        "uids": os.getresuid(),
        "gids": os.getresgid(),
        "groups": os.getgroups(),
        "umask": umask,
        "cwd": os.getcwd(),
        "nice": os.nice(0),
    }
    return {name: {"val": value} for name, value in found.items()}


def _getopt(sp: Spank) -> "dict[str, object]":
    found: dict[str, object] = {
        option.name.partition("-")[2]: _try(spank.spank_option_getopt, sp, option) for option in REGISTERED
    }
    found["unregistered"] = _try(spank.spank_option_getopt, sp, UNKNOWN)
    return {**found, "null_opt": _try(spank.spank_option_getopt, sp, None)}


def _speak(hook: str) -> None:
    for level in ("error", "info", "verbose", "debug", "debug2", "debug3"):
        getattr(spank, f"slurm_{level}")(f"say {hook} {level}")
    spank.slurm_spank_log(f"say {hook} spank_log")
    os.write(1, f"say {hook} stdout\n".encode())
    os.write(2, f"say {hook} stderr\n".encode())


def _hook(hook: str) -> "Callable[[Spank, int, list[str]], int]":
    def call(sp: Spank, ac: int, argv: "list[str]") -> int:
        _State.argv = tuple(argv)
        context = CONTEXTS[spank.spank_context()]
        if hook == "init":
            for option in REGISTERED:
                spank.spank_option_register(sp, option)
        rc = int(_order(argv, "fail", hook, context) or 0)
        words = [word for word in argv if word.partition("=")[0] not in ("out", "calls")]
        record: dict[str, object] = {"hook": hook, "ret": rc, "remote": spank.spank_remote(sp), **_who(context)}
        record.update(args=words, ac=ac - len(argv) + len(words))
        for name, item in (
            ("step", spank.S_JOB_STEPID),
            ("task", spank.S_TASK_ID),
            ("status", spank.S_TASK_EXIT_STATUS),
        ):
            record[name] = _try(spank.spank_get_item, sp, item).get("val") if context == "REMOTE" else None
        if "calls=1" in argv:
            record.update(items=_items(sp), env=_environment(sp, hook), getopt=_getopt(sp))
            record.update(job_control=_job_control(sp, hook), process=_process())
        _write(record, argv)
        if "say=1" in argv:
            _speak(hook)
        if (pause := _order(argv, "sleep", hook, context)) is not None:
            time.sleep(int(pause) / 1000)
        if (code := _order(argv, "exit", hook, context)) is not None:
            os._exit(int(code))
        if _order(argv, "segv", hook, context) is not None:
            os.kill(os.getpid(), signal.SIGSEGV)
        return rc

    return call


slurm_spank_init = _hook("init")
slurm_spank_slurmd_init = _hook("slurmd_init")
slurm_spank_job_prolog = _hook("job_prolog")
slurm_spank_init_post_opt = _hook("init_post_opt")
slurm_spank_local_user_init = _hook("local_user_init")
slurm_spank_user_init = _hook("user_init")
slurm_spank_task_init_privileged = _hook("task_init_privileged")
slurm_spank_task_init = _hook("task_init")
slurm_spank_task_post_fork = _hook("task_post_fork")
slurm_spank_task_exit = _hook("task_exit")
slurm_spank_job_epilog = _hook("job_epilog")
slurm_spank_slurmd_exit = _hook("slurmd_exit")
slurm_spank_exit = _hook("exit")
