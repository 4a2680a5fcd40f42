"""Thousands of batch jobs of many users through a real daemon that is killed again and again.

    sudo ./dev torture jobs [JOBS] [--users N] [--kills SECONDS] [--seed SEED] [--json]

Every job must be run exactly once, unless it was put back into the queue; no CPU and no device may be two jobs' at a
time; the record must say what happened. The exit status is 0 when all that held. All that is started ends with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nodectl.model.wire import framing
from rootful.node import Node
from torture import accounts, inside
from torture.campaign import progress
from torture.job_diary import SCRIPT, Diary
from torture.report import Report
from torture.service import Service

_DEVICES = 4
_PATIENCE = 240.0  # seconds without any job's end, of a machine that may be busy
_SUBMITTERS = 4
_BETWEEN_LOOKS = 1.0  # seconds
_LARGEST = 1 << 20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("jobs", nargs="?", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--users", type=int, default=50, help="whose they are (50)")
    parser.add_argument("--kills", type=float, default=4.0, help="seconds from start to kill of a daemon, 0: none")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of an earlier campaign")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    return parser.parse_args()


def _request(rng: random.Random, script: str, diary: Path) -> dict[str, object]:
    """A short job of a random shape: what Submit is called with."""
    work = rng.choice(["", "", "sleep 0.02", "sleep 0.1", ":"])
    request: dict[str, object] = {
        "argv": [script],
        "environment": {"PATH": "/usr/bin:/bin"},
        "cwd": "/",
        "ntasks": rng.choice([1, 1, 1, 2]),
        "time_limit": rng.choice([60, 120, 600]),
        "stdin": "none",
        "stdout": "none",
    }
    if rng.random() < 0.3:
        request["mem"] = rng.choice([16, 64, 256])
    if rng.random() < 0.2:
        request["layout"] = {"gpus": str(rng.choice([1, 2]))}
    return {"request": request, "job": {}, "script": SCRIPT.format(diary=diary, work=work)}


def _submitter(node: Node, users: list[int], count: int, seed: int, told: Path) -> int:
    """Forks who submits so many jobs as these users in turn, and writes down the ids; its pid.

    A call whose answer did not come is not made again: the job may be there. Its script's name says which it was.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _submit(node, users, count, random.Random(seed), told)
        status = 0
    except BaseException as error:
        told.with_suffix(".error").write_text(repr(error), encoding="utf-8")
    os._exit(status)


def _submit(node: Node, users: list[int], count: int, rng: random.Random, told: Path) -> None:
    with told.open("a", buffering=1, encoding="ascii") as file:
        for number in range(count):
            uid = users[number % len(users)]
            name = f"{os.getpid()}-{number}"
            call = {"method": "org.nodectl.Submit", "parameters": _request(rng, name, node.scratch / "diary")}
            file.write(f"asked {name}\n")
            while True:
                answer = _as_user(node, uid, call)
                if answer is not None:
                    break
                time.sleep(0.05)  # there is no daemon at the moment
            file.write(f"{answer} {name}\n")


def _as_user(node: Node, uid: int, call: Mapping[str, object]) -> str | None:
    """The job's id, "lost" where no answer came, or None where nobody was asked. Raises RuntimeError: refused."""
    os.setresgid(uid, uid, 0)
    os.setresuid(uid, uid, 0)
    try:
        try:
            sock = framing.connect(str(node.socket))
        except OSError:
            return None
        with contextlib.closing(sock):
            sock.settimeout(60)
            try:
                framing.send(sock, call)
                reply = framing.receive(sock, framing.Inbox(_LARGEST))
            except (OSError, framing.BrokenWire):
                return "lost"
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
    if reply is None:
        return "lost"
    if "error" in reply:
        raise RuntimeError(str(reply))
    return str(reply["parameters"]["job"])  # type: ignore[index]


class Campaign:
    """One node, its users, and who kills it."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.rng = random.Random(chosen.seed)
        self.node = Node(
            select_type="select/cons_tres", over_subscribe="no", history_limit=1_000_000, max_connections_per_user=256,
            gres=[f"Name=gpu Count={_DEVICES}"], max_submit_jobs_per_user=chosen.jobs,
        )  # fmt: skip
        self.kills = 0
        self.told = self.node.dir / "told"
        self.diary = self.node.scratch / "diary"
        self.refused: list[str] = []
        self.waited = 0.0

    def run(self) -> Report:
        """Submits, kills, waits, judges."""
        with contextlib.ExitStack() as stack:
            inside.mark(self.node.dir, self.node.base)
            stack.callback(self.node.close)
            users = accounts.make(self.chosen.users, self.node.dir)
            self.diary.touch()
            self.diary.chmod(0o666)
            self.told.mkdir()
            self.service = Service(self.node)
            stack.callback(self.service.stop)
            self.service.start()
            if not self.service.wait():
                raise RuntimeError(f"the daemon did not start: {self.node.logged()[-2000:]}")
            begun = time.monotonic()
            self._drive(self._begin_submitters(users))
            seconds = time.monotonic() - begun
            return self._judged(seconds)

    def _begin_submitters(self, users: list[int]) -> set[int]:
        shares = [users[at::_SUBMITTERS] for at in range(_SUBMITTERS)]
        each, more = divmod(self.chosen.jobs, _SUBMITTERS)
        return {
            _submitter(self.node, share, each + (at < more), self.rng.getrandbits(32), self.told / str(at))
            for at, share in enumerate(shares)
        }

    def _drive(self, submitters: set[int]) -> None:
        """Until every job has ended, or none has for long."""
        due = 0.0  # of a daemon that is up, however long its start has taken
        moved, seen, asked = time.monotonic(), -1, 0.0
        while True:
            self.service.tick()
            for pid in list(submitters):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    submitters.discard(pid)
                    if status:
                        self.refused += [file.read_text(encoding="utf-8") for file in self.told.glob("*.error")]
            now = time.monotonic()
            if self.chosen.kills and self.service.up:
                due = due or now + self._pause()
                if now > due:
                    self.service.struck = True
                    self.service.end(signal.SIGKILL)
                    self.kills += 1
                    due = 0.0
            if self.service.up and not submitters and now - asked > _BETWEEN_LOOKS:
                asked = now
                if not self._waiting():
                    return
            size = self.diary.stat().st_size
            if size != seen:
                moved, seen = now, size
            if now - moved > _PATIENCE:
                self.refused.append(f"no job began or ended for {_PATIENCE:.0f} s")
                return
            progress(f"{size // 60} jobs in the diary, {self.kills} kills")
            time.sleep(0.05 if submitters else 0.3)

    def _pause(self) -> float:
        return self.rng.uniform(0.5, 1.5) * (self.chosen.kills or 1)

    def _waiting(self) -> int:
        """Jobs that have not ended; some when nobody answers."""
        try:
            reply = self.node.call("Queue")
        except (OSError, framing.BrokenWire):
            return 1
        return len(reply["jobs"]) if "jobs" in reply else 1  # type: ignore[arg-type]

    def _judged(self, seconds: float) -> Report:
        report, diary = Report(self.chosen.seed), Diary(self.diary)
        asked, known, unanswered = self._asked()
        started = diary.started()
        records = self._records()
        lost = [f"job {job} was accepted and is not on record" for job in known if job not in records]
        lost += [f"job {job} was accepted and never began: {records[job]}" for job in known
                 if job in records and job not in started]  # fmt: skip
        through = {stay.job for stay in diary.stays.values() if stay.ended is not None}
        wrong = [
            f"job {job} is {state} on record, and its script has {'' if job in through else 'not '}ended"
            for job, state in records.items()
            if (state == "COMPLETED") != (job in through)
        ]
        twice = diary.given_twice()
        report.add("jobs submitted", asked)
        report.add("  answered", len(known))
        report.add("  whose answer was lost with the daemon", unanswered)
        report.add("jobs on record", len(records))
        report.add("jobs begun more than once", sum(count > 1 for count in started.values()))
        report.add("kills of the daemon", self.kills)
        report.add("jobs a second", len(known) / seconds)
        report.add("lost", len(lost), 0)
        report.add("started twice", len(diary.wrong), 0)
        report.add("CPUs or devices given twice", len(twice), 0)
        report.add("records that are wrong", len(wrong), 0)
        report.add("what went wrong besides", len(self.refused) + len(self.service.failures), 0)
        report.add("leftovers", len(left := self._left()), 0)
        report.problems = [*lost, *diary.wrong, *twice, *wrong, *self.refused, *self.service.failures, *left][:50]
        return report

    def _left(self) -> list[str]:
        with contextlib.suppress(AssertionError):
            self.node.assert_clean()
        return [*self.node.leftovers(), *(f"process {process}" for process in self.node.processes())]

    def _asked(self) -> tuple[int, set[int], int]:
        texts = [path.read_text(encoding="ascii") for path in self.told.glob("[0-9]")]
        lines = [line.split() for text in texts for line in text.splitlines()]
        answers = [line[0] for line in lines if line[0] != "asked"]
        known = {int(answer) for answer in answers if answer != "lost"}
        return sum(line[0] == "asked" for line in lines), known, answers.count("lost")

    def _records(self) -> dict[int, str]:
        """The state of each job that has ended."""
        found: dict[int, str] = {}
        following = ""
        while True:
            page = {"next": following} if following else {}
            reply = self.node.call("Accounting", of="jobs", **page)
            for record in reply["records"]:  # type: ignore[attr-defined]
                found[int(record["job_id"])] = str(record["job_state"])
            following = str(reply["next"])
            if not following:
                return found


def main() -> int:
    """Runs the campaign in namespaces of its own."""
    chosen = arguments()
    if os.geteuid() != 0:
        print("torture jobs: needs root", file=sys.stderr)
        return 2
    if not inside.is_inside():
        print(f"torture jobs: --seed {chosen.seed}", file=sys.stderr)
        sys.argv += ["--seed", str(chosen.seed)]
        return inside.run_inside()
    report = Campaign(chosen).run()
    progress("")
    print(json.dumps(report.as_json(), indent=1) if chosen.json else report.text())
    return 0 if report.held else 1


if __name__ == "__main__":
    sys.exit(main())
