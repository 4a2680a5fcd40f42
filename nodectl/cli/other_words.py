"""Words of other tools, and of everyday speech, with the command of nodectl that does the same."""

MEANT = {
    "logs": "log", "tail": "log -f", "cat": "log", "follow": "log -f", "output": "log", "fg": "log -f",
    "status": "queue", "list": "queue", "ls": "queue", "jobs": "queue", "qstat": "queue", "squeue": "queue",
    "kill": "cancel", "stop": "cancel", "rm": "cancel", "remove": "cancel", "delete": "cancel", "qdel": "cancel",
    "scancel": "cancel", "clean": "cancel",
    "restart": "resubmit", "rerun": "resubmit", "retry": "resubmit", "again": "resubmit",
    "add": "submit", "sbatch": "submit", "batch": "submit", "qsub": "submit", "enqueue": "submit",
    "pause": "hold` of a waiting job, `nodectl suspend` of one that runs",
    "start": "release` of a held job, `nodectl submit` of a new one",
    "unhold": "release", "continue": "resume", "unsuspend": "resume",
    "exec": "enter` in a running job, `nodectl run` of a new one",
    "shell": "enter", "ssh": "enter", "srun": "run", "salloc": "alloc",
    "sattach": "attach", "sbcast": "bcast", "edit": "update", "modify": "update", "change": "update",
    "scontrol": "show",
    "info": "show", "inspect": "show", "describe": "show", "why": "explain", "reason": "explain",
    "history": "acct", "sacct": "acct", "past": "acct", "usage": "report", "sreport": "report", "stats": "report",
    "sinfo": "node", "nodes": "node", "gpus": "node", "machine": "topo", "lstopo": "topo", "nvidia-smi": "topo",
    "drain": "node drain", "undrain": "node resume",
    "watch": "queue --watch", "htop": "top", "sstat": "ps", "steps": "ps",
    "parallel": "bulk", "xargs": "bulk", "map": "bulk", "check": "doctor", "test": "doctor", "settings": "config",
    "version": "--version", "man": "help", "reservation": "reserve", "service": "daemon",
    "server": "daemon", "pueued": "daemon", "serve": "daemon",
}  # fmt: skip
"""By the word: what stands behind `nodectl`; where two commands are meant, each with the case."""


def ours(word: str) -> str:
    """Return the line about a word of another tool, "" for an unknown word."""
    meant = MEANT.get(word, "")
    return f"; here it is `nodectl {meant}{'' if '`' in meant else '`'}" if meant else ""
