"""G1: random histories of one group with a clock that the model moves; its invariants always hold.

Run as `python -m tests.campaigns.group_model --full --seed N`. A history is repeated from its own
seed, which a finding names: `--full --seed` of that number runs it first. Every fourth history has
no crash and runs twice, with jumps of the wall clock and without: everybody is told the same (I9).
"""

from __future__ import annotations

import asyncio
import logging
import re
from random import Random
from typing import TYPE_CHECKING

from tests.campaigns.support import Report, main
from tests.groups.model import GroupModel
from tests.groups.planted import BUGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SEQUENCES, SHORT_SEQUENCES = 2_000, 240
STEPS = 50
TWIN_EVERY = 4
CONTROL_SEQUENCES = 400
"""A planted bug must be found within so many histories."""


def run(seed: int, full: bool) -> Report:
    """Run all histories, and then those of coordinators with a bug each."""
    report = Report("group_model", seed)
    # Hundreds of failures of the store are injected, and each is logged.
    logging.disable(logging.ERROR)
    try:
        sequences = SEQUENCES if full else SHORT_SEQUENCES
        asyncio.run(histories(report, range(seed, seed + sequences)))
        controls(report, seed)
    finally:
        logging.disable(logging.NOTSET)
    share = sequences / SEQUENCES
    report.require("histories", sequences)
    report.require("histories_run_twice", sequences // TWIN_EVERY)
    report.require("steps", sequences * STEPS)
    for what, minimum in MINIMA.items():
        report.require(what, int(minimum * share))
    return report


MINIMA = {
    "generations": 4_000,
    "crash": 1_000,
    "jump": 1_000,
    "zombie": 4_000,
    "commits": 4_000,
    "commits_in_transactions": 5_000,
    "transactions": 4_000,
    "transactions_committed": 2_500,
    "fail_in_a_transaction": 400,
    "break_store": 1_500,
    "hold_store": 1_500,
    "static_members_back": 100,
    "joined_again_to_revoke": 500,
    "generations_at_once_after_another": 800,
    "groups_left_empty": 120,
    "commits_expired": 100,
    "whole_groups_kept_alive": 100,
    "looks_at_the_other_group_while_the_store_is_held": 3_000,
}
"""What 2,000 histories do at the least."""


async def histories(report: Report, seeds: Iterable[int]) -> None:
    """Run a history of each seed, and count what they did."""
    for seed in seeds:
        failure = await one_history(report, seed)
        if failure is not None:
            report.fail(f"history {seed}: {failure}")
        report.count("histories")


async def one_history(report: Report, seed: int) -> str | None:
    """Run one history, some of them twice; return what was found."""
    if seed % TWIN_EVERY:
        return (await history(report, seed))[0]
    failure, told = await history(report, seed, crashes=False)
    if failure is not None:
        return failure
    report.count("histories_run_twice")
    failure, told_without = await history(None, seed, crashes=False, jumps=False)
    if failure is not None:
        return failure
    found = difference(told, told_without)
    return None if found is None else f"I9: a jump of the wall clock {found}"


def difference(told: Sequence[object], told_without: Sequence[object]) -> str | None:
    """Return what has become of a transcript, or None if it is the same."""
    for one, other in zip(told, told_without, strict=False):
        if one != other:
            return f"changes {other} into {one}"
    if len(told) < len(told_without):
        return f"ends it after {len(told)} of {len(told_without)} answers"
    if len(told) > len(told_without):
        return f"adds to its {len(told_without)} answers: there are {len(told)}"
    return None


async def history(
    report: Report | None, seed: int, *, crashes: bool = True, jumps: bool = True
) -> tuple[str | None, list[object]]:
    """Run one history once; return what was found, and all that anybody was told."""
    model = GroupModel(Random(seed), jumps=jumps, crashes=crashes)
    try:
        await model.run(STEPS)
    except Exception as error:  # noqa: BLE001 - a coordinator with a bug may raise whatever it likes
        return f"{type(error).__name__}: {error}".partition("\n")[0], model.transcript
    finally:
        if report is not None:
            for what, number in model.counts.items():
                report.count(what.replace(" ", "_"), number)
    return None, model.transcript


def controls(report: Report, seed: int) -> None:
    """Plant each bug; the rule that it breaks must say so, within a few histories."""
    for name, bug in BUGS.items():
        with bug.plant():
            found = asyncio.run(first_finding(bug.found_by, seed))
        report.count("bugs_planted")
        if found is None:
            report.fail(f"control: nothing says {bug.found_by!r} of {name}")
        else:
            report.count("bugs_found")
            report.count("histories_to_find_them", found)


async def first_finding(what: str, seed: int) -> int | None:
    """Return in which history something is found by what it must be found by."""
    for number in range(CONTROL_SEQUENCES):
        failure = await one_history(Report("control", seed), seed + number)
        if failure is not None and says(failure, what):
            return number + 1
    return None


def says(failure: str, what: str) -> bool:
    """Whether a failure has these words: I10 is not I1."""
    return re.search(rf"\b{re.escape(what)}\b", failure) is not None


if __name__ == "__main__":
    main(run)
