from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kgw.cli.shared.errors import CommandError
from kgw.cli.top.terminal import Poller
from tests.cli.test_top_figures import sample_at

if TYPE_CHECKING:
    from kgw.cli.top.asking import Asker
    from kgw.cli.top.figures import Sample


class FakeAsker:
    """Answers one thing after the other."""

    def __init__(self, *answers: Sample | Exception) -> None:
        self._answers = [*answers]

    def sample(self) -> Sample:
        """Return the next answer, or raise it."""
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def poller_of(*answers: Sample | Exception) -> Poller:
    """A poller that asks when it is told to."""
    return Poller(cast("Asker", FakeAsker(*answers)), sample_at(0.0), 2.0)


def test_a_server_that_goes_and_comes_back() -> None:
    """Since when, and why, is told until there is an answer; the figures stay meanwhile."""
    poller = poller_of(CommandError("refused"), CommandError("still refused"), sample_at(6.0))
    poller.ask()
    lost = poller.lost
    assert (True, True) == (lost.startswith("no answer since "), lost.endswith(": refused"))
    poller.ask()
    assert lost.replace("refused", "still refused") == poller.lost
    assert 1 == len(poller.figures.topics)
    poller.ask()
    assert ("", 6.0, 3) == (poller.lost, poller.figures.interval_s, poller.version)


def test_a_bug_is_shown() -> None:
    """An error that is nobody else's does not end the screen silently."""
    poller = poller_of(KeyError("metrics"))
    poller.ask()
    assert "a bug of kgw top: KeyError('metrics')" == poller.lost
