"""Who has gone on since a fault was healed, in the campaign of pipelines."""

from __future__ import annotations

import pytest

from tests.campaigns.exactly_once import State
from tests.findings import unplanted

BEFORE = State({"group": {0: 5, 1: 7}}, {"topic": {0: 3}}, {"topic": {0: 4}})
GONE_ON = State({"group": {0: 6, 1: 8}}, {"topic": {0: 4}}, {"topic": {0: 4}})

STUCK: dict[str, tuple[State, list[str]]] = {
    "nobody": (GONE_ON, []),
    "a partition of a group": (
        GONE_ON._replace(committed={"group": {0: 6, 1: 7}}),
        ["group group-1 stays at 7"],
    ),
    "a group that went back": (
        GONE_ON._replace(committed={"group": {0: 4, 1: 8}}),
        ["group group-0 stays at 5"],
    ),
    "readers of committed records": (
        GONE_ON._replace(stable={"topic": {0: 3}}),
        ["last stable offset topic-0 stays at 3"],
    ),
}


@pytest.mark.parametrize("who", STUCK)
def test_who_stays_where_he_was_is_told(who: str) -> None:
    """Every partition of every group, and every last stable offset, has to move."""
    now, said = STUCK[who]
    assert said == now.behind(BEFORE)


def test_everything_that_may_stay_is_planted() -> None:
    """No text is in the source of which there is no example here."""
    assert [] == unplanted([State], [one for _, said in STUCK.values() for one in said])
