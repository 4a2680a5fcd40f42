"""`nodectl resubmit`: what of a kept request new options replace."""

from __future__ import annotations

from nodectl.cli.resubmit import _of_its_user, _with_new


def test_options_of_plugins_given_now_replace_the_same_ones_alone() -> None:
    old = {"environment": {}, "options": [["one", "level", "1"], ["two", "flag"]], "job_control": {"LEVEL": "1"}}
    new = {"environment": {}, "options": [["one", "level", "2"]], "job_control": {"LEVEL": "2"}}
    renewed = _with_new(old, new, set())
    assert renewed["options"] == [["one", "level", "2"], ["two", "flag"]]
    assert renewed["job_control"] == {"LEVEL": "2"}
    assert _with_new(old, {"environment": {}, "options": []}, set())["options"] == old["options"]


def test_a_group_goes_with_the_user_for_whom_it_was_chosen() -> None:
    kept = {"request": {"ntasks": 1, "uid": "daemon", "gid": "adm"}, "uid": 1 << 30, "gid": 4}
    assert _of_its_user(kept, {"uid"}) == {"ntasks": 1, "uid": "daemon"}
    assert _of_its_user(kept, set()) == {"ntasks": 1, "uid": str(1 << 30), "gid": "4"}


def test_an_option_of_devices_or_memory_takes_the_place_of_all_that_ask_for_the_same() -> None:
    old = {"environment": {}, "layout": {"gpus": "2", "gres": "gpu:2", "hint": "nomultithread"}, "mem_per_cpu": 1024}
    new = {"environment": {}, "layout": {"gres": "gpu:1"}, "mem": 4096}
    assert _with_new(old, new, {"mem"}) == {
        "environment": {}, "layout": {"gres": "gpu:1", "hint": "nomultithread"}, "mem": 4096,
    }  # fmt: skip
    assert _with_new(old, {"environment": {}}, set()) == old
