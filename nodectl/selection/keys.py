"""The configuration's keys about the selection: the select plugin, and the sharing of resources."""

from __future__ import annotations

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import Parser, number, string
from nodectl.model.number import whole
from nodectl.plugin_host.keys import plugin_type

_MOST_MIB = 1 << 40
MOST_SHARING = 65_533
DEFAULT_SHARING = 4


def _over_subscribe(value: object) -> str:
    text = string(value).lower()
    word, colon, count = text.partition(":")
    if word not in ("no", "yes", "force", "exclusive") or (colon and word not in ("yes", "force")):
        raise ValueError(f"is {value!r}")
    if colon and not whole(count, MOST_SHARING):
        raise ValueError(f"is {value!r}: {count!r} is not from 1 to {MOST_SHARING}")
    return text


OVER_SUBSCRIBE = Parser(f"no, exclusive, yes[:N] or force[:N], N from 1 to {MOST_SHARING}", _over_subscribe)

SELECTION = section(
    "selection",
    Key(
        "select_type", plugin_type("select"), "select/cons_tres",
        "Plugin that selects what of the machine a job gets: select/cons_tres gives cores, memory and devices, "
        "select/linear whole machines.",
    ),
    Key(
        "over_subscribe", OVER_SUBSCRIBE, "no",
        "Whether jobs share what they are given: no; yes, up to N of those that ask for it; force, up to N whether "
        f"they ask or not (N is {DEFAULT_SHARING} where not given); exclusive, each job has a whole machine.",
    ),
    Key(
        "def_mem_per_cpu", number(0, _MOST_MIB, "MiB"), 0,
        "Memory for each of its CPUs that a job is charged with which does not say how much it needs; 0 for none.",
    ),
)  # fmt: skip
