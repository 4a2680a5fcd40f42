"""The process that makes or removes links of jobs' network namespaces, with pyroute2; see `network_link.py`.

Executed as root, outside of all containers. Exit status 0, or 1 and a line with the error.
"""

import errno
import ipaddress
import os
import signal
import sys
from collections.abc import Mapping

import prctl
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from nodectl.kernel import _namespace
from nodectl.launch.container.job_dir import JobDir, open_plain
from nodectl.launch.container.network_link import FILE
from nodectl.model.wire import lean_json

_INSIDE = "eth0"


def main(order: str) -> None:
    """Carry out an order: base, jobs, and to make a link, for a single job: kind, parent, addresses, gateway."""
    prctl.set_pdeathsig(signal.SIGKILL)
    words: Mapping[str, object] = lean_json.loads(order)  # type: ignore[assignment]  # our own words
    base, jobs = str(words["base"]), words["jobs"]
    try:
        for job in jobs:  # type: ignore[attr-defined]
            job_dir = JobDir(base, job)
            job_dir.open()
            if "kind" in words:
                _connect(job_dir, {name: str(words[name]) for name in ("kind", "parent", "addresses", "gateway")})
            else:
                _disconnect(job_dir)
    except NetlinkError as error:
        sys.exit(f"{os.strerror(error.code)}")
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror))
    except ValueError as error:
        sys.exit(str(error))


def _connect(job_dir: JobDir, net: Mapping[str, str]) -> None:
    netns = _open_netns(job_dir)
    with IPRoute() as host:
        parent = _index(host, net["parent"])
        if parent is None:
            raise ValueError(f"no interface {net['parent']}")
        name, _, address = job_dir.claim(FILE, lambda others: _choose(others, net)).partition(" ")
        if net["kind"] == "veth":
            mtu = host.get_links(parent)[0].get_attr("IFLA_MTU")
            peer = {"ifname": _INSIDE, "net_ns_fd": netns, "mtu": mtu}
            host.link("add", ifname=name, kind="veth", mtu=mtu, peer=peer)
            outside = _index(host, name)
            host.link("set", index=outside, ifalias=_alias(job_dir), master=parent, state="up")
        else:
            host.link("add", ifname=_INSIDE, kind="macvlan", link=parent, macvlan_mode="bridge", net_ns_fd=netns)
    _namespace.setns(netns)
    with IPRoute() as inside:
        index = _index(inside, _INSIDE)
        if address:
            one = ipaddress.ip_interface(address)
            inside.addr("add", index=index, address=str(one.ip), prefixlen=one.network.prefixlen)
        inside.link("set", index=index, state="up")
        if net["gateway"]:
            inside.route("add", dst="default", gateway=net["gateway"])


def _disconnect(job_dir: JobDir) -> None:
    """Remove a job's link.

    The removal of one end of a pair removes both, even if a process still holds the namespace.
    """
    name = job_dir.read(FILE).decode().partition(" ")[0]
    with IPRoute() as host:
        for link in host.get_links():
            if link.get_attr("IFLA_IFNAME") == name and link.get_attr("IFLA_IFALIAS") in (None, _alias(job_dir)):
                _remove(host, link["index"])
    _remove_inside(job_dir)


def _remove_inside(job_dir: JobDir) -> None:
    """Remove a macvlan, which has no end outside. The caller returns to the earlier namespace, for the next job."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _namespace.setns(_open_netns(job_dir))
    except OSError:
        return  # there is no namespace any more, as after a reboot
    try:
        with IPRoute() as inside:
            index = _index(inside, _INSIDE)
            if index is not None:
                _remove(inside, index)
    finally:
        _namespace.setns(own)


def _remove(route: IPRoute, index: int) -> None:
    try:
        route.link("del", index=index)
    except NetlinkError as error:
        if error.code != errno.ENODEV:
            raise


def _index(route: IPRoute, name: str) -> int | None:
    for link in route.get_links():
        if link.get_attr("IFLA_IFNAME") == name:
            return int(link["index"])
    return None


def _open_netns(job_dir: JobDir) -> int:
    """Open the job's network namespace. Raises OSError."""
    held = open_plain(job_dir.fd, "ns", os.O_RDONLY)
    try:
        return os.open("net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=held)
    finally:
        os.close(held)


def _alias(job_dir: JobDir) -> str:
    """Return the alias by which `ip link` shows the job of a link."""
    return f"nodectl {job_dir.path}"[:255]


def _choose(others: set[str], net: Mapping[str, str]) -> str:
    """Return a random name, and the first free address. Raises ValueError."""
    name = f"nj{os.urandom(6).hex()}"
    if not net["addresses"]:
        return name
    network = ipaddress.ip_network(net["addresses"])
    taken = {other.partition(" ")[2].partition("/")[0] for other in others} | {net["gateway"]}
    for address in network.hosts():
        if str(address) not in taken:
            return f"{name} {address}/{network.prefixlen}"
    raise ValueError(f"no address of {network} is free")
