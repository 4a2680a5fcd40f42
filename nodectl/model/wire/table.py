"""The shape of a table of fields: what the service checks of each value before its meaning.

Runs in the daemon and in the leader of a cluster. Pure.
"""

from typing import TYPE_CHECKING, Any

from nodectl.model.fields import Field, names
from nodectl.model.wire.shape import Optional, array, boolean, integer, mapping, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.model.wire.shape import Check, Shape


def shape_of(table: type, own: "Mapping[str, Check]" = {}) -> "Shape":  # noqa: B006  # never changed
    """Return the shape of a table. `own`: the checks of fields for which type and limits do not say enough."""
    shape = {}
    for name, kind in names(table).items():
        field: Field = getattr(table, name)
        check = own[name] if name in own else check_of(kind, field.limits)
        shape[name] = check if field.needed else Optional(check)
    return shape


def check_of(kind: Any, limits: tuple[int, ...]) -> "Check":
    """Return the check of a type, with limits from outside to inside: see `Field`."""
    if kind is bool:
        return boolean
    if kind is int:
        return integer(*limits)
    if kind is str:
        return text(*limits)
    most, *inner = limits
    if kind.__origin__ is list:
        return array(check_of(kind.__args__[0], tuple(inner)), most=most)
    return mapping(check_of(kind.__args__[1], tuple(inner)), most=most)
