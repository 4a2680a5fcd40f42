"""--export: which of the user's variables go along."""

from __future__ import annotations

import pytest

from nodectl.client.launch_request import exported

USERS = {
    "PATH": "/bin",
    "A": "one",
    "B": "two words",
    "EMPTY": "",
    "SLURM_MINE": "s",
    "SPANK_X": "p",
    "NONE": "n",
    "NIL": "l",
}
ALWAYS = {"SLURM_MINE": "s", "SPANK_X": "p"}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("ALL", USERS),
        ("all", USERS),
        ("NONE", ALWAYS),
        ("NIL", ALWAYS),
        ("none", ALWAYS),
        ("A", {"A": "one", **ALWAYS}),
        ("A,EMPTY", {"A": "one", "EMPTY": "", **ALWAYS}),
        ("A,NOSUCH", {"A": "one", **ALWAYS}),
        ("A=1,NEW=2", {"A": "1", "NEW": "2", **ALWAYS}),
        ("ALL,A=1,NEW=x y", {**USERS, "A": "1", "NEW": "x y"}),
        ("A=1,ALL", {**USERS, "A": "1"}),
        ("Q='a,b',A", {"Q": "a,b", "A": "one", **ALWAYS}),
        ('Q="a,\'b",A=z', {"Q": "a,'b", "A": "z", **ALWAYS}),
        ("Q=", {"Q": "", **ALWAYS}),
        ("Q=a=b", {"Q": "a=b", **ALWAYS}),
        ("=x,,A", {"A": "one", **ALWAYS}),
        ("SLURM_MINE=mine", {**ALWAYS, "SLURM_MINE": "mine"}),
    ],
)
def test_the_chosen_variables_go_along(choice: str, expected: dict[str, str]) -> None:
    assert exported(choice, USERS) == expected
