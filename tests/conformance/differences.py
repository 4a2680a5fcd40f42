"""Where nodectl differs from the recorded Slurm on purpose, and which recordings a node cannot play: those say what
holds them instead, where anything does.

A row changes what came of a scenario there into what must come of it here, so that it states nodectl's own behaviour.
`tests/conformance/test_recordings.py` asserts each, and that none is left over.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Callable
from dataclasses import dataclass

from conformance import changes
from conformance.scenario import MINGLED, Result, settled

NOT_HERE = {
    "core/09[ghi]_*": "what their script does is not recorded: tests/rootful/jobs/test_queue_command.py",
    "core/09l_*": "when its task ignores the signal is not told: tests/rootful/steps/test_signals.py",
    "fail/sbatch_job_prolog_*": "the node is drained, and plays nothing more: tests/rootful/jobs/test_around_jobs.py",
    "stack/50_*sbatch": "a command and a node with different stacks: here the node tells the command its own",
    "time/03_*": "what its script does is not recorded: tests/rootful/jobs/test_time_warnings.py",
    "say/*_slurmd_debug": "srun --slurmd-debug is accepted and ignored; -v does it",
    "misc/12_*": "scontrol and squeue",
    "opt/01_help": "the layout of srun's own help: tests/unit/client/test_run_options.py",
    "fail/srun_init_slurmd_required_rc-1": "a daemon that does not start: tests/rootful/daemon/test_slurmd_context.py",
    "opt/30_*": "a command and a node with different stacks: here the node tells the command its own",
    "stack/50_*": "a command and a node with different stacks: here the node tells the command its own",
    "io/19_*": "the sum of what two tasks write at once is chance: tests/rootful/steps/test_stdio.py",
    "io/20*": "a terminal: tests/rootful/steps/test_pty.py",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One difference. `scenarios` are patterns of names; `change` turns the recorded result into ours, in place."""

    scenarios: tuple[str, ...]
    change: Callable[[Result], None]
    slurm: str
    nodectl: str
    why: str
    language: str = ""  # of the plugin, "" for any


_SILENT = "a required plugin's failure must be seen: exit status, state and reason"
DIFFERENCES = (
    Row(
        ("*",), changes.once,
        "the remote callback of an option runs twice, by message and by environment",
        "it runs once", "the second call is an accident: values that count or append come out wrong",
    ),
    Row(
        ("fail/srun_init_local_required_rc1",), changes.command_refused,
        "logs a positive return of a required plugin and goes on", "any return but 0 refuses the command",
        "today's Slurm counts any return but 0",
    ),
    Row(
        ("fail/srun_init_remote_required_rc1", "fail/srun_user_init_required_rc*"), changes.step_fails,
        "exit status 0 and COMPLETED, for 1 even runs the tasks", "exit status 1, FAILED", _SILENT,
    ),
    Row(
        ("fail/srun_init_remote_required_rc-1",),
        changes.step_fails_and_exits,
        "exit status 0 and COMPLETED, and no hook exit", "exit status 1, FAILED, and exit is called",
        f"{_SILENT}; what another plugin's init has begun, its exit ends",
    ),
    Row(
        ("fail/srun_task_init_required_rc1", "fail/srun_task_init_privileged_required_rc1"), changes.tasks_fail,
        "logs a positive return and runs the program", "the task ends with status 1",
        "today's Slurm counts any return but 0",
    ),
    Row(
        ("fail/srun_job_prolog_required_rc-1", "prolog/17_*"), changes.job_refused,
        "srun ends with 182 and says neither plugin nor hook, the job is CANCELLED, the node drained",
        "exit status 1, FAILED, plugin and hook named; the node serves on", "one way for every failure of a launch",
    ),
    Row(
        ("fail/srun_job_prolog_required_rc1",), changes.job_refused,
        "logs a positive return and runs the job", "the job is refused", "today's Slurm counts any return but 0",
    ),
    Row(
        ("crash/*_job_prolog",), changes.job_script_died,
        "srun ends with 182 and says neither plugin nor hook", "exit status 1, FAILED, plugin and hook named",
        "one way for every failure of a launch",
    ),
    Row(
        ("crash/job_control_in_job_script",), changes.runs,
        "spank_job_control_* crash in job_prolog and job_epilog", "they answer with the documented codes",
        "a plugin that asks is no reason to lose a job",
    ),
    Row(
        ("fail/srun_exit_remote_required_rc*",), changes.exit_fails,
        "the user hears nothing of a failure in the stepd's exit: exit status 0, COMPLETED", "exit status 1, FAILED",
        _SILENT,
    ),
    Row(
        ("fail/srun_task_exit_required_rc-1",), changes.task_exit_fails,
        "logged: exit status 0, COMPLETED", "a task that ended well has ended with status 1", _SILENT,
    ),
    Row(
        ("opt/15_cb_remote_invalid",), changes.option_refused,
        "logged, and the tasks run", "the step fails, and nothing of the user's runs",
        "the manual: any failure of a required plugin ends the job",
    ),
    Row(
        ("crash/*_init_remote", "crash/*_init_post_opt_remote", "crash/exit_user_init", "crash/segv_user_init",
         "crash/*_task_exit",
         "crash/exit_exit_remote", "crash/segv_task_post_fork"), changes.runner_died,
        "srun hangs until it is killed, or reports success", "at once: exit status 1, plugin and hook named, NODE_FAIL",
        "who waits for a step must hear of its end",
    ),
    Row(
        ("crash/*_local_user_init",), changes.nothing_launched,
        "the job that was allocated is cancelled", "there is no job yet: its number was reserved only",
        "a job begins with the launch of its step",
    ),
    Row(
        ("crash/segv_local_user_init",), changes.two_tasks_run,
        "srun dies with an optional plugin", "the plugin has failed, which costs a warning",
        "the manual: optional plugins only cause a warning; an interpreter that crashed cannot go on", "c",
    ),
    Row(
        ("crash/exit_local_user_init",), changes.two_tasks_run,
        "srun ends with the status that an optional plugin gave to exit()",
        "the plugin has failed, which costs a warning",
        "the manual: optional plugins only cause a warning",
    ),
    Row(
        ("*salloc*", "prolog/14_*", "misc/05_*"), changes.held_by_extern,
        "without PrologFlags=Contain no step holds an allocation", "the extern step does, and calls what Slurm's calls",
        "the allocation outlives the service",
    ),
    Row(
        ("core/03f_*", "fail/salloc_exit_*"), changes.prolog_at_allocation,
        "the prolog runs before the first step of an allocation", "it runs before the allocation is the user's",
        "as with PrologFlags=Alloc, which Contain implies",
    ),
    Row(
        ("core/09e_*",), changes.ended_by(15, "Terminated", "CANCELLED"),
        "scancel of a step kills it at once, and it has FAILED",
        "SIGTERM comes first, as for a job, and it is CANCELLED", "programs clean up",
    ),
    Row(
        ("core/10c_*",), changes.ended_by(15, "Terminated"),
        "SIGTERM to the command kills the step", "is passed on to the tasks", "programs clean up as they do outside",
    ),
    Row(
        ("core/10e_*",), changes.ended_by(1),
        "SIGHUP to the command kills the step", "is passed on to the tasks", "programs clean up as they do outside",
    ),
    Row(
        ("prolog/01b_*",), lambda result: result.said.extend(["taskepilog stderr"] * 2),
        "what scripts after a task write to stderr has the label of the first task", "it has none",
        "the streams of a task end with it: a reader of them does not wait for what comes behind",
    ),
    Row(
        ("prolog/01f_*",), lambda result: result.said.append("taskepilog stderr"),
        "what scripts after a task write to stderr is in the first task's file", "it is the command's",
        "the streams of a task end with it: a reader of them does not wait for what comes behind",
    ),
    Row(
        ("prolog/19_*_sbatch",), changes.no_argument,
        'srun in a script is told of an option without argument with the text "(null)"', "with none",
        "a NULL that was printed into a variable",
    ),
    Row(
        ("fail/sbatch_init_remote_required_rc-1", "fail/sbatch_init_post_opt_remote_required_rc-1"),
        changes.script_never_runs,
        "COMPLETED, and no hook exit", "FAILED, and exit is called", _SILENT,
    ),
    Row(
        ("fail/sbatch_exit_remote_required_rc-1", "fail/sbatch_task_init_privileged_required_rc-1",
         "fail/sbatch_task_post_fork_required_rc-1"), changes.script_fails,
        "the job's file says nothing of a failed plugin; a failure of exit or task_post_fork is COMPLETED",
        "it names plugin and hook; FAILED", _SILENT,
    ),
    Row(
        ("stack/07b_*",), changes.carriage_return,
        "a carriage return at the end of a line belongs to the word", "it is dropped, with a warning",
        "files edited on other systems; no plugin's name ends so",
    ),
    Row(
        ("stack/29_*",), changes.succeeds,
        "the user's srun reads plugstack.conf and fails where the user may not",
        "the daemon reads it and tells the command",
        "the step's stack is root's; one that only root can read works",
    ),
    Row(
        ("stack/33e_*",), changes.runs,
        "a name without suffix is not found", "name.py or name.so in plugin_dir is",
        "a convenience; nothing is ambiguous",
    ),
    Row(
        ("say/log_routing_srun", "say/log_routing_srun_Q"), changes.user_stderr,
        "remote init, init_post_opt and exit are unheard", "messages and stderr of all hooks reach the user",
        "a plugin that says why it fails is to be heard",
    ),
    Row(
        ("say/log_routing_sbatch",), changes.user_file,
        "remote init, init_post_opt and exit are unheard", "they are in the job's file",
        "a plugin that says why it fails is to be heard",
    ),
    Row(
        ("core/07d_*",), changes.killed_by_one,
        "SIGKILL reaches the shells' children first: one shell goes on and prints",
        "every process of the step gets it at once",
        "what happens there is a race",
    ),
    Row(
        ("io/28c_*",), changes.succeeds_silently,
        "more tasks than CPUs need --overcommit", "run needs no option",
        "programs of tests and exercises have more tasks than a laptop has CPUs",
    ),
    Row(
        ("io/19b_*",), changes.one_line,
        "a long line is cut into pieces of 1024 bytes, each with a label", "a line has one label",
        "a reader takes each piece for a line",
    ),
    Row(
        ("core/07b_*",), changes.killed_all,
        "SIGTERM reaches the shells' children first: two shells go on and print",
        "every process of the step gets it at once",
        "what happens there is a race",
    ),
    Row(
        ("io/11*",), changes.file_refused,
        "exit status 0 and COMPLETED though no task could open its file", "the task ends with status 1", _SILENT,
    ),
    Row(
        ("io/17_*", "io/17b_*"), changes.input_by_task,
        "a file for each task hangs, or is an error", "each task reads its own", "it is what the pattern says",
    ),
    Row(
        ("io/17c_*",), changes.input_of_one,
        "a file for each task hangs", "the task reads its own", "it is what the pattern says",
    ),
    Row(
        ("io/18d_*",), changes.whole_lines,
        "--unbuffered passes pieces of lines on, each with its task's label", "labels stand before whole lines",
        "pieces of different tasks' lines make no sense to a reader",
    ),
    Row(
        ("io/21c_*",), lambda result: result.said.remove("chdir /root"),
        "the step runner tries the directory too, and complains too", "each task does", "once is enough",
    ),
    Row(
        ("io/16_*",), changes.file_refused,
        "srun opens the file and cancels the job", "the task opens it, as its user",
        "one way for every pattern of a name",
    ),
)  # fmt: skip


def expected(name: str, recorded: Result, language: str) -> Result:
    """What must come of a scenario here, with a tracer in this language."""
    result = copy.deepcopy(recorded)
    for row in DIFFERENCES:
        if row.language in ("", language) and any(fnmatch.fnmatchcase(name, pattern) for pattern in row.scenarios):
            row.change(result)
    return settled(result, mingled=True) if name in MINGLED else result


def reason_not_here(name: str) -> str:
    """Why a scenario is not run here, "" for one that is."""
    return next((reason for pattern, reason in NOT_HERE.items() if fnmatch.fnmatchcase(name, pattern)), "")
