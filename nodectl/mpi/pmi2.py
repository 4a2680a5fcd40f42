"""PMI-2: six characters of length, then "cmd=...;name=value;". A ';' in a value is doubled.

The first message of a program is a line as in PMI-1, and declares PMI-2.
"""

from nodectl.mpi.pmi1 import Malformed
from nodectl.mpi.world import NoRoom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.mpi.world import World

    Fields = dict[bytes, bytes]

LONGEST_MESSAGE = 32768
_LENGTH = 6
_LONGEST_NAME = 64  # of a command
_ESCAPED = b"\0"
_NOT_DONE = b"rc=1;errmsg=a step starts no further programs;"
_ALONE = b"rc=1;errmsg=there is no other job to connect to;"


def fields_of(message: bytes) -> "Fields":
    """Parse the fields of a message. Raises Malformed."""
    if _ESCAPED in message:
        raise Malformed
    found: Fields = {}
    for word in message.replace(b";;", _ESCAPED).split(b";"):
        name, equals, value = word.partition(b"=")
        if equals:
            found.setdefault(name, value.replace(_ESCAPED, b";"))
        elif word.strip():
            raise Malformed
    return found


def _escaped(value: bytes) -> bytes:
    return value.replace(b";", b";;")


class Pmi2:
    """The conversation with a task, as `Pmi1`."""

    def __init__(self, world: "World", rank: int, send: "Callable[[bytes], None]") -> None:
        self._world = world
        self._rank = rank
        self._send = send
        self.finalized = False

    def take(self, data: bytearray) -> "bytes | None":
        """Take the next message from the buffer; return None where none is complete. Raises Malformed."""
        if len(data) < _LENGTH:
            return None
        length = bytes(data[:_LENGTH]).strip()
        if not length.isdigit() or int(length) > LONGEST_MESSAGE:
            raise Malformed
        end = _LENGTH + int(length)
        if len(data) < end:
            return None
        message = bytes(data[_LENGTH:end])
        del data[:end]
        return message

    def answer(self, message: bytes) -> None:
        """Answer a message. Raises Malformed."""
        fields = fields_of(message)
        name = fields.get(b"cmd", b"")
        if not name or len(name) > _LONGEST_NAME:
            raise Malformed
        _METHODS.get(name, Pmi2.unknown)(self, fields)

    def _say(self, fields: "Fields", text: bytes) -> None:
        thread = fields.get(b"thrid")
        of_thread = b"" if thread is None else b"thrid=%b;" % _escaped(thread[:64])
        body = b"cmd=%b-response;%b%b" % (fields[b"cmd"], of_thread, text)
        self._send(b"%6d%b" % (len(body), body))

    def unknown(self, fields: "Fields") -> None:
        """Refuse an unknown command of another PMI-2. Libraries go on without the command."""
        self._say(fields, b"rc=1;errmsg=unknown command;")

    def full_init(self, fields: "Fields") -> None:
        """Check the program's rank and send the job's facts. Raises Malformed."""
        if fields.get(b"pmirank", b"%d" % self._rank) != b"%d" % self._rank:
            raise Malformed
        self._say(
            fields,
            b"pmi-version=2;pmi-subversion=0;rank=%d;size=%d;appnum=0;debugged=FALSE;pmiverbose=FALSE;rc=0;"
            % (self._rank, self._world.size),
        )

    def job_id(self, fields: "Fields") -> None:
        """Send the name of the job."""
        self._say(fields, b"jobid=%b;rc=0;" % self._world.job)

    def put(self, fields: "Fields") -> None:
        """Store a key. All tasks can read the key at once, though PMI-2 promises this only after a fence."""
        key, value = _key(fields), fields.get(b"value", b"")
        self._stored(fields, lambda: self._world.put(self._rank, key, value))

    def get(self, fields: "Fields") -> None:
        """Read a key."""
        self._found(fields, self._world.values.get(_key(fields)))

    def fence(self, fields: "Fields") -> None:
        """Wait until all tasks are in the fence."""
        try:
            self._world.enter_barrier(self._rank, lambda: self._say(fields, b"rc=0;"))
        except ValueError:
            raise Malformed from None

    def job_attribute(self, fields: "Fields") -> None:
        """Send an attribute of the job."""
        key = _key(fields)
        if key != b"PMI_process_mapping":
            self._found(fields, b"%d" % self._world.size if key == b"universeSize" else None)
            return
        try:
            self._world.await_mapping(self._rank, lambda: self._found(fields, self._world.mapping or None))
        except ValueError:
            raise Malformed from None

    def put_of_node(self, fields: "Fields") -> None:
        """Store a key of the node."""
        key, value = _key(fields), fields.get(b"value", b"")
        self._stored(fields, lambda: self._world.put_of_node(self._rank, key, value))

    def get_of_node(self, fields: "Fields") -> None:
        """Read a key of the node; on request wait until the key is there."""
        key = _key(fields)
        value = self._world.of_node.get(key)
        if value is not None or fields.get(b"wait", b"FALSE").upper() != b"TRUE":
            self._found(fields, value)
            return
        try:
            self._world.await_key(self._rank, key, lambda: self._found(fields, self._world.of_node.get(key)))
        except ValueError:
            raise Malformed from None

    def publish(self, fields: "Fields") -> None:
        """Publish a name."""
        name, port = fields.get(b"name", b""), fields.get(b"port", b"")
        self._stored(fields, lambda: self._world.names.put(self._rank, name, port))

    def unpublish(self, fields: "Fields") -> None:
        """Forget a published name."""
        found = self._world.names.remove(fields.get(b"name", b""))
        self._say(fields, b"rc=0;" if found else b"rc=1;errmsg=not found;")

    def lookup(self, fields: "Fields") -> None:
        """Look up a published name."""
        port = self._world.names.get(fields.get(b"name", b""))
        self._say(
            fields,
            b"found=FALSE;rc=1;errmsg=not found;" if port is None else b"found=TRUE;port=%b;rc=0;" % _escaped(port),
        )

    def spawn(self, fields: "Fields") -> None:
        """Refuse to start programs."""
        self._world.tell(f"spawn {self._rank}")
        self._say(fields, _NOT_DONE)

    def connect(self, fields: "Fields") -> None:
        """Refuse: there is no second job to connect to."""
        self._say(fields, _ALONE)

    def finalize(self, fields: "Fields") -> None:
        """End the program's use of PMI."""
        self.finalized = True
        self._say(fields, b"rc=0;")

    def abort(self, _: "Fields") -> None:
        """MPI_Abort: end the step with code 1. The program's own code is ignored."""
        self._world.tell(f"abort {self._rank} 1")

    def _found(self, fields: "Fields", value: "bytes | None") -> None:
        self._say(fields, b"found=FALSE;rc=0;" if value is None else b"found=TRUE;value=%b;rc=0;" % _escaped(value))

    def _stored(self, fields: "Fields", put: "Callable[[], None]") -> None:
        try:
            put()
        except NoRoom as error:
            if str(error) == "no_room":
                self._world.tell(f"full {self._rank}")
            self._say(fields, b"rc=1;errmsg=%b;" % str(error).encode("ascii"))
        else:
            self._say(fields, b"rc=0;")


def _key(fields: "Fields") -> bytes:
    try:
        return fields[b"key"]
    except KeyError:
        raise Malformed from None


_METHODS = {
    b"fullinit": Pmi2.full_init,
    b"job-getid": Pmi2.job_id,
    b"kvs-put": Pmi2.put,
    b"kvs-get": Pmi2.get,
    b"kvs-fence": Pmi2.fence,
    b"info-getjobattr": Pmi2.job_attribute,
    b"info-putnodeattr": Pmi2.put_of_node,
    b"info-getnodeattr": Pmi2.get_of_node,
    b"name-publish": Pmi2.publish,
    b"name-unpublish": Pmi2.unpublish,
    b"name-lookup": Pmi2.lookup,
    b"spawn": Pmi2.spawn,
    b"job-connect": Pmi2.connect,
    b"job-disconnect": Pmi2.connect,
    b"finalize": Pmi2.finalize,
    b"abort": Pmi2.abort,
}
