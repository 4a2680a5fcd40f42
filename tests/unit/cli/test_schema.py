"""The schemas of what --json prints: valid, complete, explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodectl.cli import main
from nodectl.cli.catalogue import commands, parser_of
from nodectl.client.command_parser import subcommands
from nodectl.model.schemas import files as schemas


def objects(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for inner in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, Mapping):
            yield from objects(inner)


@pytest.mark.parametrize("name", schemas.names())
def test_it_is_a_schema_and_says_what_each_field_means(name: str) -> None:
    schema = schemas.load(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith(f"urn:nodectl:schema:{name}:")
    assert f"nodectl {name.partition('-')[0]}" in schema["title"]
    for one in objects(schema):
        assert one.get("required", []) == [key for key in one.get("required", []) if key in one["properties"]]
        assert [key for key, value in one.get("properties", {}).items() if not value.get("description")] == []


def test_every_command_with_json_has_one() -> None:
    found = {"bind"}  # which argparse does not read
    for command, one in commands().items():
        if not one.reads_words:
            parser = parser_of(one)
            if "--json" in parser._option_string_actions:
                found.add(command)
            found |= {
                f"{command}-{name}"
                for name, own in subcommands(parser).items()
                if "--json" in own._option_string_actions
            }
    families = {name.partition("-")[0] for name in schemas.names()} | set(schemas.names())
    assert {
        name for name in found if name not in families and name.partition("-")[0] not in ("fence", "node", "reserve")
    } == set()


def test_the_command_prints_one_and_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["schema", "spank", "check"]) == 0
    assert capsys.readouterr().out == schemas.text("spank-check")
    assert main.main(["schema"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == schemas.names()
    assert main.main(["schema", "quue"]) == 2
    assert "no schema 'quue'; the nearest is queue" in capsys.readouterr().err
