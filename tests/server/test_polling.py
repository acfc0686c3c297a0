"""When the loop stays awake for a client, and when it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.server.polling import ENOUGH, MISS, MOST, PROMPT_S, SMALL_BYTES, Polling
from kgw.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 0.0001
CLIENT = "a connection"
TURN_S = 0.00005


class _Loop:
    """Turns of a loop that has nothing else to do."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self.clock = ManualClock()
        self.due: list[Callable[[], None]] = []
        self.polling = Polling(self.due.append, self.clock, wait_s)

    def turn(self) -> None:
        due, self.due[:] = list(self.due), []
        for callback in due:
            callback()

    def ask(self, *, after_s: float = TURN_S, connection: str = CLIENT, size: int = 50) -> None:
        """Let a client ask, and answer it at once."""
        self.clock.advance(after_s)
        self.polling.note_read(200)
        self.polling.note_answer(connection, size)
        self.turn()

    def is_awake(self) -> bool:
        return bool(self.due)


def _prompt(wait_s: float = WAIT_S) -> _Loop:
    loop = _Loop(wait_s)
    for _ in range(ENOUGH + 2):
        loop.ask()
    return loop


def test_the_loop_stays_awake_for_a_client_that_asks_promptly() -> None:
    """After some requests, and for each of those that follow."""
    loop = _Loop()
    for _ in range(ENOUGH):
        loop.ask()
        assert not loop.is_awake()
    for _ in range(3):
        loop.ask()
        loop.ask()
        assert loop.is_awake()


def test_it_goes_to_sleep_when_nothing_comes() -> None:
    """After the configured time, whatever was before."""
    loop = _prompt()
    loop.clock.advance(WAIT_S / 2)
    loop.turn()
    assert loop.is_awake()
    loop.clock.advance(WAIT_S)
    loop.turn()
    assert not loop.is_awake()


def test_it_sleeps_while_a_request_is_worked_on() -> None:
    """Whoever works on it, a disk or a thread, has the processor; then the client is waited for."""
    loop = _prompt()
    loop.polling.note_read(200)
    loop.turn()
    assert not loop.is_awake()
    loop.polling.note_answer(CLIENT, 50)
    assert loop.is_awake()


def test_a_client_that_lets_it_wait_in_vain_is_waited_for_seldom() -> None:
    """One that is farther away than the loop waits costs it an eighth of that time at most."""
    loop = _prompt()
    waits = 0
    requests = 800
    for _ in range(requests):
        loop.ask(after_s=PROMPT_S / 2)
        waits += loop.is_awake()
        loop.clock.advance(2 * WAIT_S - PROMPT_S / 2 + WAIT_S)
        loop.turn()
        assert not loop.is_awake()
    assert 0 < waits <= (requests + MOST) // MISS


def test_clients_that_take_their_time_are_not_waited_for() -> None:
    """A thousand requests a second leave the processor to others."""
    loop = _prompt()
    for _ in range(MOST):
        loop.ask(after_s=0.001)
    assert not loop.is_awake()
    loop.ask()
    assert not loop.is_awake()


def test_only_one_client_at_a_time_is_waited_for() -> None:
    """Where there are several, they find the loop awake as it is."""
    loop = _prompt()
    loop.ask(connection="another")
    loop.ask()
    loop.turn()
    assert not loop.is_awake()


def test_clients_that_move_data_are_not_waited_for() -> None:
    """They need the processor between two requests."""
    loop = _prompt()
    loop.ask(size=SMALL_BYTES + 1)
    loop.turn()
    assert not loop.is_awake()
    loop = _prompt()
    loop.polling.note_read(SMALL_BYTES + 1)
    loop.polling.note_answer(CLIENT, 50)
    loop.turn()
    assert not loop.is_awake()


def test_a_closed_connection_is_not_waited_for() -> None:
    """Nor kept."""
    loop = _prompt()
    assert loop.is_awake()
    loop.polling.forget("another")
    loop.turn()
    assert loop.is_awake()
    loop.polling.forget(CLIENT)
    loop.turn()
    assert not loop.is_awake()
    assert loop.polling._connection is None


def test_nobody_is_waited_for_where_it_is_off() -> None:
    """With a time of 0, as on a single core."""
    assert not _prompt(wait_s=0.0).is_awake()
