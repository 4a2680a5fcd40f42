"""Answers Varlink calls: finds the method, checks the parameters, refuses with the protocol's errors.

A Service is a table of methods under interface names, with `org.varlink.service` built in; the daemon and each stepd
have one. A method gets the call and returns its reply's parameters; a Refused that it raises becomes a Varlink error.
The interface descriptions are the files `*.varlink` beside this module.
"""

import os

from nodectl.model.wire.names import NODE, STEP
from nodectl.model.wire.shape import BadShape, check, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from nodectl.model.wire.framing import Peer
    from nodectl.model.wire.shape import Check, Optional

    Reply = Mapping[str, object]
    HandOver = Callable[[Reply, "Sequence[int]"], None]

STANDARD = "org.varlink.service"
URL = "https://nodectl.example/"
_HERE = os.path.dirname(os.path.abspath(__file__))


class Refused(Exception):
    """A refused call: a Varlink error name and parameters. str() is the reason in a line."""

    def __init__(self, error: str, reason: str, **more: object) -> None:
        super().__init__(reason)
        self.error = error if error.startswith("org.") else f"{NODE}.{error}"
        self.parameters = {"reason": reason, **more}


def invalid(parameter: str, reason: str) -> Refused:
    """Return the refusal of a parameter."""
    return Refused("InvalidRequest", f"{parameter}: {reason}", parameter=parameter)


def shaped(value: object, shape: "Mapping[str, Check | Optional]") -> "Mapping[str, object]":
    """Return an object within the parameters of a call, after a check of the shape. Raises Refused."""
    try:
        return check(value, shape)
    except BadShape as error:
        raise invalid(error.parameter, str(error).partition(": ")[2]) from None


def subject(word: str) -> "Mapping[str, str]":
    """Return the subject of a refusal, by which clients choose advice (`nodectl/client/advice.py`)."""
    return {"subject": word} if word else {}


def withdrawn() -> Refused:
    """Return the answer to a launch which the client withdrew in time."""
    return Refused("Withdrawn", "the launch was withdrawn before its step began")


class Call:
    """A call. `more` asks for a stream of replies, `oneway` for none.

    `fds` is the number of descriptors that came with the call. They are not in this process; `hand_over(answer, ours)`
    has them put into the first of `ours` (wire/frames.py).
    """

    __slots__ = (
        "_is_held", "_reply", "fds", "hand_over", "method", "more", "oneway", "parameters", "peer", "withdrawn",
    )  # fmt: skip

    def __init__(
        self, message: "Mapping[str, object]", peer: "Peer", fds: int = 0, hand_over: "HandOver | None" = None
    ) -> None:
        for name in message:
            if name not in ("method", "parameters", "more", "oneway", "upgrade"):
                raise Refused(
                    f"{STANDARD}.InvalidParameter", f"no such member of a call: {name[:64]}", parameter=name[:64]
                )
        method = message.get("method")
        if not isinstance(method, str) or "." not in method:
            raise Refused(
                f"{STANDARD}.InvalidParameter", "a call names its method as interface.Method", parameter="method"
            )
        self.method = method
        parameters = message.get("parameters")
        self.parameters: Any = {} if parameters is None else parameters  # shaped by Service.find
        for name in ("more", "oneway", "upgrade"):
            if not isinstance(message.get(name), bool | None):
                raise Refused(f"{STANDARD}.InvalidParameter", f"{name}: not true or false", parameter=name)
        self.more = message.get("more") is True
        self.oneway = message.get("oneway") is True
        self.peer = peer
        self.fds = fds
        self.hand_over: HandOver = hand_over or _keep
        self.withdrawn = False  # the client has withdrawn the call, and was told that nothing has begun
        self._is_held = False
        self._reply: Callable[[], None] | None = None

    def hold_reply(self) -> None:
        """Hold the reply back until `release_reply`."""
        self._is_held = True

    def release_reply(self) -> None:
        """Send a reply held back, or let a later reply go out at once."""
        self._is_held = False
        if self._reply is not None:
            self._reply()

    def reply_with(self, send: "Callable[[], None]") -> None:
        """Send the reply by calling `send`: now, or at `release_reply` if the reply is held."""
        if self._is_held:
            self._reply = send
        else:
            send()


def _keep(answer: "Reply", ours: "Sequence[int]") -> None:
    """Do nothing: a call without descriptors has nothing to hand over."""


class Service:
    """The methods of a socket. `methods` maps a full name to (shape of the parameters, function)."""

    __slots__ = ("_interfaces", "_methods", "_version")

    def __init__(
        self, version: str, methods: "Mapping[str, tuple[Mapping[str, Check | Optional], Callable[..., object]]]"
    ) -> None:
        self._version = version
        self._interfaces = sorted({STANDARD, *(name.rpartition(".")[0] for name in methods)})
        self._methods = {
            f"{STANDARD}.GetInfo": ({}, self._info),
            f"{STANDARD}.GetInterfaceDescription": ({"interface": text(256)}, self._description),
            **methods,
        }

    def find(self, call: Call) -> "Callable[..., object]":
        """Check `call.parameters` and return the function, to be called with the call. Raises Refused."""
        interface, _, name = call.method.rpartition(".")
        if interface not in self._interfaces:
            raise Refused(f"{STANDARD}.InterfaceNotFound", f"no interface {interface[:128]}", interface=interface[:128])
        if call.method not in self._methods:
            raise Refused(f"{STANDARD}.MethodNotFound", f"no method {name[:128]}", method=call.method[:256])
        shape, function = self._methods[call.method]
        try:
            call.parameters = check(call.parameters, shape)
        except BadShape as error:
            raise Refused(f"{STANDARD}.InvalidParameter", str(error), parameter=error.parameter) from None
        return function

    def _info(self, call: Call) -> "Reply":
        return {
            "vendor": "nodectl",
            "product": "nodectl",
            "version": self._version,
            "url": URL,
            "interfaces": self._interfaces,
        }

    def _description(self, call: Call) -> "Reply":
        interface = call.parameters["interface"]
        if interface not in self._interfaces:
            raise Refused(f"{STANDARD}.InterfaceNotFound", f"no interface {interface}", interface=interface)
        with open(os.path.join(_HERE, f"{interface}.varlink"), encoding="ascii") as file:
            return {"description": file.read()}


def error_reply(refused: Refused) -> "Reply":
    """Return the error message for a refused call."""
    return {"error": refused.error, "parameters": refused.parameters}


__all__ = ["NODE", "STANDARD", "STEP", "Call", "Refused", "Service", "error_reply", "withdrawn"]
