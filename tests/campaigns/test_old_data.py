"""What is held against a gateway that opens an old directory is found, and nothing else is."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.protocol.messages.fetch import FetchResponse
from tests.campaigns.old_data import Fixture, Judge, fixtures, opened
from tests.campaigns.support import Report
from tests.findings import findings_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kgw.protocol.schema import Request, Response
    from tests.groups.wire import Ask

Manifest = dict[str, Any]


def partition(manifest: Manifest, topic: str = "codecs") -> dict[str, Any]:
    """Return what the first partition of a topic has to hold."""
    found: dict[str, Any] = manifest["topics"][topic]["partitions"][0]
    return found


def another_topic(manifest: Manifest) -> None:
    """Do not know one of the topics."""
    del manifest["topics"]["trimmed"]


def another_setting(manifest: Manifest) -> None:
    """A topic has another value."""
    manifest["topics"]["codecs"]["config"]["segment.bytes"] = "2048"


def another_start(manifest: Manifest) -> None:
    """A log begins elsewhere."""
    partition(manifest)["start"] += 1


def a_later_end(manifest: Manifest) -> None:
    """A log ends above its end."""
    partition(manifest)["next"] += 1


def an_earlier_end(manifest: Manifest) -> None:
    """A log ends below its end."""
    partition(manifest)["next"] -= 1


def an_earlier_relaxed_end(manifest: Manifest) -> None:
    """A relaxed log that was stopped in order ends below its end."""
    partition(manifest, "relaxed")["next"] -= 1


def one_more_record(manifest: Manifest) -> None:
    """A log has a record that is not there."""
    partition(manifest)["records"].append([99, "k9", "value"])


def one_more_key(manifest: Manifest) -> None:
    """A compacted log has a key that is not there."""
    partition(manifest, "compacted")["records"].append([999, "another", "value"])


def one_record_less(manifest: Manifest) -> None:
    """A log has a record that nobody has written."""
    del partition(manifest)["records"][7]


def another_value(manifest: Manifest) -> None:
    """A record has another value."""
    partition(manifest)["records"][7][2] += "?"


def another_key(manifest: Manifest) -> None:
    """A record has another key."""
    partition(manifest)["records"][7][1] = None


def another_commit(manifest: Manifest) -> None:
    """A group has committed something else."""
    manifest["groups"]["lone"]["codecs/0"] += 1


def another_group(manifest: Manifest) -> None:
    """A group has committed that nobody knows."""
    manifest["groups"]["another"] = {"codecs/0": 1}


def another_generation(manifest: Manifest) -> None:
    """A member is in another generation."""
    manifest["members"][0]["generation"] += 1


def another_member(manifest: Manifest) -> None:
    """A member has another id."""
    manifest["members"][1]["id"] += "?"


def another_offset(manifest: Manifest) -> None:
    """A batch that is sent again is elsewhere."""
    manifest["producer"]["batches"][0][1] += 1


def another_sequence(manifest: Manifest) -> None:
    """A batch is sent again that never was there."""
    manifest["producer"]["batches"][-1][0] += 10


ALTERED: dict[Callable[[Manifest], None], set[str]] = {
    another_topic: {"topics … for …"},
    another_setting: {"settings of …: … for …"},
    another_start: {"…-…: …..… for ….."},
    a_later_end: {"…-…: …..… for ….."},
    an_earlier_end: {"…-…: the next offset is …, not …"},
    an_earlier_relaxed_end: {"…-…: the next offset is …, not …"},
    one_more_record: {"LOST offset … of …-…"},
    one_more_key: {"LOST offset … of …-…"},
    one_record_less: {"PHANTOM at … of …-…: …"},
    another_value: {"WRONG at … of …-…: … for …", "PHANTOM at … of …-…: …"},
    another_key: {"WRONG at … of …-…: … for …", "PHANTOM at … of …-…: …"},
    another_commit: {"offsets of …: … for …"},
    another_group: {"offsets of …: … for …"},
    another_generation: {"member … is told …"},
    another_member: {"member … is told …"},
    another_offset: {"a retry of … gets … (…), not …"},
    another_sequence: {"a retry of … gets … (…), not …"},
}
"""What a directory has to hold instead, and what is said then."""
REFUSED = "…-… at …: …"
"""What is said of a fetch with an error; all that is not read is LOST, too."""


@pytest.fixture(scope="module")
def fixture() -> Fixture:
    """The newest fixture that was stopped in order and has a relaxed topic."""
    return next(
        one
        for one in reversed(fixtures())
        if one.was_stopped and {"relaxed", "compacted"} <= one.manifest["topics"].keys()
    )


async def said_of(
    fixture: Fixture, ask: Ask, alter: Callable[[Manifest], None], place: str = "opened"
) -> set[str]:
    """Return which texts are said when a fixture had to hold something else."""
    expected = copy(fixture)
    expected.manifest = deepcopy(fixture.manifest)
    alter(expected.manifest)
    report = Report("old data", 1)
    await Judge(report, expected, place, ask).judge()
    found = set()
    for failure in report.failures:
        said = failure.removeprefix(f"{fixture.name}: {place}: ")
        (text,) = [one.text for one in findings_of(Judge) if one.pattern.fullmatch(said)]
        found.add(text)
    return found


@pytest.mark.slow
async def test_what_an_old_directory_does_not_hold_is_found(
    fixture: Fixture, tmp_path: Path
) -> None:
    """Each thing alone, by its name; and nothing is said where everything is as it was."""

    async def refusing(request: Request, version: int) -> Response:
        response = await ask(request, version)
        if isinstance(response, FetchResponse):
            response.responses[0].partitions[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response

    async with opened(fixture, fixture.unpack(tmp_path)) as ask:
        assert set() == await said_of(fixture, ask, lambda _: None)
        assert ALTERED == {alter: await said_of(fixture, ask, alter) for alter in ALTERED}
        # A relaxed log that was not stopped in order goes on further up.
        assert set() == await said_of(fixture, ask, an_earlier_relaxed_end, "interrupted")
        assert {"…-…: the next offset is …, not …"} == await said_of(
            fixture, ask, an_earlier_end, "interrupted"
        )
        refused = await said_of(fixture, refusing, lambda _: None)
    assert {REFUSED, "LOST offset … of …-…"} == refused


def test_everything_that_is_said_of_old_data_is_planted() -> None:
    """No finding is in the source of which there is no example here."""
    planted = {text for said in ALTERED.values() for text in said}
    assert planted | {REFUSED} == {one.text for one in findings_of(Judge)}
