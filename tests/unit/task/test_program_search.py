"""Where the program of a task is looked for."""

from __future__ import annotations

import os

from nodectl.launch.task.stages import program


def looked_for(name: str, path: str) -> list[bytes]:
    *_, (_, _, _, data, _) = program([name], {"PATH": path})
    return data.split(b"\0")[:-1]


def test_each_directory_of_path_is_looked_into_once_in_order() -> None:
    assert looked_for("a", "/b:/c::/b:/d") == [b"/b/a", b"/c/a", b"./a", b"/d/a"]
    assert looked_for("a/b", "/c") == [b"a/b"]


def test_a_long_name_and_a_long_path_do_not_make_their_product() -> None:
    """With 128 KiB each it had gigabytes, in the memory of root's step runner, which is charged to no job."""
    path = ":".join(str(number) for number in range(6_000))
    for name in ("x" * 255, "x" * 12_000):
        assert sum(map(len, looked_for(name, path))) < 1 << 19


def test_a_name_that_no_file_can_have_is_left_to_the_kernel(tmp_path: os.PathLike[str]) -> None:
    assert looked_for("x" * 256, f"{tmp_path}:/bin") == [b"x" * 256]
