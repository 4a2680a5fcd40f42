"""A launch request of org.nodectl: the form, and the checks of the meaning common to all nodes. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nodectl.launch.task import programs
from nodectl.launch.task.keys import RLIMITS
from nodectl.model.fields import OF_TERMINAL
from nodectl.model.request_fields import LaunchRequest
from nodectl.model.wire import lean_json
from nodectl.model.wire.dispatch import invalid
from nodectl.model.wire.shape import an_object, array, mapping, text
from nodectl.model.wire.table import shape_of
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import NAMES, check_text, gathered

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

_MOST_BESIDE = 256 << 10  # bytes of a request, as JSON, without the parts bounded by execve(2) or `_job_control`
_BOUNDED = ("argv", "environment", "job_control", "part")
_WORD = text(131_072)  # MAX_ARG_STRLEN, the limit of execve(2)
LONGEST_VARIABLE = 128 * 1024  # MAX_ARG_STRLEN, with '=' and NUL
_LONGEST_OPTION = LONGEST_VARIABLE - 1024  # less the prefix of its variable's name
_TEXTS = mapping(text(8 << 20), most=64)  # each text has its own bound, by its name


def _anything(_: object) -> str:
    return ""


def _texts_of_layout(value: object) -> str:
    """Check the shape of `layout`: a text for each known option."""
    wrong = _TEXTS(value)
    if wrong:
        return wrong
    for name, word in value.items():  # type: ignore[attr-defined]  # a mapping
        if name not in NAMES:
            return f"no option of layout is called {name[:64]!r}"
        try:
            check_text(name, word)
        except NoLayout as error:
            return error.reason
    return ""


def _programs(value: object) -> str:
    """Check the shape of `programs`: rows of a list of tasks and an argv."""
    wrong = _ROWS(value)
    if wrong:
        return wrong
    for row in value:  # type: ignore[attr-defined]  # an array
        whole_row = len(row) > 1 and row[2:] in ([], [True])
        wrong = _TASKS(row[0]) or _ARGV(row[1]) if whole_row else "is not a list of tasks and an argv"
        if wrong:
            return wrong
    return ""


_ROWS, _TASKS, _ARGV = array(array(_anything, most=3), most=4096), text(65_536), array(_WORD, most=4096)

REQUEST: "Shape" = shape_of(LaunchRequest, {"layout": _texts_of_layout, "programs": _programs, "part": an_object})


def check_meaning(request: Mapping[str, object], ntasks: int) -> None:
    """Check the request, for a step of `ntasks` tasks, for errors on any node. Raises Refused."""
    argv: list[str] = request["argv"]  # type: ignore[assignment]  # REQUEST says so
    beside = len(lean_json.dumps({name: value for name, value in request.items() if name not in _BOUNDED}))
    if beside > _MOST_BESIDE:
        raise invalid("request", f"{beside} bytes beside program and environment are more than {_MOST_BESIDE}")
    if not argv or not argv[0]:
        raise invalid("argv", "no program given")
    if "programs" in request and (
        wrong := programs.wrong_with(request["programs"], ntasks)  # type: ignore[arg-type]
    ):
        raise invalid("programs", wrong)
    pty: Sequence[int] | None = request.get("pty")  # type: ignore[assignment]
    if pty is not None and (len(pty) != OF_TERMINAL or pty[0] >= ntasks or request.get("bulk")):
        raise invalid("pty", f"{list(pty)!r} is no task of the step with four figures of its terminal's size")
    _check_modules(request.get("preload", []))  # type: ignore[arg-type]  # REQUEST says so
    if not str(request["cwd"]).startswith("/"):
        raise invalid("cwd", f"{request['cwd']!r} is not absolute")
    for name in request.get("rlimits", {}):  # type: ignore[attr-defined]
        if name not in RLIMITS:
            raise invalid("rlimits", f"no limit called {name}")
    for option in request.get("options", []):  # type: ignore[attr-defined]
        if len(option) not in (2, 3):
            raise invalid("options", "an option is plugin, name and, where it has one, its argument")
        # Prologs and epilogs get the option as a variable, and one that cannot start costs the machine.
        if sum(len(word.encode("utf-8", "surrogateescape")) for word in option) > _LONGEST_OPTION:
            raise invalid("options", f"{option[1][:64]!r}: too long for an environment")
    for key in ("task_prolog", "task_epilog"):
        if not str(request.get(key, "/")).startswith("/"):
            raise invalid(key, f"{request[key]!r} is not absolute")


def _check_modules(names: Sequence[str]) -> None:
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise invalid("preload", f"{name[:64]!r} is no name of a Python module")


def options_of(request: Mapping[str, object]) -> dict[str, object]:
    """Return the options of layout and binding in force: given options, then srun's variables of the environment.

    The environment is the step's. Raises `binding.no_layout.NoLayout`.
    """
    given = {name: request[name] for name in ("ntasks", "cpus_per_task", "cpu_bind") if request.get(name)}
    environment: Mapping[str, str] = request["environment"]  # type: ignore[assignment]  # REQUEST says so
    return gathered({**request.get("layout", {}), **given}, environment)  # type: ignore[dict-item]
