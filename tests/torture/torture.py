"""A campaign against a real node: faults at random, mutated messages, hostile users.

    sudo ./dev torture [MINUTES] [--least FAULTS] [--messages N] [--seed SEED] [--log FILE] [--json]

Prints what it counted beside what that may be; the exit status is 0 when everything held. The same seed draws the same
steps, faults and messages again, though not at the same moments. Loopback only; all that is started ends with it.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from torture import inside
from torture.campaign import Campaign, progress
from torture.foes import KINDS
from torture.probe import beside, latencies
from torture.report import Report

_MARGIN = 48.0  # MiB
_SLOW = 0.5  # seconds


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("minutes", nargs="?", type=float, default=10.0, help="of faults and attack together (10)")
    parser.add_argument("--messages", type=int, default=500_000, help="mutated messages (500000), 0 for none")
    parser.add_argument("--faults", type=int, default=1 << 30, help="most faults; else as many as there is time for")
    parser.add_argument("--least", type=int, default=0, help="faults, for which a busy machine gets more time")
    parser.add_argument("--hostile", default=",".join(KINDS), help="kinds of hostile clients (all)")
    parser.add_argument("--spare", default="", help="what no fault strikes: machine, stepd, ...")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of an earlier campaign")
    parser.add_argument("--log", type=Path, help="a file to keep the daemons' log in")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    found = parser.parse_args()
    found.hostile = [kind for kind in found.hostile.split(",") if kind]
    found.spare = found.spare.split(",")
    if unknown := set(found.hostile) - set(KINDS):
        parser.error(f"no hostile client called {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return found


def report(campaign: Campaign, seed: int, least: int, messages: int) -> Report:
    tally, service, told = campaign.tally, campaign.service, Report(seed)
    told.add("faults", tally.faults)
    told.add("faults that there was no time for", max(least - tally.faults, 0), 0)
    for fault, count in sorted(campaign.faults.counted.items()):
        told.add(f"  {fault}", count)
    told.add("daemons started", service.starts)
    told.add("daemons that died, or did not start or end", len(tally.deaths), 0)
    told.add("daemons that died of want of memory", service.died_of_want)
    told.add("longest from a signal to the daemon's end", service.slowest_end, 10, "s", timed=True)
    told.add("steps", len(campaign.works.over))
    told.add("results lost", len(tally.lost), 0)
    told.add("results wrong", len(tally.wrong), 0)
    told.add("leftovers", len(tally.left), 0)
    told.add("mutated messages", tally.sent)
    told.add("mutated messages that were not sent", max(messages - tally.sent, 0), 0)
    told.add("  descriptors with them", tally.descriptors)
    told.add("internal errors", len(tally.internal), 0)
    told.add("growth of the service's memory by them", tally.growth, _MARGIN, "MiB")
    told.add("others' steps during the attack", tally.started)
    told.add("daemons told to end during the attack", tally.ends)
    for phase, (begun, ended) in campaign.phases.items():
        told.add(f"seconds of {phase}", ended - begun)
        samples = [sample for sample in campaign.samples if begun <= sample.began and sample.ended <= ended]
        median, worst, count, unanswered = latencies(samples, campaign.faults.excused)
        told.add(f"Hello of another user, {phase}", count)
        told.add("  without an answer", unanswered, 0, timed=True)
        told.add("  median", median * 1000, 100, "ms", timed=True)
        told.add("  worst", worst * 1000, 1000, "ms", timed=True)
    told.add("longest time without a heartbeat", service.silence, 5, "s", timed=True)
    told.problems = _problems(campaign)
    return told


def _problems(campaign: Campaign) -> list[str]:
    """In words: what was lost and wrong, and where to look when somebody had to wait."""
    kinds = ("lost", "wrong", "left", "internal", "deaths")
    found = [f"{kind}: {problem}" for kind in kinds for problem in getattr(campaign.tally, kind)]
    silent = Counter(campaign.service.silent_in)
    found += [f"no heartbeat: seen {count} times in {place}" for place, count in silent.items()]
    for sample in beside(campaign.samples, campaign.faults.excused):
        phase = next((name for name, (begun, ended) in campaign.phases.items() if begun <= sample.began < ended), "")
        seconds = sample.ended - sample.began
        if phase and (not sample.answered or seconds > _SLOW):
            since = sample.began - campaign.phases[phase][0]
            faults = campaign.faults.just_before(sample.began, sample.ended)
            found.append(
                f"Hello, {phase}, at {since:.2f} s: {sample.why or 'answered'} after {seconds:.3f} s; {faults}"
            )
    return found


def main() -> int:
    """Runs the phases one after the other."""
    chosen = arguments()
    if os.geteuid() != 0:
        print("torture: needs root", file=sys.stderr)
        return 2
    if not inside.is_inside():
        print(f"torture: --seed {chosen.seed}", file=sys.stderr)
        sys.argv += ["--seed", str(chosen.seed)]
        return inside.run_inside()
    inside.recycle_pids()
    seconds = chosen.minutes * 60
    with Campaign(chosen.seed, chosen.hostile, chosen.spare, progress) as campaign:
        campaign.strike(seconds * 0.7, chosen.least, chosen.faults)
        if chosen.messages:
            campaign.pelt(chosen.messages)
        if chosen.hostile:
            campaign.attack(seconds * 0.3, ends=max(2, int(seconds / 30)))
        campaign.conclude()
        if chosen.log:
            chosen.log.write_text(campaign.node.logged(), encoding="utf-8")
        told = report(campaign, chosen.seed, chosen.least, chosen.messages)
    progress("")
    print(json.dumps(told.as_json(), indent=1) if chosen.json else told.text())
    return 0 if told.held else 1


if __name__ == "__main__":
    sys.exit(main())
