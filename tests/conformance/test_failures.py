"""A hook that fails: every hook of a run, required and optional, negative and positive. Those that are recorded are in
`test_recordings.py`; for the others stands here what nodectl makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from conformance import changes
from conformance.scenario import LANGUAGES, Result, recorded, recordings
from conformance.theatre import Theatres

RECORDINGS = recordings()
# The hook, in which context if there are several, and what its failure costs where it is required.
COSTS: dict[str, Callable[[Result], None]] = {
    "L:init": changes.command_refused,
    "L:init_post_opt": changes.command_refused,
    "L:local_user_init": changes.launch_refused,
    "L:exit": changes.tell_failure,
    "J:job_prolog": changes.job_refused,
    "J:job_epilog": changes.rest_skipped,
    "R:init": changes.step_fails,
    "R:init_post_opt": changes.step_fails,
    "R:user_init": changes.step_fails,
    "R:task_init_privileged": changes.tasks_fail,
    "R:task_post_fork": changes.step_fails_at_its_gate,
    "R:task_init": changes.tasks_fail,
    "R:task_exit": changes.task_exit_fails,
    "R:exit": changes.exit_fails,
}
CONTEXTS = {"L": "local", "R": "remote", "J": "job_script"}
WITHOUT_FAILURE = "fail/srun_init_slurmd_optional_rc-1"  # in a context that is not the run's
SEVERAL = ("init", "init_post_opt", "exit")


def scenario(place: str, flag: str, code: int) -> dict[str, object]:
    """A run in which the first of two plugins fails there."""
    letter, _, hook = place.partition(":")
    context = CONTEXTS[letter] if hook in SEVERAL else ""
    where = f"{hook}_{context}" if context else hook
    order = f"fail={hook}:{code}" + (f":{context}" if context else "")
    return {
        "scenario": f"fail/srun_{where}_{flag}_rc{code}",
        "command": ["srun", "-n2", "-O", "@/jobs/mark"],
        "plugstack": f"{flag} @/plugin/trace.so {order}\noptional @/plugin/traceb.so\n",
    }


ALL = [(place, flag, code) for place in COSTS for flag in ("required", "optional") for code in (-1, 1)]
MISSING = [case for case in ALL if scenario(*case)["scenario"] not in RECORDINGS]


def wanted(place: str, flag: str, code: int) -> Result:
    """A run without a failure, in which that hook fails."""
    result = recorded(RECORDINGS[WITHOUT_FAILURE])
    letter, _, hook = place.partition(":")
    for lines in result.hooks.values():
        for number, line in enumerate(lines):
            if re.match(rf"{letter}[.\d]*:{hook}[(\[]", line):
                lines[number] += f"=>{code}"
    if flag == "required":
        COSTS[place](result)
    return result


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("place", "flag", "code"), MISSING)
def test_failing_hook_costs_what_it_should(theatres: Theatres, place: str, flag: str, code: int, language: str) -> None:
    played = theatres.play(scenario(place, flag, code))[language]
    result = wanted(place, flag, code)
    assert played.result == result, played.result.stderr
    assert "Traceback" not in played.result.stderr + theatres.logged(language)


def test_every_hook_of_a_run_and_every_failure_is_recorded_or_stands_here() -> None:
    lines = [line for hooks in recorded(RECORDINGS[WITHOUT_FAILURE]).hooks.values() for line in hooks]
    places = {re.split(r"[(\[]", line)[0].replace(".0", "") for line in lines if "!" not in line}
    assert places == set(COSTS)
    assert len(ALL) - len(MISSING) >= 20
