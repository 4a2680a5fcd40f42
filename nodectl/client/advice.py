"""Advice on refusals which do not contain advice, often srun's words. Imported where a command failed."""

from nodectl.client.command import Program, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.client.command import BadOption, Failed
    from nodectl.client.run_options import Option

# Beginnings of refusals that name an option, but not its possible values.
_ABOUT_OPTIONS = ("Invalid ", "unrecognized --")
# In a refusal by the plugin that offers the option, which may be called as one of ours; in one with its own advice.
_WITHOUT_ADVICE = ("(plugin ", " is allowed for --")
_HELPED = ("cpu-bind", "mem-bind", "gpu-bind", "hint", "gres")  # whose value "help" lists what there is
# Advice by the subject of the refusal, for any source and wording.
ADVICE = {
    "program": "write the program behind the options, as in: nodectl run -n2 hostname",
    "immediate": "without --immediate it waits for its turn; `nodectl queue` tells who is before it",
    "node name": "`nodectl node` lists those that there are",
    "number of nodes": "there is one machine: leave -N out",
    "qos": "the key qos of the configuration has those that there are: `nodectl config`",
    "machine": "`nodectl node` tells what there is",
    "reservation": "`nodectl reserve list` tells what there is",
    "dependency": "`nodectl queue` lists jobs; one that ended long ago is unknown",
    "unknown": "`nodectl queue` lists jobs, `nodectl ps --ended` steps; other users' are told to admins only",
    "no log of batch": "`nodectl submit --output=FILE` names one; `none` stood there",
    "no log of run": "its command's terminal has it; `nodectl run --output=FILE` or `nodectl submit` keep it in a "
    "file, and `nodectl attach` shows a step that runs with -l, -u or --pty",
    "no log of alloc": "its steps write to the terminal of `nodectl alloc`; `nodectl submit` keeps output in a file",
    "no log of a step": "it writes where its `nodectl run` does: to that terminal, or to the file of the batch job, "
    "which `nodectl log JOB` prints",
    "queue": "`nodectl acct` tells what has ended",
    "admins": "ask one of them, or use sudo; the key admin_group names it",
}


def refuse(error: "Failed | BadOption", reason: str = "") -> None:
    """Print an error line, with advice after -> where the reason has none, as in `nodectl doctor`.

    `reason`: replaces the error's words.
    """
    reason = reason or str(error)
    words = advice(error, reason)
    complain(f"{reason} -> {words}" if words else reason)


def advice(error: "Failed | BadOption", reason: str) -> str:
    """Return a line of advice, or "". Slurm's commands by name give none, because scripts know their words."""
    if Program.is_slurms():
        return ""
    if error.subject:
        return ADVICE.get(error.subject, "")
    about_ours = reason.startswith(_ABOUT_OPTIONS) and not any(words in reason for words in _WITHOUT_ADVICE)
    option = _named(reason) if about_ours else None
    return _of_option(option) if option is not None and option.help else ""


def _named(reason: str) -> "Option | None":
    """Return the first option named by the reason."""
    from nodectl.client.srun.options import parser

    known = {option.long: option for option in parser().all_options()}
    words = (word.strip(".,:;'\"").removeprefix("--") for word in reason.split() if word.startswith("--"))
    return next((known[word] for word in words if word in known), None)


def _of_option(option: "Option") -> str:
    argument = f"={option.arginfo.removeprefix('[=').removesuffix(']')}" if option.arginfo else ""
    more = f"; --{option.long}=help says more" if option.long in _HELPED else ""
    return f"--{option.long}{argument}: {option.help}{more}"
