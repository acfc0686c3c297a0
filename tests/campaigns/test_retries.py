"""What the clients of D10 may know of a crash."""

from __future__ import annotations

from random import Random

from tests.campaigns.retries import Failpoint, KeptState
from tests.campaigns.retry_clients import Batch, Clients
from tests.simulated_fs import SimulatedFs


def test_nobody_goes_on_while_the_picture_is_taken() -> None:
    """A crash has come when what the clients knew is copied, not when the disk has been, too."""
    seen: list[bool] = []

    class WatchedFs(SimulatedFs):
        def clone(self) -> SimulatedFs:
            seen.append(crash.has_come)
            return super().clone()

    random = Random(1)
    crash = Failpoint(random, Clients(random), WatchedFs(), KeptState(), is_kill=True)
    crash.come()
    assert [True] == seen


def test_a_batch_that_nobody_has_answered_is_a_finding() -> None:
    """The end of a life names the batch whose answer never came."""
    clients = Clients(Random(1))
    batch = Batch(7, 0, 3, (b"1.",))
    clients.sent[7, 0] = [batch]
    assert ["UNANSWERED: producer 7 partition 0 sequence 3"] == list(clients.check({0: []}))
