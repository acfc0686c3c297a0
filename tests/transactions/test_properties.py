"""What holds whatever is asked of a transactional id, in whichever order."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.coordinator.machine import Answer, Asked, Call, Persist, Returned, TimePassed
from kgw.errors import ErrorCode
from kgw.transactions.machine import (
    HIGHEST_EPOCH,
    LAST_EPOCH,
    CarryOut,
    Effect,
    Idle,
    Marked,
)
from kgw.transactions.requests import (
    AddRequest,
    EndRequest,
    InitRequest,
    ProducerIdAndEpoch,
    ProducerResult,
)
from kgw.transactions.rows import TransactionRow
from kgw.transactions.states import DECIDED, TransactionState
from tests.transactions.script import Script, place

OPEN = {TransactionState.ONGOING, *DECIDED}


class Clients:
    """Two processes that believe to be the producer, and know what they have been told."""

    def __init__(self, first_epoch: int) -> None:
        self.script = Script()
        self.ids = count(1)
        self.held: list[ProducerIdAndEpoch | None] = [None, None]
        self.given: set[ProducerIdAndEpoch] = set()
        """Whoever was ever told to be the producer."""
        self.step({"what": "init", "who": 0, "goes_on": False})
        row = self.script.row
        self.script.machine.row = row._replace(
            producer=ProducerIdAndEpoch(row.producer.id, first_epoch),
            last_producer_id=row.producer.id,
        )
        first = self.held[0] = ProducerIdAndEpoch(row.producer.id, first_epoch)
        self.given.add(first)

    def step(self, drawn: dict[str, object]) -> None:
        what, who = drawn["what"], int(str(drawn["who"]))
        script, producer = self.script, self.held[who]
        state = script.machine.state
        if what == "time":
            script.now_s += 25
            effects = script.effects(TimePassed())
        elif what == "marked":
            effects = script.effects(Marked())
        elif what == "restart":
            script.restart()
            return
        elif what == "idle":
            effects = script.effects(Idle(10_000.0))
        elif what == "init":
            expected = producer if drawn["goes_on"] else None
            effects = self.ask(who, InitRequest(60_000, expected))
        elif producer is None:
            return
        elif what == "add":
            effects = self.ask(who, AddRequest(producer, frozenset({place()})))
        elif what == "verify":
            effects = self.ask(who, AddRequest(producer, frozenset({place()}), verify_only=True))
        else:
            request = EndRequest(producer, bool(drawn["commit"]), bool(drawn["bumps"]))
            effects = self.ask(who, request)
        self.check(state, effects)

    def ask(self, who: int, request: InitRequest | AddRequest | EndRequest) -> list[Effect]:
        effects = self.script.effects(Asked(request, (who, request)))
        for call in effects:
            if isinstance(call, Call):
                returned = Returned(call.request, next(self.ids), ErrorCode.NONE)
                effects = self.script.effects(returned)
        assert not any(isinstance(one, Call) for one in effects)
        return effects

    def check(self, before: TransactionState, effects: list[Effect]) -> None:
        is_stored = False
        for effect in effects:
            if isinstance(effect, Persist):
                is_stored = True
                for row in effect.rows.values():
                    assert not isinstance(row, TransactionRow) or (
                        row.producer.epoch <= HIGHEST_EPOCH
                    )
            elif isinstance(effect, CarryOut):
                assert is_stored
                assert TransactionState.ONGOING is before
                assert effect.ending.producer.epoch <= HIGHEST_EPOCH
            elif isinstance(effect, Answer):
                self.answered(effect)
        after = self.script.machine.row
        if after is not None:
            assert (after.state in OPEN) == bool(after.places)

    def answered(self, answer: Answer) -> None:
        (who, request), result = answer.waiter, answer.result
        row = self.script.row
        if isinstance(result, ProducerResult):
            if result.error is ErrorCode.NONE and result.producer.id >= 0:
                assert result.producer.epoch <= LAST_EPOCH
                assert result.producer == row.successor
                if isinstance(request, InitRequest) and request.expected is None:
                    # A new producer shares its epoch with nobody.
                    assert result.producer not in self.given
                self.given.add(result.producer)
                self.held[who] = result.producer
            if isinstance(request, EndRequest) and result.error is ErrorCode.NONE:
                assert row.state is not TransactionState.ONGOING
        elif result is ErrorCode.NONE:
            assert isinstance(request, AddRequest)
            assert request.producer == row.successor
            assert TransactionState.ONGOING is row.state
            assert request.places <= row.places


steps = st.fixed_dictionaries(
    {
        "what": st.sampled_from(
            [*("init", "verify", "time", "restart", "idle"), *2 * ("add", "end", "marked")]
        ),
        "who": st.integers(0, 1),
        "goes_on": st.booleans(),
        "commit": st.booleans(),
        "bumps": st.booleans(),
    }
)


@settings(max_examples=300)
@given(st.sampled_from([0, LAST_EPOCH - 2, LAST_EPOCH]), st.lists(steps, max_size=40))
def test_whatever_is_asked(first_epoch: int, drawn: list[dict[str, object]]) -> None:
    """Epochs stay in bounds, new producers share theirs with nobody, ends follow from decisions."""
    clients = Clients(first_epoch)
    for one in drawn:
        clients.step(one)
