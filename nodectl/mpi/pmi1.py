"""PMI-1, the "simple" wire protocol: a line is a message, words "name=value" with spaces in between.

Only a request to start programs has several lines, from "mcmd=spawn" to "endcmd".
"""

from nodectl.mpi.world import LONGEST_KEY, LONGEST_VALUE, NoRoom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.mpi.world import World

    Fields = dict[bytes, bytes]

LONGEST_LINE = 8192
_LONGEST_NAME = 256
_MOST_LINES = 4096  # of one request to start programs


class Malformed(Exception):
    """A task's message violates the protocol."""


def fields_of(line: bytes) -> "Fields":
    """Parse the words of a line. Raises Malformed."""
    found: Fields = {}
    for word in line.split():
        name, equals, value = word.partition(b"=")
        if not equals:
            raise Malformed
        found[name] = value
    return found


class Pmi1:
    """The conversation with a task. `send` writes an answer; `finalized` is true after the program's finalize."""

    def __init__(self, world: "World", rank: int, send: "Callable[[bytes], None]") -> None:
        self._world = world
        self._rank = rank
        self._send = send
        self._spawning = 0  # lines of a request to start programs
        self._programs = (1, 1)  # how many programs the request names, and which of them this one is
        self.finalized = False

    def take(self, data: bytearray) -> "bytes | None":
        """Take the next message from the buffer; return None where none is complete. Raises Malformed."""
        end = data.find(b"\n", 0, LONGEST_LINE)
        if end < 0:
            if len(data) >= LONGEST_LINE:
                raise Malformed
            return None
        line = bytes(data[:end])
        del data[: end + 1]
        return line

    def answer(self, line: bytes) -> None:
        """Answer a message. Raises Malformed."""
        if self._spawning or line.startswith(b"mcmd=spawn"):
            self._spawn(line)
            return
        fields = fields_of(line)
        name = fields.get(b"cmd", b"")
        method = _METHODS.get(name)
        if method is None:
            raise Malformed
        method(self, fields)

    def _say(self, name: bytes, text: bytes = b"") -> None:
        self._send(b"cmd=%b%b\n" % (name, b" " + text if text else b""))

    def init(self, fields: "Fields") -> None:
        """Begin: send the version of the protocol."""
        version = fields.get(b"pmi_version")
        if version is None or not version.isdigit():
            raise Malformed
        good = 0 if version in (b"1", b"2") else -1
        self._say(b"response_to_init", b"pmi_version=%b pmi_subversion=%d rc=%d" % (version[:4], version != b"2", good))

    def maxes(self, _: "Fields") -> None:
        """Send the longest lengths of names, keys and values."""
        self._say(b"maxes", b"kvsname_max=%d keylen_max=%d vallen_max=%d" % (_LONGEST_NAME, LONGEST_KEY, LONGEST_VALUE))

    def appnum(self, _: "Fields") -> None:
        """Send the program's number: always 0, as a step has a single program."""
        self._say(b"appnum", b"appnum=0 rc=0")

    def my_kvsname(self, _: "Fields") -> None:
        """Send the name of the key space."""
        self._say(b"my_kvsname", b"kvsname=kvs_%b rc=0" % self._world.job)

    def universe_size(self, _: "Fields") -> None:
        """Send the largest number of processes."""
        self._say(b"universe_size", b"size=%d rc=0" % self._world.size)

    def put(self, fields: "Fields") -> None:
        """Store a key."""
        self._stored(b"put_result", lambda: self._world.put(self._rank, _key(fields), fields.get(b"value", b"")))

    def get(self, fields: "Fields") -> None:
        """Read a key."""
        key = _key(fields)
        if key != b"PMI_process_mapping":
            self._found(self._world.values.get(key))
            return
        try:
            self._world.await_mapping(self._rank, lambda: self._found(self._world.mapping or None))
        except ValueError:
            raise Malformed from None

    def _found(self, value: "bytes | None") -> None:
        if value is None:
            self._say(b"get_result", b"rc=-1 msg=key_not_found value=unknown")
        else:
            self._say(b"get_result", b"rc=0 msg=success value=%b" % value)

    def barrier(self, _: "Fields") -> None:
        """Wait until all tasks are in the barrier."""
        try:
            self._world.enter_barrier(self._rank, lambda: self._say(b"barrier_out", b"rc=0"))
        except ValueError:
            raise Malformed from None

    def publish(self, fields: "Fields") -> None:
        """Publish a name."""
        service, port = fields.get(b"service", b""), fields.get(b"port", b"")
        if self._world.names.get(service) is not None:
            self._say(b"publish_result", b"rc=-1 msg=duplicate_service info=error")
        else:
            self._stored(b"publish_result", lambda: self._world.names.put(self._rank, service, port), b" info=ok")

    def unpublish(self, fields: "Fields") -> None:
        """Forget a published name."""
        found = self._world.names.remove(fields.get(b"service", b""))
        self._say(b"unpublish_result", b"rc=0 msg=success info=ok" if found else b"rc=-1 msg=not_found info=error")

    def lookup(self, fields: "Fields") -> None:
        """Look up a published name."""
        port = self._world.names.get(fields.get(b"service", b""))
        if port is None:
            self._say(b"lookup_result", b"rc=-1 msg=not_found info=error")
        else:
            self._say(b"lookup_result", b"rc=0 msg=success info=ok port=%b" % port)

    def finalize(self, _: "Fields") -> None:
        """End the program's use of PMI."""
        self.finalized = True
        self._say(b"finalize_ack", b"rc=0")

    def abort(self, fields: "Fields") -> None:
        """MPI_Abort: report the exit code to the step runner."""
        code = fields.get(b"exitcode", b"1")
        number = int(code) if code.removeprefix(b"-").isdigit() and len(code) < 12 else 1
        self._world.tell(f"abort {self._rank} {number}")

    def _stored(self, name: bytes, put: "Callable[[], None]", more: bytes = b"") -> None:
        try:
            put()
        except NoRoom as error:
            if str(error) == "no_room":
                self._world.tell(f"full {self._rank}")
            self._say(name, b"rc=-1 msg=%b" % str(error).encode("ascii"))
        else:
            self._say(name, b"rc=0 msg=success" + more)

    def _spawn(self, line: bytes) -> None:
        """Read a line of a request to start programs; after the last line, refuse."""
        self._spawning += 1
        if self._spawning > _MOST_LINES:
            raise Malformed
        name, _, value = line.partition(b"=")
        of, this = self._programs
        if name in (b"totspawns", b"spawnssofar") and value.isdigit() and len(value) < 10:
            self._programs = (int(value), this) if name == b"totspawns" else (of, int(value))
        if line == b"endcmd":
            self._spawning = 0
            if this >= of:
                self._world.tell(f"spawn {self._rank}")
                self._say(b"spawn_result", b"rc=-1 msg=a_step_starts_no_further_programs")


def _key(fields: "Fields") -> bytes:
    try:
        return fields[b"key"]
    except KeyError:
        raise Malformed from None


_METHODS = {
    b"init": Pmi1.init,
    b"get_maxes": Pmi1.maxes,
    b"get_appnum": Pmi1.appnum,
    b"get_my_kvsname": Pmi1.my_kvsname,
    b"get_universe_size": Pmi1.universe_size,
    b"put": Pmi1.put,
    b"get": Pmi1.get,
    b"barrier_in": Pmi1.barrier,
    b"publish_name": Pmi1.publish,
    b"unpublish_name": Pmi1.unpublish,
    b"lookup_name": Pmi1.lookup,
    b"finalize": Pmi1.finalize,
    b"abort": Pmi1.abort,
}
