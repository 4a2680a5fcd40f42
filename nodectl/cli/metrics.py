"""`nodectl metrics`: print the node in numbers, in Prometheus's form.

prometheus-client makes the text; it is an extra, because no other command needs it. The number of series depends only
on the kinds of things, never on the number of jobs or users.
"""

import argparse
import errno
import os
import signal
import socket
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from nodectl.client.command import Failed, GlobalOptions, complain
from nodectl.client.extras import needed
from nodectl.client.session import Session
from nodectl.model.device_part import SHARD, part_of
from nodectl.model.wire import framing

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

_MIB = 1 << 20
_MOST_AT_ONCE = 4  # connections of one user
_MOST = 64  # of all together: a user may have 65,536 uids (subuid(5))
_MODE = 0o666  # the metrics name no user, and every user may ask the service


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl metrics` to the parser."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--file", metavar="FILE", help="write this file, whole or not at all, for node_exporter's textfile collector"
    )
    where.add_argument("--listen", metavar="unix:PATH", type=_path, help="answer HTTP on this socket until it is ended")
    parser.epilog = (
        "Without an option it prints them. Counters begin at 0 when the service starts. No series has the name of a "
        "user, a job or a program."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print, write or serve the metrics. Return 0."""
    try:
        from prometheus_client.registry import CollectorRegistry
    except ImportError as missing:
        raise needed("metrics", "prometheus-client", missing) from None
    registry = CollectorRegistry(auto_describe=False)
    node = NodeMetrics(arguments.settings)
    registry.register(node)
    if arguments.listen:
        _serve(arguments.listen, registry)
    elif arguments.file:
        _write(arguments.file, registry)
    else:
        from prometheus_client.openmetrics.exposition import generate_latest

        node.must_answer = True
        sys.stdout.write(generate_latest(registry).decode("utf-8"))  # type: ignore[no-untyped-call]
    return 0


def _path(text: str) -> str:
    kind, colon, path = text.partition(":")
    if kind != "unix" or not colon or not path:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: unix:PATH is what it can listen on")
    return path


class NodeMetrics:
    """A collector asking the service at each scrape. A silent service has `up` 0, or raises Failed if `must_answer`."""

    def __init__(self, settings: GlobalOptions) -> None:
        self._settings = settings
        self.must_answer = False

    def describe(self) -> "list[Metric]":
        """Return no metrics, because the service may come later."""
        return []

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics. Raises Failed if the service must answer and does not."""
        from prometheus_client.core import GaugeMetricFamily

        try:
            found = _ask(self._settings)
        except Failed as failed:
            if self.must_answer:
                raise
            complain(str(failed))
            found = None
        yield GaugeMetricFamily("nodectl_up", "Whether the service answers.", value=float(found is not None))
        if found is not None:
            yield from families(found)


def _ask(settings: GlobalOptions) -> Mapping[str, Any]:
    session = Session(settings, start_private=False)
    try:
        found: Mapping[str, Any] = session.call("Metrics")["metrics"]  # type: ignore[assignment]  # its record
        return found
    finally:
        session.close()


def families(found: Mapping[str, Any]) -> "Iterator[Metric]":
    """Yield all series, made from the answer to Metrics."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    def gauge(name: str, text: str, values: Mapping[str, float], label: str) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"nodectl_{name}", text, labels=[label])
        for value in sorted(values):
            family.add_metric([value], values[value])
        return family

    def counter(name: str, text: str, values: Mapping[str, float], label: str) -> CounterMetricFamily:
        family = CounterMetricFamily(f"nodectl_{name}", text, labels=[label])
        for value in sorted(values):
            family.add_metric([value], values[value], created=found["since"])
        return family

    yield gauge("build_info", "The version of the service, as a label.", {found["version"]: 1}, "version")
    yield GaugeMetricFamily("nodectl_start_time_seconds", "When the service began.", value=found["since"])
    yield gauge("jobs", "Jobs that have not ended.", found["jobs"], "state")
    yield GaugeMetricFamily("nodectl_steps_running", "Steps that run.", value=found["steps_running"])
    for family, text, values in _of_nodes(found["nodes"]):
        yield gauge(family, text, values, "device" if family.startswith("devices") else "node")
    yield counter("steps_ended", "Steps that have ended.", found["steps_ended"], "state")
    cpu = dict(zip(("user", "system"), found["cpu_seconds"], strict=True))
    yield counter("steps_cpu_seconds", "CPU time of the tasks of steps that have ended.", cpu, "mode")
    yield gauge("resident_memory_bytes", "Memory that processes of the service have.", found["resident"], "process")
    launches = found["launches"]
    yield HistogramMetricFamily(
        "nodectl_launch_seconds",
        "From the call of a launch to the start of its tasks, of steps that have ended.",
        buckets=list(_cumulative(launches["bounds"], launches["counts"])),
        sum_value=launches["seconds"],
    )


def _of_nodes(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    def of_each(key: str, factor: int = 1) -> Mapping[str, float]:
        return {node["name"]: node[key] * factor for node in nodes}

    yield "cpus", "CPUs that jobs may have.", of_each("cpus")
    yield "cpus_used", "CPUs that jobs hold.", of_each("cpus_used")
    yield "memory_bytes", "Memory that jobs may have.", of_each("memory", _MIB)
    yield "memory_used_bytes", "Memory that jobs hold.", of_each("memory_used", _MIB)
    yield (
        "drained",
        "Whether no job starts any more.",
        {node["name"]: float(node["state"].startswith("DRAIN")) for node in nodes},
    )
    yield "devices", "Devices that jobs may have.", _kinds(nodes, "gres")
    yield "devices_used", "Devices that jobs hold.", {
        **dict.fromkeys(_kinds(nodes, "gres"), 0.0), **_kinds(nodes, "gres_used")
    }  # fmt: skip


def _kinds(nodes: Iterable[Mapping[str, Any]], key: str) -> Mapping[str, float]:
    """Count the devices of each kind, with those that are given in part, and their shards: gpu:3/shard:2."""
    keys = [device for node in nodes for device in node[key]]
    found = Counter(device.partition(":")[0] for device in keys)
    found[SHARD] += sum(part.shards for part in map(part_of, keys) if part is not None)
    return +found


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    """Return Prometheus's buckets; each also counts the values of the lower buckets."""
    return zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True)


def _write(path: str, registry: "CollectorRegistry") -> None:
    from prometheus_client.exposition import write_to_textfile

    try:
        write_to_textfile(path, registry)
    except OSError as error:
        raise Failed(f"write {path!r}: {error.strerror}") from None


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds without a request or without reading

    def log_message(self, *_: object) -> None:
        """Log nothing: each scrape would be a line."""


class _OnSocket(ThreadingMixIn, WSGIServer):
    """A server on a UNIX socket with a few threads for each user, because every user may connect, however slow.

    Where there are too many connections, the oldest is cut: each is answered at once, unless it is silent.
    """

    address_family = socket.AF_UNIX
    daemon_threads = True

    def __init__(self, path: str) -> None:
        # Uid and connection, the oldest first; adding and removing are one call each.
        self._served: dict[tuple[int, socket.socket], None] = {}
        super().__init__(path, _Quiet)  # type: ignore[arg-type]  # typeshed knows addresses of the Internet alone

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a request, or drop the connection of a user with too many."""
        uid = framing.peer_of(request).uid
        if sum(one == uid for one, _ in list(self._served)) >= _MOST_AT_ONCE:
            self.shutdown_request(request)
            return
        if len(there := list(self._served)) >= _MOST:
            with suppress(OSError):  # its thread has just closed it
                there[0][1].shutdown(socket.SHUT_RDWR)
            self._served.pop(there[0], None)
        self._served[uid, request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a request in a new thread."""
        uid = framing.peer_of(request).uid
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._served.pop((uid, request), None)

    def server_bind(self) -> None:
        """Bind the socket, replacing a socket left by a killed server."""
        path = self.server_address
        if not isinstance(path, str):
            raise TypeError("a socket has a path")
        new = f"{path}.new"
        if os.path.exists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "is there, and is no socket", path)
        with suppress(FileNotFoundError):
            os.unlink(new)
        self.socket.bind(new)
        os.chmod(new, _MODE)
        os.rename(new, path)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept a connection, with a made-up address, because UNIX clients have none."""
        return self.socket.accept()[0], ("localhost", 0)


def _serve(path: str, registry: "CollectorRegistry") -> None:
    """Serve until a signal ends the process. Raises Failed."""
    from prometheus_client.exposition import make_wsgi_app

    try:
        server = _OnSocket(path)
    except OSError as error:
        raise Failed(f"listen on {path}: {error.strerror or error}") from None
    server.set_app(make_wsgi_app(registry))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve_forever()
    finally:
        server.server_close()
        with suppress(OSError):
            os.unlink(path)
