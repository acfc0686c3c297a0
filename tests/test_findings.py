"""What a checker can say is read out of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.findings import findings_of, pattern_of, unplanted

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


class Found(NamedTuple):
    """What a checker makes of what it finds."""

    path: str
    why: str


class WrongError(Exception):
    """What another checker raises."""


def making(path: str, number: int, error: Exception, problems: list[tuple[str, str]]) -> Found:
    """A checker that says what it gives to classes, and one thing to a list."""
    message = f"{path}: {number} is "
    message += "too much"
    if number > 1:
        message += f" by {number - 1}"
    if number > 0:
        raise WrongError(message)
    if number < 0:
        raise WrongError("one " + f"of {number}", path)
    if error.args:
        raise ValueError("no matter")
    problems.append((f"{path}/x", "is missing"))
    try:
        raise WrongError(str(error)) from error
    except WrongError:
        return Found("a path", why="odd" if number else f"even {number}")


def test_what_is_made_of_a_text_is_read() -> None:
    """By whom it is asked for; where a variable goes on, as a whole; no path beside it."""
    found = {one.text for one in findings_of(making, makers=["WrongError"])}
    assert {"…: … is too much", "…: … is too much by …", "one of …"} == found
    found = {one.text for one in findings_of(making, makers=["Found", "append"])}
    assert {"is missing", "odd", "even …"} == found


def test_words_of_a_text_are_no_example_of_it() -> None:
    """All of it is; and so it is between the words of whoever passes it on."""
    examples = ["a: 1 is too much", "one of 2"]
    makers = ["WrongError"]
    assert ["…: … is too much by …"] == unplanted([making], examples, makers=makers)
    examples += ["in a file: a: 3 is too much by 2; make it less"]
    assert [] == unplanted([making], examples, makers=makers)
    for part in ("one of", "of 2", "at one of 2", "none of 2"):
        words = [part, *examples[::2]]
        assert "one of …" in unplanted([making], words, makers=makers)


def test_a_pattern_has_anything_for_a_value() -> None:
    """And nothing but the text around it."""
    assert pattern_of("… (at …)").fullmatch("one\nof two (at 3)")
    assert not pattern_of("… (at …)").fullmatch("one (at 3) more")
