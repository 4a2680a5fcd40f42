"""The wires of a bed: a bridge in the network namespace of its head, and a cable from there to each node."""

from __future__ import annotations

import time

from pyroute2 import IPRoute

_BRIDGE = "bed"
_INSIDE = "eth0"
_BITS = 24
_LOOK_AGAIN = 0.02


def make_bridge(address: str) -> None:
    """The head's own interface; every node's cable ends there."""
    with IPRoute() as here:
        here.link("set", index=_index(here, "lo"), state="up")
        here.link("add", ifname=_BRIDGE, kind="bridge")
        _open(here, _BRIDGE, address)


def lay(node: str, pid: int) -> None:
    """A cable to the network namespace of that process, where its end is called eth0."""
    with IPRoute() as here:
        here.link("add", ifname=node, kind="veth", peer={"ifname": _INSIDE, "net_ns_pid": pid})
        here.link("set", index=_index(here, node), master=_index(here, _BRIDGE), state="up")


def open_inside(address: str) -> None:
    """In a node: its end of the cable, which was laid."""
    with IPRoute() as here:
        here.link("set", index=_index(here, "lo"), state="up")
        _open(here, _INSIDE, address)


def wait_until_gone(node: str) -> None:
    """The cable goes with the namespace at its other end, which goes with the last process there."""
    with IPRoute() as here:
        while here.link_lookup(ifname=node):
            time.sleep(_LOOK_AGAIN)


def switch(node: str, state: str) -> None:
    """Takes a node from the bridge, `down`, or gives it back, `up`: nobody is told that packets are lost."""
    with IPRoute() as here:
        here.link("set", index=_index(here, node), state=state)


def _open(here: IPRoute, name: str, address: str) -> None:
    """The hardware's address stays the machine's, too, when it boots again: others have it in their tables."""
    index = _index(here, name)
    hardware = ":".join(f"{int(part):02x}" for part in ("2", "0", *address.split(".")))  # one of a local administrator
    here.link("set", index=index, address=hardware)
    here.addr("add", index=index, address=address, prefixlen=_BITS)
    here.link("set", index=index, state="up")


def _index(here: IPRoute, name: str) -> int:
    (index,) = here.link_lookup(ifname=name)
    return int(index)
