"""What a judge can say is read out of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.campaigns.findings import findings_of, unplanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.campaigns.support import Report


def yielding(number: int, *, is_torn: bool) -> Iterator[str]:
    """A judge that yields: one text from two places, and one with one of two words."""
    kind = "TORN" if is_torn else "LOST"
    yield f"{kind}: {number} of them"
    kind = "BACK" if is_torn else "WRONG"
    yield f"{kind} by {number}"
    if number:
        yield f"{number} is left"
    yield f"{number} is left"


class Telling:
    """A judge with methods that tell in all other ways."""

    def fail(self, report: Report, number: int) -> str:
        """Say a text in each way, and pass one on."""
        report.fail("nothing")
        report.fail(f"{number}: {report}")
        report.failures.append(f"{number} (at all)")
        report.failures += [f"more: {one}" for one in range(number)]
        if number > 1:
            raise AssertionError(f"number {number}")
        return "over" if number else f"at {number}"


def test_every_text_is_read_with_its_places() -> None:
    """However it is told; what only passes on what another has found is none."""
    found = {(one.text, one.places) for one in findings_of(yielding)}
    assert {
        ("TORN: … of them", 1),
        ("LOST: … of them", 1),
        ("BACK by …", 1),
        ("WRONG by …", 1),
        ("… is left", 2),
    } == found
    texts = {one.text for one in findings_of(Telling)}
    assert {"nothing", "… (at all)", "more: …", "number …", "over", "at …"} == texts


def test_a_text_without_an_example_is_named() -> None:
    """Each place needs an example of its own, and what one place says is none of another."""
    first = ["BACK by 1", "WRONG by 1", "TORN: 1 of them"]
    examples = [*first, "x: LOST: 2 of them", "1 is left", "2 is left"]
    assert [] == unplanted([yielding], examples)
    assert ["LOST: … of them"] == unplanted([yielding], [*first, *examples[4:]])
    assert ["… is left"] == unplanted([yielding], examples[:5])
