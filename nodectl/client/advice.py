"""What to do about a refusal whose own words, often srun's, do not say it. Imported where something failed."""

from nodectl.client.command import Program, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.client.run_options import Option

# How a refusal begins that says which option, and not what it may be.
_ABOUT_OPTIONS = ("Invalid ", "unrecognized --")
_BY_PLUGIN = "(plugin "  # in a refusal by the plugin that offers the option, which may be called as one of ours
_HELPED = ("cpu-bind", "mem-bind", "gpu-bind", "hint", "gres")  # whose value "help" lists what there is
_LISTS = "`nodectl queue` lists jobs, `nodectl ps --ended` steps; other users' are told to admins only"
# How a refusal begins, and what to do.
_ADVICE = (
    ("No command given", "write the program behind the options, as in: nodectl run -n2 hostname"),
    ("Unable to allocate resources: Requested nodes are busy",
     "without --immediate it waits for its turn; `nodectl queue` tells who is before it"),
    ("Invalid node name", "`nodectl node` lists those that there are"),
    ("Only allocated 1 nodes", "there is one machine: leave -N out"),
    ("Invalid qos", "the key qos of the configuration has those that there are: `nodectl config`"),
    ("Requested node configuration", "`nodectl node` tells what there is"),
    ("Requested reservation", "`nodectl reserve list` tells what there is"),
    ("Job dependency problem: there is no job", "`nodectl queue` lists jobs; one that ended long ago is unknown"),
    ("no job ", _LISTS),
    ("no step ", _LISTS),
    ("not in the queue", "`nodectl acct` tells what has ended"),
    ("there is no reservation", "`nodectl reserve list` tells what there is"),
    ("only root and members of the admin group", "ask one of them, or use sudo; the key admin_group names it"),
)  # fmt: skip


def refuse(reason: str) -> None:
    """An error line; behind -> what to do, where the reason does not say it, as in `nodectl doctor`."""
    words = advice(reason)
    complain(f"{reason} -> {words}" if words else reason)


def advice(reason: str) -> str:
    """One line, or nothing. Slurm's commands by name give none: scripts know their words."""
    if Program.is_slurms():
        return ""
    for beginning, words in _ADVICE:
        if reason.startswith(beginning):
            return words
    if reason.startswith(_ABOUT_OPTIONS) and _BY_PLUGIN not in reason:
        option = _named(reason)
        if option is not None and option.help:
            return _of_option(option)
    return ""


def _named(reason: str) -> "Option | None":
    """The first option that the reason names."""
    from nodectl.client.srun.options import parser

    known = {option.long: option for option in parser().all_options()}
    words = (word.strip(".,:;'\"").removeprefix("--") for word in reason.split() if word.startswith("--"))
    return next((known[word] for word in words if word in known), None)


def _of_option(option: "Option") -> str:
    argument = f"={option.arginfo.removeprefix('[=').removesuffix(']')}" if option.arginfo else ""
    more = f"; --{option.long}=help says more" if option.long in _HELPED else ""
    return f"--{option.long}{argument}: {option.help}{more}"
