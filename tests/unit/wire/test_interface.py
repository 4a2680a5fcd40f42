"""The interface descriptions say what the code does: methods, parameters, types, optional ones, errors."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from varlink.scanner import Interface, _Array, _CustomType, _Dict, _Error, _Maybe, _Method, _Struct

import nodectl
from nodectl.launch.stepd.methods import Methods
from nodectl.model.wire.dispatch import STANDARD, Call, Refused, Service, error_reply
from nodectl.model.wire.framing import Peer, peer_of
from nodectl.model.wire.shape import Optional
from nodectl.service.daemon.admission import part
from nodectl.service.daemon.controller import options
from nodectl.service.daemon.node import Node
from nodectl.service.request import launch

PACKAGE = Path(nodectl.__file__).parent
# The tables need an object only for the functions they point to.
ANY_NODE: Any = type("AnyNode", (), {"__getattr__": lambda self, name: self})()
SERVICES: dict[str, Any] = {
    "org.nodectl": Node.service(ANY_NODE)._methods,
    "org.nodectl.step": Methods.table(Methods.__new__(Methods)),
}
SAMPLES: dict[str, object] = {"int": 5, "str": "/x", "bool": True, "list": [], "dict": {}}


def described(name: str) -> Any:
    return Interface((PACKAGE / "model/wire" / f"{name}.varlink").read_text(encoding="ascii"))


def kind(varlink_type: object) -> str:
    if isinstance(varlink_type, _Array):
        return "list"
    if isinstance(varlink_type, (_Dict, _Struct, _CustomType)):
        return "dict"
    return type(varlink_type).__name__


def fields_of(interface: Any, struct: Any) -> dict[str, tuple[str, bool]]:
    """Name to (Python type, may be absent)."""
    found = {}
    for name, value in struct.fields.items():
        optional = isinstance(value, _Maybe)
        found[name] = (kind(value.element_type if optional else value), optional)
    return found


def shapes() -> Iterator[Any]:
    for name, table in SERVICES.items():
        interface = described(name)
        for member in interface.members.values():
            if isinstance(member, _Method):
                shape = table[f"{name}.{member.name}"][0]
                yield pytest.param(fields_of(interface, member.in_type), shape, id=f"{name}.{member.name}")
    interface = described("org.nodectl")
    named_types = {"Request": launch.REQUEST, "JobOptions": options.JOB_OPTIONS, "Part": part.PART}
    for named, of_type in named_types.items():
        yield pytest.param(fields_of(interface, interface.members[named].type), of_type, id=named)


@pytest.mark.parametrize("name", SERVICES)
def test_exactly_the_described_methods_exist(name: str) -> None:
    methods = {f"{name}.{m.name}" for m in described(name).members.values() if isinstance(m, _Method)}
    assert methods == {method for method in SERVICES[name] if not method.startswith(STANDARD)}


@pytest.mark.parametrize(("described_fields", "shape"), list(shapes()))
def test_parameters_have_the_described_names_types_and_may_be_absent_as_described(
    described_fields: dict[str, tuple[str, bool]], shape: dict[str, Any]
) -> None:
    assert {name: isinstance(rule, Optional) for name, rule in shape.items()} == {
        name: optional for name, (_, optional) in described_fields.items()
    }
    for name, (expected, _) in described_fields.items():
        rule = shape[name].check if isinstance(shape[name], Optional) else shape[name]
        accepted = {sample for sample, value in SAMPLES.items() if not rule(value)}
        assert accepted == {expected}, name


def test_every_error_that_the_code_raises_is_described() -> None:
    for directory, name, pattern in (
        ("service/daemon", "org.nodectl", r'"(\w+)"'),
        ("launch/stepd", "org.nodectl.step", r'f"\{STEP\}\.(\w+)"'),
    ):
        raised = set()
        for path in (PACKAGE / directory).rglob("*.py"):
            raised |= set(re.findall(rf"Refused\(\s*{pattern}", path.read_text(encoding="utf-8")))
        assert "NotPermitted" in raised
        assert raised <= {m.name for m in described(name).members.values() if isinstance(m, _Error)}


def test_every_described_member_is_explained() -> None:
    for name in SERVICES:
        for member in described(name).members.values():
            assert member.doc or member.name in {"Hello"}, f"{name}.{member.name}"


@pytest.fixture
def peer() -> Iterator[Peer]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield peer_of(ours)


SERVICE = Service("1.0", {"org.nodectl.Reserve": ({}, lambda _: {"job": 1, "step": 0})})


@pytest.mark.parametrize(
    ("message", "error", "parameter"),
    [
        ({}, "InvalidParameter", "method"),
        ({"method": 5}, "InvalidParameter", "method"),
        ({"method": "Reserve"}, "InvalidParameter", "method"),
        ({"method": "org.nodectl.Reserve", "fast": True}, "InvalidParameter", "fast"),
        ({"method": "org.nodectl.Reserve", "parameters": []}, "InvalidParameter", "parameters"),
        ({"method": "org.nodectl.Reserve", "parameters": 0}, "InvalidParameter", "parameters"),
        ({"method": "org.nodectl.Reserve", "parameters": "x"}, "InvalidParameter", "parameters"),
        ({"method": "org.nodectl.Reserve", "parameters": {"x": 1}}, "InvalidParameter", "x"),
        ({"method": "org.nodectl.Reserve", "more": 1}, "InvalidParameter", "more"),
        ({"method": "org.nodectl.Reserve", "oneway": "yes"}, "InvalidParameter", "oneway"),
        ({"method": "org.nodectl.Nothing"}, "MethodNotFound", None),
        ({"method": "org.example.Reserve"}, "InterfaceNotFound", None),
        ({"method": f"{STANDARD}.GetInterfaceDescription"}, "InvalidParameter", "interface"),
    ],
)
def test_a_wrong_call_is_refused_in_the_protocols_words(
    peer: Peer, message: dict[str, object], error: str, parameter: str | None
) -> None:
    with pytest.raises(Refused) as caught:
        SERVICE.find(Call(message, peer))
    reply = error_reply(caught.value)
    assert reply["error"] == f"{STANDARD}.{error}"
    assert "\n" not in str(caught.value)
    if parameter is not None:
        assert caught.value.parameters["parameter"] == parameter


@pytest.mark.parametrize("interface", ["../../etc/passwd", "org.nodectl.step", "", "\udcff"])
def test_only_the_services_own_interfaces_are_described(peer: Peer, interface: str) -> None:
    call = Call({"method": f"{STANDARD}.GetInterfaceDescription", "parameters": {"interface": interface}}, peer)
    with pytest.raises(Refused, match="no interface"):
        SERVICE.find(call)(call)


@pytest.mark.parametrize("interface", [STANDARD, "org.nodectl"])
def test_descriptions_are_handed_out_as_they_stand(peer: Peer, interface: str) -> None:
    call = Call({"method": f"{STANDARD}.GetInterfaceDescription", "parameters": {"interface": interface}}, peer)
    reply = SERVICE.find(call)(call)
    assert Interface(reply["description"]).name == interface  # type: ignore[index]


def test_null_members_count_as_absent(peer: Peer) -> None:
    call = Call({"method": "org.nodectl.Reserve", "parameters": None, "more": None}, peer)
    assert SERVICE.find(call)(call) == {"job": 1, "step": 0}
