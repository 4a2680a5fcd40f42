"""The PMI server, as a process: bytes in, bytes out, and the words that it has for the step runner."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Iterator

import pytest

from nodectl.mpi import own_server
from nodectl.mpi.world import LONGEST_VALUE, MOST_KEYS

PATIENCE = 30.0
INIT = b"cmd=init pmi_version=1 pmi_subversion=1\n"
INIT2 = b"cmd=init pmi_version=2 pmi_subversion=0\n"


class Served:
    """A server for some tasks. `tasks` are their ends of the sockets."""

    def __init__(self, size: int) -> None:
        pairs = [socket.socketpair() for _ in range(size)]
        self.tasks = [one for one, _ in pairs]
        life, self.life = os.pipe()
        self._words, words = os.pipe()
        self._heard = b""
        server = own_server("pmi_server", connected=True)
        given = [life, words, *(other.fileno() for _, other in pairs)]
        self.process = subprocess.Popen(
            server.argv,
            env={
                **server.environment,
                "NODECTL_MPI_TASKS": str(size),
                "NODECTL_MPI_JOB": "7.0",
                "NODECTL_MPI_LIFE": str(life),
                "NODECTL_MPI_WORDS": str(words),
                "NODECTL_MPI_SOCKETS": ",".join(map(str, given[2:])),
            },
            pass_fds=given,
        )
        for one, other in pairs:
            one.settimeout(PATIENCE)
            other.close()
        os.close(life)
        os.close(words)

    def ask(self, rank: int, line: bytes) -> bytes:
        """PMI-1: a line, and the line that answers it."""
        self.tasks[rank].sendall(line)
        return self.line(rank)

    def line(self, rank: int) -> bytes:
        found = b""
        while not found.endswith(b"\n"):
            data = self.tasks[rank].recv(1)
            assert data, f"the connection has ended behind {found!r}"
            found += data
        return found

    def ask2(self, rank: int, message: bytes) -> bytes:
        """PMI-2: a message, and its answer."""
        self.tasks[rank].sendall(b"%6d%b" % (len(message), message))
        return self.message(rank)

    def message(self, rank: int) -> bytes:
        length = self.tasks[rank].recv(6, socket.MSG_WAITALL)
        return self.tasks[rank].recv(int(length), socket.MSG_WAITALL)

    def word(self) -> str:
        """The next word for the step runner."""
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._words], [], [], PATIENCE)
            assert ready, "no word came"
            data = os.read(self._words, 4096)
            assert data, "no more words"
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode("ascii")

    def has_ended(self, rank: int) -> bool:
        """Reads to the end of the connection."""
        try:
            while self.tasks[rank].recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        os.close(self.life)
        assert self.process.wait(PATIENCE) == 0
        os.close(self._words)
        for one in self.tasks:
            one.close()


@pytest.fixture
def two() -> Iterator[Served]:
    """A server for two tasks. It must end by itself when the step is over."""
    served = Served(2)
    yield served
    served.close()


def test_a_program_of_pmi_1_is_told_who_it_is_among(two: Served) -> None:
    assert two.ask(0, INIT) == b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
    assert two.ask(0, b"cmd=get_maxes\n") == b"cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
    assert two.ask(0, b"cmd=get_appnum\n") == b"cmd=appnum appnum=0 rc=0\n"
    assert two.ask(0, b"cmd=get_my_kvsname\n") == b"cmd=my_kvsname kvsname=kvs_7.0 rc=0\n"
    assert two.ask(0, b"cmd=get_universe_size\n") == b"cmd=universe_size size=2 rc=0\n"
    mapping = two.ask(0, b"cmd=get kvsname=kvs_7.0 key=PMI_process_mapping\n")
    assert mapping == b"cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n"
    assert two.ask(0, b"cmd=finalize\n") == b"cmd=finalize_ack rc=0\n"


def test_what_one_task_puts_another_gets_behind_the_barrier(two: Served) -> None:
    for rank in (0, 1):
        two.ask(rank, INIT)
        assert two.ask(rank, b"cmd=put kvsname=k key=card-%d value=address#%d$\n" % (rank, rank)) == (
            b"cmd=put_result rc=0 msg=success\n"
        )
    two.tasks[0].sendall(b"cmd=barrier_in\n")
    assert two.ask(1, b"cmd=barrier_in\n") == b"cmd=barrier_out rc=0\n"
    assert two.line(0) == b"cmd=barrier_out rc=0\n"
    assert two.ask(0, b"cmd=get kvsname=k key=card-1\n") == b"cmd=get_result rc=0 msg=success value=address#1$\n"
    assert two.ask(1, b"cmd=get kvsname=k key=none\n") == b"cmd=get_result rc=-1 msg=key_not_found value=unknown\n"


def test_nobody_leaves_a_barrier_before_all_are_in_it() -> None:
    served = Served(3)
    for rank in range(3):
        served.ask(rank, INIT)
    for rank in (0, 1):
        served.tasks[rank].sendall(b"cmd=barrier_in\n")
    assert served.ask(2, b"cmd=get_appnum\n").startswith(b"cmd=appnum")  # so what came before has been served
    ready, _, _ = select.select(served.tasks, [], [], 0)
    assert not ready
    served.tasks[2].sendall(b"cmd=barrier_in\n")
    assert [served.line(rank) for rank in range(3)] == [b"cmd=barrier_out rc=0\n"] * 3
    served.close()


def test_names_are_published_looked_up_and_forgotten(two: Served) -> None:
    two.ask(0, INIT)
    two.ask(1, INIT)
    assert two.ask(0, b"cmd=publish_name service=here port=tag#0$\n").startswith(b"cmd=publish_result rc=0 ")
    assert b"rc=-1 msg=duplicate" in two.ask(1, b"cmd=publish_name service=here port=other\n")
    assert two.ask(1, b"cmd=lookup_name service=here\n") == b"cmd=lookup_result rc=0 msg=success info=ok port=tag#0$\n"
    assert b"rc=0" in two.ask(1, b"cmd=unpublish_name service=here\n")
    assert b"rc=-1" in two.ask(1, b"cmd=lookup_name service=here\n")


def test_a_program_of_pmi_2_finds_the_same(two: Served) -> None:
    for rank in (0, 1):
        assert two.ask(rank, INIT2) == b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"
        assert two.ask2(rank, b"cmd=fullinit;pmijobid=7.0;pmirank=%d;threaded=FALSE;" % rank) == (
            b"cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=%d;size=2;appnum=0;debugged=FALSE;"
            b"pmiverbose=FALSE;rc=0;" % rank
        )
    assert two.ask2(0, b"cmd=job-getid;") == b"cmd=job-getid-response;jobid=7.0;rc=0;"
    assert two.ask2(0, b"cmd=info-getjobattr;key=PMI_process_mapping;") == (
        b"cmd=info-getjobattr-response;found=TRUE;value=(vector,(0,1,2));rc=0;"
    )
    assert two.ask2(0, b"cmd=info-getjobattr;key=unknown;") == b"cmd=info-getjobattr-response;found=FALSE;rc=0;"
    assert two.ask2(1, b"cmd=kvs-put;key=a;value=1;;2;") == b"cmd=kvs-put-response;rc=0;"
    two.tasks[0].sendall(b"%6d%b" % (14, b"cmd=kvs-fence;"))
    assert two.ask2(1, b"cmd=kvs-fence;thrid=5;") == b"cmd=kvs-fence-response;thrid=5;rc=0;"
    assert two.message(0) == b"cmd=kvs-fence-response;rc=0;"
    assert two.ask2(0, b"cmd=kvs-get;jobid=7.0;srcid=1;key=a;") == (b"cmd=kvs-get-response;found=TRUE;value=1;;2;rc=0;")
    assert two.ask2(0, b"cmd=finalize;") == b"cmd=finalize-response;rc=0;"


def test_a_command_of_another_pmi_2_is_refused_and_its_program_goes_on(two: Served) -> None:
    two.ask(0, INIT2)
    assert two.ask2(0, b"cmd=ring;ring-count=1;") == b"cmd=ring-response;rc=1;errmsg=unknown command;"
    assert two.ask2(0, b"cmd=job-getid;") == b"cmd=job-getid-response;jobid=7.0;rc=0;"


def test_a_key_of_the_node_is_waited_for(two: Served) -> None:
    for rank in (0, 1):
        two.ask(rank, INIT2)
    waiting = b"cmd=info-getnodeattr;key=shm;wait=TRUE;"
    two.tasks[0].sendall(b"%6d%b" % (len(waiting), waiting))
    assert (
        two.ask2(1, b"cmd=info-getnodeattr;key=shm;wait=FALSE;") == b"cmd=info-getnodeattr-response;found=FALSE;rc=0;"
    )
    assert two.ask2(1, b"cmd=info-putnodeattr;key=shm;value=here;") == b"cmd=info-putnodeattr-response;rc=0;"
    assert two.message(0) == b"cmd=info-getnodeattr-response;found=TRUE;value=here;rc=0;"


def test_a_request_to_start_programs_is_refused_and_told_once(two: Served) -> None:
    two.ask(0, INIT)
    spawn = b"mcmd=spawn\nnprocs=2\nexecname=./a b\ntotspawns=2\nspawnssofar=%d\nendcmd\n"
    two.tasks[0].sendall(spawn % 1)
    assert two.ask(0, spawn % 2) == b"cmd=spawn_result rc=-1 msg=a_step_starts_no_further_programs\n"
    assert two.word() == "spawn 0"
    assert two.ask(0, b"cmd=get_appnum\n") == b"cmd=appnum appnum=0 rc=0\n"
    two.ask(1, INIT2)
    assert two.ask2(1, b"cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;").startswith(b"cmd=spawn-response;rc=1;errmsg=")
    assert two.word() == "spawn 1"


@pytest.mark.parametrize(
    ("line", "word"), [(b"cmd=abort exitcode=7\n", "abort 1 7"), (b"cmd=abort exitcode=-3\n", "abort 1 -3"),
                       (b"cmd=abort exitcode=x\n", "abort 1 1")],
)  # fmt: skip
def test_the_step_runner_learns_of_an_abort(two: Served, line: bytes, word: str) -> None:
    two.ask(1, INIT)
    two.tasks[1].sendall(line)
    assert two.word() == word


def test_the_step_runner_learns_of_an_abort_by_pmi_2(two: Served) -> None:
    two.ask(1, INIT2)
    message = b"cmd=abort;isworld=TRUE;msg=why;;not;"
    two.tasks[1].sendall(b"%6d%b" % (len(message), message))
    assert two.word() == "abort 1 1"


def test_a_connection_that_ends_within_mpi_is_told_and_one_behind_it_is_not(two: Served) -> None:
    two.ask(0, INIT)
    two.ask(0, b"cmd=finalize\n")
    two.tasks[0].close()
    two.ask(1, INIT)
    two.tasks[1].close()
    assert two.word() == "lost 1"


def test_others_in_the_barrier_are_not_left_to_wait_for_one_that_has_gone(two: Served) -> None:
    two.ask(1, INIT)
    two.tasks[0].close()  # it never began
    two.tasks[1].sendall(b"cmd=barrier_in\n")
    assert two.word() == "stuck 0"


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        b"cmd=get_appnum\n",  # before init
        INIT + b"no words at all\n",
        INIT + b"cmd=unheard_of\n",
        INIT + b"cmd=put kvsname=k value=1\n",
        INIT + b"cmd=barrier_in\ncmd=barrier_in\n",
        INIT + b"x" * 20000,  # a line without an end
        b"\0" * 20000,
        b"cmd=init pmi_version=many\n",
        INIT + b"mcmd=spawn\n" + b"a=b\n" * 5000,
        INIT2 + b"999999cmd=kvs-fence;",
        INIT2 + b"     -cmd=kvs-fence;",
        INIT2 + b"    10no=command",
        INIT2 + b"    16cmd=kvs-fence;a\0b",
        INIT2 + b"    23cmd=fullinit;pmirank=0;;",  # the rank of another
        INIT2 + b"%6d%b" % (31, b"cmd=fullinit;pmirank=0;x=aaaa;;"),
    ],
)
def test_a_task_that_sends_what_is_no_message_is_told_of_and_others_are_served(two: Served, data: bytes) -> None:
    two.tasks[1].sendall(data)
    assert two.word() == "bad 1"
    assert two.has_ended(1)
    assert two.ask(0, INIT).endswith(b"rc=0\n")


def test_what_one_task_may_store_has_an_end(two: Served) -> None:
    two.ask(0, INIT)
    for number in range(MOST_KEYS):
        assert two.ask(0, b"cmd=put kvsname=k key=%d value=v\n" % number) == b"cmd=put_result rc=0 msg=success\n"
    assert two.ask(0, b"cmd=put kvsname=k key=more value=v\n") == b"cmd=put_result rc=-1 msg=no_room\n"
    assert two.word() == "full 0"
    assert two.ask(0, b"cmd=put kvsname=k key=7 value=anew\n") == b"cmd=put_result rc=0 msg=success\n"
    two.ask(1, INIT)
    long = b"v" * (LONGEST_VALUE + 1)
    assert two.ask(1, b"cmd=put kvsname=k key=a value=%b\n" % long) == b"cmd=put_result rc=-1 msg=invalid_value\n"
    assert two.ask(1, b"cmd=put kvsname=k key=%b value=v\n" % long) == b"cmd=put_result rc=-1 msg=invalid_key\n"


def test_one_that_never_reads_is_not_listened_to_and_others_are_served(two: Served) -> None:
    two.ask(0, INIT)
    two.ask(0, b"cmd=put kvsname=k key=a value=%b\n" % (b"v" * LONGEST_VALUE))
    two.ask(1, INIT)
    two.tasks[0].setblocking(False)
    asked = 0
    for _ in range(300):  # in each round the server has time to take more, if it would
        with contextlib.suppress(BlockingIOError):
            while asked < 64 << 20:
                asked += two.tasks[0].send(b"cmd=get kvsname=k key=a\n" * 100)
        assert two.ask(1, b"cmd=get_appnum\n") == b"cmd=appnum appnum=0 rc=0\n"
    assert asked < 1 << 20
    with open(f"/proc/{two.process.pid}/status", encoding="ascii") as status:
        (peak,) = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
    assert peak < 64 << 10  # KiB


def test_a_second_program_may_follow_the_first_one(two: Served) -> None:
    for _ in range(2):
        two.ask(0, INIT2)
        assert two.ask2(0, b"cmd=finalize;") == b"cmd=finalize-response;rc=0;"
    two.ask(0, INIT)
    assert two.ask(0, b"cmd=finalize\n") == b"cmd=finalize_ack rc=0\n"


def test_a_server_that_its_step_runner_has_left_ends() -> None:
    served = Served(1)
    served.ask(0, INIT)
    os.close(served.life)  # as when the step runner is killed
    assert served.process.wait(PATIENCE) == 0
    assert served.has_ended(0)


def test_a_server_is_not_ended_by_what_tasks_do_with_their_sockets(two: Served) -> None:
    two.ask(0, INIT)
    two.tasks[0].shutdown(socket.SHUT_RD)
    two.tasks[0].sendall(b"cmd=get_appnum\n" * 100)
    two.tasks[0].close()
    assert two.word() == "lost 0"
    assert two.ask(1, INIT).endswith(b"rc=0\n")
    assert two.process.poll() is None
