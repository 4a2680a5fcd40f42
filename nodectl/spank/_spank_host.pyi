from collections.abc import Callable
from typing import NamedTuple

class Library(NamedTuple):
    path: str
    name: str | None
    type: str | None
    version: int | None
    spank_version: int | None
    init_failure_mode: Callable[[], int] | None
    hooks: dict[str, Callable[..., int]]
    options: list[tuple[str, str | None, str | None, int, int, Callable[[int, str | None, int], int] | None]]
    missing: list[str]
    container: dict[str, Callable[..., int]]

Row = tuple[Callable[..., int], tuple[str, ...], str, object, int]
Walk = Callable[
    [int, object, memoryview, int, int, int, str, str, float, float, int], tuple[int, int, int | BaseException] | None
]

def compiled_hook(rows: list[Row], /) -> Walk: ...
def preloaded() -> bool: ...
def open(path: str, /) -> Library: ...  # noqa: A001  # called as _spank_host.open
def environ() -> dict[str, str]: ...
