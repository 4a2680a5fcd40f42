"""What keys about containers say together is checked for the built-in plugin, which reads them."""

from __future__ import annotations

import pytest

from nodectl.launch.container import NONE, settings
from nodectl.model.step import Step
from nodectl.service.config_file import reader

BELOW_TMP = {"container_base_path": "/tmp/containers"}
NO_PARENT = {"container_net": "veth"}


@pytest.mark.parametrize(("keys", "words"), [(BELOW_TMP, "lies in /tmp"), (NO_PARENT, "wants a container_net_parent")])
def test_keys_that_contradict_each_other_are_told_of_the_built_in_plugin_only(
    keys: dict[str, object], words: str
) -> None:
    def check(plugin: str) -> str:
        return settings.check(reader.build({"job_container_type": plugin, **keys}))

    assert words in check("job_container/namespace")
    assert check("job_container/sites_own") == ""


def test_step_without_a_container_has_the_plugin_that_makes_none() -> None:
    step = Step.from_json({"job_id": 1, "container": {}})
    assert step.container_plugin == NONE
    step.container["type"] = "job_container/sites_own"
    assert step.container_plugin == "job_container/sites_own"
