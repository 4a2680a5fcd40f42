"""Misspelt names of hooks: the distance of two names, and the nearest hook."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NEAR = 2
# Below this length two edits reach from one ordinary word to another ("find" and "fini").
_NEAR_MIN_LENGTH = 8


def edit_distance(one: str, two: str, limit: int) -> int:
    """Return the fewest insertions, deletions and replacements from `one` to `two`; at most `limit + 1`.

    Stops at the first row beyond the limit, since nearly every pair of names is far apart.
    """
    if abs(len(one) - len(two)) > limit:
        return limit + 1
    row = list(range(len(two) + 1))
    for i, left in enumerate(one, 1):
        above, row = row, [i]
        for j, right in enumerate(two):
            row.append(min(above[j] + (left != right), above[j + 1] + 1, row[j] + 1))
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def is_near(name: str, hook: str) -> bool:
    """Return True if the name may be a misspelt form of the hook."""
    third = len(hook) // 3
    if len(hook) < _NEAR_MIN_LENGTH or abs(len(name) - len(hook)) > _NEAR:
        return False
    # A cheap look before the distance: of three pieces two edits leave one as it was.
    alike = hook[:third] in name or hook[third:-third] in name or hook[-third:] in name
    return alike and edit_distance(name, hook, _NEAR) <= _NEAR


def any_near(name: str, hooks: "Iterable[str]") -> bool:
    """Return True if the name may be a misspelt form of any of the hooks."""
    return any(is_near(name, hook) for hook in hooks)


def nearest(name: str, hooks: "Iterable[str]") -> str:
    """Return the hook most similar to the name, "none" without hooks."""
    hooks = tuple(hooks)
    far = len(name) + max(map(len, hooks), default=0)
    return min(hooks, key=lambda hook: edit_distance(name, hook, far), default="none")
