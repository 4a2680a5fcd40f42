"""The notices of the node's jobs: noted with the jobs' changes, told by couriers, forgotten when they were told.

The identity of a notice is its job, run, event and way. Its row is written once, in the transaction of the job's
change, and marked after a courier has told it; it goes when the job is over. So any number of calls about one event,
also by a later daemon, make one notice. Decision 64 says what remains when a courier is killed.

Each user has one courier at a time for each way, and each way a number of couriers, in turn: a command that hangs
delays only notices of its own user and way. Used only from the event loop.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from nodectl import messages
from nodectl.kernel import children
from nodectl.launch.cgroup import delegation, tree
from nodectl.launch.cgroup.constraints import wanted_controllers
from nodectl.launch.cgroup.delegation import Base
from nodectl.launch.cgroup.device_access import Rules
from nodectl.model import notice
from nodectl.model.config import Config
from nodectl.model.states import SUSPENDED
from nodectl.model.wire import lean_json
from nodectl.model.wire.dispatch import Refused
from nodectl.scheduler import job_array
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.admission.confinement import ConfinementLevels
from nodectl.service.daemon.admission.step_maker import hard_limits
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.notice import Notice
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.service.daemon.notices import order_file, wishes
from nodectl.service.daemon.notices.ways import (
    COMMAND,
    FAILED,
    LATE,
    MAIL,
    NOT_BEGUN,
    SITE,
    UNKNOWN_USER,
    UNTRUSTED,
    WAYS,
)
from nodectl.service.daemon.processes.reporting_process import ReportingProcess

_MODULE = "nodectl.service.daemon.notices.courier"
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_AT_ONCE = 16  # notices of an order
_LARGE = 4096  # bytes of a notice's record, with each of which it counts once more
_COURIERS = 8  # of a way
_HELD_AGAIN = 0.2  # seconds between two looks for the end of an earlier daemon's courier
_AGAIN = 60.0  # seconds, where the system refused a courier, or sendmail a mail for the time being
_TRIES = 5  # of a mail, and of a cgroup
_NO_PROGRAM = children.NO_PROGRAM << 8
_TEMPORARY = (75 << 8, _NO_PROGRAM, UNTRUSTED, UNKNOWN_USER)  # EX_TEMPFAIL of sendmail(8)
_HOUR = 3600.0
_LEAST_WAIT = 1.0
_LONGEST_WAIT = 3600.0  # the clock may be set meanwhile
_AT_THE_END = 1.0  # seconds for couriers that have just begun; a command that hangs delays no restart
_LIMITS = {"cpu.max": "100000 100000", "pids.max": "64", "memory.max": str(512 << 20), "cpu.weight": "20"}
_WHY = {LATE: "took longer than notify_timeout", UNKNOWN_USER: "there is no such user",
        UNTRUSTED: "its program is missing, or not trusted", FAILED: "an error of nodectl",
        NOT_BEGUN: "the system had no process, memory or descriptor for it"}  # fmt: skip
_T = TypeVar("_T")
Key = tuple[str, int]
"""A way and a user: a courier tells the notices of both."""


class Notices:
    """The notices of a node. `durable` has the store written, as `Commits.durable`; `lives` returns True for a job or
    array that is not over, `has_row` for a job that is not of a run that began at once: of the others nothing is told.
    `device_rules` say which devices the processes of users may open.
    """

    def __init__(
        self, config: Config, store: JobStore, base: Base, levels: ConfinementLevels, *,
        durable: Callable[[], "asyncio.Future[None]"], lives: Callable[[int], bool],
        has_row: Callable[[JobRecord], bool], device_rules: Callable[[], Rules],
    ) -> None:  # fmt: skip
        self._config = config
        self._store = store
        self._base = base
        self._levels = levels
        self._durable = durable
        self._lives = lives
        self._has_row = has_row
        self._device_rules = device_rules
        self._directory = f"{config.runtime_dir}/notices"
        self._hard_limits = hard_limits(config)
        self._fresh: dict[Key, None] = {}  # with notices that are not on the disk yet
        self._ready: dict[Key, None] = {}  # that may have notices to tell, in turn
        self._busy: dict[Key, asyncio.Future[None]] = {}
        self._paused: dict[Key, asyncio.TimerHandle] = {}
        self._noted: dict[int, set[tuple[int, int, str, str]]] = {}  # by job or array: its notices so far
        self._waiting: dict[int, dict[tuple[object, ...], int]] = {}  # by user: notices to be told, with their weight
        self._weight: Counter[int] = Counter()  # by user: of these together
        for identity, uid, is_told, size in store.noted():  # an earlier daemon's, which this one notes again
            self._noted.setdefault(identity[0], set()).add(identity)
            if not is_told:
                self._wait(uid, identity, size)
        self._told: dict[int, tuple[float, int]] = {}  # by user: the beginning of an hour, and how many in it
        self._failed: dict[int, dict[int, str]] = {}  # by user and job or array: the latest failure, for `show`
        self._tries: Counter[tuple[object, ...]] = Counter()
        self._limits: dict[int, asyncio.TimerHandle] = {}  # by job: the next share of its time limit
        self._tasks = BackgroundTasks()
        self._serves = False
        self.clock: Callable[[], float] = time.time

    def begin(self) -> None:
        """Begin to tell, first the notices which an earlier daemon has left."""
        self._serves = True
        for job in [job for job in self._noted if not self._lives(job)]:
            self._over(job)
        self._ready |= dict.fromkeys(self._store.waiting_notices())
        for name in os.listdir(self._directory) if os.path.isdir(self._directory) else ():
            word, _, number = name.partition("-")
            if word in WAYS and number.isdecimal():
                key = word, int(number)
                self._take(key)
                self._tasks.begin(self._after_earlier(key))
        self._store.after_write = self._written  # which also makes `_fresh` ready: it may not be on the disk yet
        self._deliver()

    async def settle(self) -> None:
        """Begin nothing more before the daemon ends, and wait a moment for couriers, which live on afterwards."""
        self._serves = False
        for timer in (*self._limits.values(), *self._paused.values()):
            timer.cancel()
        if self._busy:
            await asyncio.wait(self._busy.values(), timeout=_AT_THE_END)

    def warnings(self, job: JobRecord) -> list[str]:
        """Return warnings about the requested notices of a new job."""
        asked = job.details.notices
        if asked.get("types") and not self._config.sendmail and not self._config.notify_command:
            return ["no mail will tell of this job: this machine has no sendmail (the key sendmail); --notify runs a "
                    "command instead"]  # fmt: skip
        wanted = set(asked.get("types", "").split(","))
        found = []
        if not wanted.isdisjoint((notice.TIME_LIMIT, *notice.SHARES_OF_LIMIT)) and not job.time_limit:
            found.append("no mail will tell of a time limit: the job has none; --time gives it one")
        if notice.IDLE in wanted and notice.BEGIN not in wanted and not self._config.idle_after:
            found.append(
                "no mail will tell that the job does nothing: this machine watches no jobs (the key idle_after)"
            )
        return found

    def failure(self, job: JobRecord) -> str:
        """Return the latest failure to tell the job's user of an event, "" for none since the daemon's start."""
        failed = self._failed.get(job.user_id, {})
        return failed.get(job.job_id) or failed.get(job.array_job_id) or ""

    # Events.

    def begun(self, job: JobRecord) -> None:
        """Note the beginning of a job; also again for the same run."""
        self._note(job, notice.BEGIN)

    def requeued(self, job: JobRecord) -> None:
        """Note a job queued again after a run. Called before the next run is counted."""
        self._note(job, notice.REQUEUE)

    def idle(self, job: JobRecord, words: str) -> None:
        """Note an idle job; `words` give the duration and the consequence."""
        for way, wanted in wishes.of(job, self._config).items():
            if notice.IDLE in wanted:
                self._put(job, notice.IDLE, way, words=words, spell=int(job.idle_since))
                self._soon()

    def ended(self, job: JobRecord) -> None:
        """Note the end of a job, and of its array where the job was the last one. Called with the job's last change."""
        self.forget(job.job_id)
        asked = wishes.of(job, self._config)
        if not asked:
            return
        whole = wishes.is_told_as_a_whole(job)
        for way, wanted in asked.items():
            of_task = wanted & {notice.TIME_LIMIT} if whole else wanted
            for event in wishes.events_of_end(of_task, {job.job_state: 1}):
                self._put(job, event, way)
        array_lives = self._lives(job.array_job_id)
        if whole and not array_lives:
            self._end_array(job, asked)
        if not (array_lives and job.job_id == job.array_job_id):  # the last task that began has the array's number
            self._over(job.job_id)
        if job.array_job_id and not array_lives:
            self._over(job.array_job_id)

    def _over(self, number: int) -> None:
        self._noted.pop(number, None)
        self._store.drop_told(number)

    def _end_array(self, job: JobRecord, asked: wishes.Wishes) -> None:
        """Note the end of an array. How its tasks ended is looked up when the end is on the disk."""
        for way, wanted in asked.items():
            if wanted & {notice.END, notice.FAIL}:
                self._put(job, notice.END, way, whole=True, wanted=sorted(wanted))

    def _note(self, job: JobRecord, event: str) -> None:
        whole = wishes.is_told_as_a_whole(job) and event not in notice.SHARES_OF_LIMIT
        if whole and event == notice.REQUEUE:
            return
        for way, wanted in wishes.of(job, self._config).items():
            if event in wanted:
                self._put(job, event, way, whole=whole)
                self._soon()

    def _soon(self) -> None:
        self._durable().add_done_callback(lambda done: done.exception())  # a failed write is tried again

    def _put(
        self, job: JobRecord, event: str, way: str, *, whole: bool = False, wanted: list[str] | None = None,
        words: str = "", spell: int = 0,
    ) -> None:  # fmt: skip
        if not self._has_row(job):
            return
        uid = job.user_id
        made = wishes.made(job, event, way, at=time.time(), whole=whole, words=words, spell=spell)
        noted = self._noted.setdefault(made.job, set())
        if made[:4] in noted:
            return
        earlier = [one for one in noted if 0 < one[1] < made.restart]  # run 0 has the events of an array, too
        if earlier:  # nothing more is told of a run that is over, and a user may begin any number of runs
            noted.difference_update(earlier)
            self._store.drop_told_of_runs(made.job, made.restart)
        noted.add(made[:4])
        if wanted is not None:
            made = made._replace(record={**made.record, "wanted": wanted})
        size = len(lean_json.dumps(made.record))
        if self._weight[uid] + _weight_of(size) > max(self._config.max_notices_per_user, _weight_of(size)):
            words = f"job {job.job_id}: nothing tells of {event}: max_notices_per_user"
            messages.tell("notice-lost", words, job=job.job_id, uid=uid)
            return
        self._store.put_notice(made)
        self._wait(uid, made[:4], size)
        self._fresh[way, uid] = None

    def _wait(self, uid: int, identity: tuple[object, ...], size: int) -> None:
        """Count a notice of the user's that waits to be told. `size`: bytes of its record."""
        weight = _weight_of(size)
        self._waiting.setdefault(uid, {})[identity] = weight
        self._weight[uid] += weight

    # Shares of time limits.

    def watch(self, job: JobRecord) -> None:
        """Set the timer for the next share of a job's time limit with a notice."""
        self.forget(job.job_id)
        if not job.time_limit or not job.is_active:
            return
        used = job.used_seconds(self.clock())
        for event, percent in wishes.shares_of_limit(job, self._config):
            left = job.time_limit * percent / 100 - used
            if left > 0:  # still, where the clock stands: the job is suspended
                wait = min(max(left, _LEAST_WAIT if job.job_state == SUSPENDED else 0.0), _LONGEST_WAIT)
                self._limits[job.job_id] = asyncio.get_running_loop().call_later(wait, self.watch, job)
                return
            self._note(job, event)

    def forget(self, job: int) -> None:
        """Remove the timer of a job."""
        timer = self._limits.pop(job, None)
        if timer is not None:
            timer.cancel()

    # Couriers.

    def _written(self) -> None:
        """Send the notices written to the disk just now."""
        self._ready |= self._fresh
        self._fresh.clear()
        self._deliver()

    def _deliver(self) -> None:
        """Start couriers for the notices on the disk, as many as may run."""
        if not self._serves:
            return
        couriers = Counter(way for way, _ in self._busy)
        for key in [key for key in self._ready if key not in self._busy and key not in self._paused]:
            if couriers[key[0]] < _COURIERS and self._may_tell(key):
                couriers[key[0]] += 1
                self._take(key)
                self._tasks.begin(self._send(key))

    def _may_tell(self, key: Key) -> bool:
        """Return False, and pause, where the user's share of the hour is used up."""
        began, count = self._told.get(key[1], (0.0, 0))
        left = began + _HOUR - time.monotonic()
        if left <= 0:
            self._told.pop(key[1], None)
        elif count >= self._config.max_notices_per_user:
            self._pause(key, left)
            return False
        return True

    def _pause(self, key: Key, seconds: float) -> None:
        self._paused[key] = asyncio.get_running_loop().call_later(seconds, self._go_on, key)

    def _go_on(self, key: Key) -> None:
        del self._paused[key]
        self._deliver()

    def _take(self, key: Key) -> None:
        self._busy[key] = asyncio.get_running_loop().create_future()

    def _release(self, key: Key) -> None:
        self._busy.pop(key).set_result(None)
        self._deliver()

    def _path(self, key: Key) -> str:
        return f"{self._directory}/{key[0]}-{key[1]}"

    async def _send(self, key: Key) -> None:
        """Start a courier with the next notices of a way and user."""
        self._ready.pop(key, None)
        try:
            found = self._store.notices(*key, _AT_ONCE)
            if not found:
                self._release(key)
                return
            if len(found) == _AT_ONCE:
                self._ready[key] = None  # behind the others
            for level in {str(one.record["secure"]) for one in found if key[0] == COMMAND}:
                await self._levels.ready(level)
            self._start(key, [await self._complete(one) for one in found])
        except (
            OSError,
            Refused,
            sqlite3.Error,
        ) as error:  # the system has no room, or a level is not possible any more
            messages.tell("notice-late", f"tell uid {key[1]} by {key[0]}: {error}", uid=key[1])
            self._ready[key] = None
            self._pause(key, _AGAIN)
            self._release(key)

    async def _complete(self, told: Notice) -> Notice:
        """Add to the end of an array how its tasks have ended."""
        if "wanted" not in told.record:
            return told
        states = await self._ends_of_array(told.job)
        events = wishes.events_of_end(frozenset(told.record["wanted"]) - {notice.TIME_LIMIT}, states)
        return told._replace(record={**told.record, "ends": states, "event": events[0] if events else ""})

    async def _ends_of_array(self, array: int) -> dict[str, int]:
        """Return by state the number of ended tasks of an array in the history.

        They are read in slices: a million of them would keep the event loop for seconds.
        """
        ends: Counter[str] = Counter()
        job, restart, state = 0, -1, ""
        while runs := self._store.runs_of_array(array, (job, restart)):
            for run in runs:
                if run[0] != job:  # else an earlier run has just come
                    ends[state] += 1
                job, restart, state = run
            await asyncio.sleep(0)
        ends[state] += 1
        del ends[""]
        rest = self._store.find(array)
        if rest is not None and rest.record.array_tasks and rest.record.job_state in ends:  # these have one row
            ends[rest.record.job_state] += job_array.size(job_array.tasks_of(rest.record.array_tasks)) - 1
        return dict(ends)

    def _start(self, key: Key, batch: list[Notice]) -> None:
        group = self._group(key)
        order = {
            "notices": batch,
            "group": group,
            "node": self._config.node_name,
            "seconds": self._config.notify_timeout,
            "sendmail": self._config.sendmail,
            "notify_command": self._config.notify_command,
            "notify_user": self._config.notify_user,
            "hard_limits": self._hard_limits,
        }
        os.makedirs(self._directory, 0o700, exist_ok=True)
        fd = order_file.write(self._path(key), order)
        try:
            process = ReportingProcess(
                _MODULE, {}, environment=_ENVIRONMENT, seconds=0, extra=[fd, self._levels.programs]
            )
        finally:
            os.close(fd)
        process.on_end = lambda: self._tasks.begin(self._settle(key, again=_AGAIN))

    def _group(self, key: Key) -> str:
        """Make the cgroup in which everything that a courier starts is found. Return its path, "" for none."""
        if not self._base.path:
            return ""
        top = tree.Group(f"{self._base.mount}{self._base.path}/{tree.NOTICES}")
        group = top.child(f"{key[0]}-{key[1]}")  # `tree.is_of_notice` knows the name
        for _ in range(_TRIES):
            try:
                top.make().enable(self._base.controllers)
                group.make()
                break
            except FileNotFoundError:  # a courier that ended has removed `top`, or another process the base
                delegation.make(self._config.cgroup_name, wanted_controllers(self._config))
        group.write({name: text for name, text in _LIMITS.items() if group.has(name)})
        if key[0] != SITE and (rules := self._device_rules()):
            group.confine_devices(rules)
        return group.full_path

    async def _after_earlier(self, key: Key) -> None:
        """Wait for the courier of an earlier daemon, then take over the notices sent by the courier."""
        path = self._path(key)
        while await _when_possible(lambda: order_file.is_held(path)):  # noqa: ASYNC110  # no event tells of a lock
            await asyncio.sleep(_HELD_AGAIN)
        await self._settle(key)

    async def _settle(self, key: Key, again: float = 0) -> None:
        """Note the notices sent by a courier. The file is removed after the commit, so a later daemon knows, too.

        Where it has told nothing, the next one waits for `again` seconds.
        """
        path = self._path(key)
        order, statuses = await _when_possible(lambda: order_file.told(path))
        rows: Any = order.get("notices", [])
        said = [self._was_told(Notice(*rows[place]), status) for place, status in statuses.items() if place < len(rows)]
        if not order or sum(said) < len(rows):
            self._ready[key] = None
        if again and not all(said or [False]):
            self._pause(key, again)
        while said and not await self._is_written():  # noqa: ASYNC110  # a full disk has no event
            await asyncio.sleep(_AGAIN)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._release(key)

    async def _is_written(self) -> bool:
        done = self._durable()
        await asyncio.wait([done])
        return done.exception() is None

    def _was_told(self, told: Notice, status: int) -> bool:
        """Note the outcome of a notice. Return False if the notice has to be told once more."""
        identity = told[:4]
        if status:
            self._tries[identity] += 1
            may_come_again = status == NOT_BEGUN or (told.way == MAIL and status in _TEMPORARY)
            if may_come_again and self._tries[identity] < _TRIES:
                return False
            why = _WHY.get(status) or children.said(status)
            if status < 0 or status == _NO_PROGRAM or told.way != COMMAND:  # a command may fail as it likes
                words = f"job {told.job}: {told.event} was not told by {told.way}: {why}"
                messages.tell("notice-failed", words, job=told.job, uid=told.uid)
            self._keep_failure(told, why)
        self._tries.pop(identity, None)
        self._store.put_told(identity, is_over=not self._lives(told.job))
        waiting = self._waiting.get(told.uid, {})
        self._weight[told.uid] -= waiting.pop(identity, 0)
        if not waiting:
            self._waiting.pop(told.uid, None)
            del self._weight[told.uid]
        began, count = self._told.get(told.uid, (time.monotonic(), 0))
        self._told[told.uid] = began, count + 1
        return True

    def _keep_failure(self, told: Notice, why: str) -> None:
        """Keep a failure for the job's user, of so many jobs as the user may have notices in an hour."""
        if told.way == SITE:
            return
        failed = self._failed.setdefault(told.uid, {})
        failed.pop(told.job, None)  # the newest is the last
        failed[told.job] = f"{told.event} by {'--notify' if told.way == COMMAND else 'mail'}: {why}"
        if len(failed) > self._config.max_notices_per_user:
            del failed[next(iter(failed))]


def _weight_of(size: int) -> int:
    return 1 + size // _LARGE


async def _when_possible(read: Callable[[], _T]) -> _T:
    """Return what `read` returns, once the system can serve it: what was told is told again where it is not known."""
    while True:
        try:
            return read()
        except OSError:  # no descriptor is left, or no memory
            await asyncio.sleep(_AGAIN)
