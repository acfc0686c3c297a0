from __future__ import annotations

import gc
import weakref
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.failures import NoThreadError
from kgw.backend.embedded.helpers import Helpers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    """Return two threads that have not begun."""
    helpers = Helpers(2, "kgw-test")
    yield helpers
    helpers.shutdown()


def _refuse(_: Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_what_no_thread_was_found_for_is_never_run(
    helpers: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor would keep it, and do it beside the next: a full journal file made free twice."""
    done: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", _refuse)
        with pytest.raises(NoThreadError):
            helpers.submit(lambda: done.append("refused"))
    helpers.submit(lambda: done.append("later")).result()
    helpers.submit(lambda: done.append("last")).result()
    assert ["later", "last"] == done


def test_what_was_refused_is_not_kept(helpers: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no thread for hours, each attempt would cost 4 KB."""
    monkeypatch.setattr(Thread, "start", _refuse)
    works = [Event() for _ in range(3)]
    left = [weakref.ref(work) for work in works]
    while works:
        with pytest.raises(NoThreadError):
            helpers.submit(works.pop().set)
    gc.collect()
    assert [None] * 3 == [work() for work in left]


def test_one_thread_does_what_no_second_could_be_had_for(
    helpers: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads go on, one after the other."""
    may_end = Event()
    first = helpers.submit(may_end.wait)
    monkeypatch.setattr(Thread, "start", _refuse)
    second = helpers.submit(lambda: "done")
    may_end.set()
    assert (True, "done") == (first.result(), second.result())


def test_errors_are_raised_where_they_are_waited_for(helpers: Helpers) -> None:
    """Of whatever kind."""
    with pytest.raises(ZeroDivisionError):
        helpers.submit(lambda: 1 // 0).result()


def test_after_the_end_nothing_is_taken(helpers: Helpers) -> None:
    """Who comes too late is told."""
    helpers.submit(int).result()
    helpers.shutdown()
    with pytest.raises(NoThreadError):
        helpers.submit(int)
