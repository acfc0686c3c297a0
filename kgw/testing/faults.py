"""`broker.faults`: makes faults for tests, and counts how often they struck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.testing import arguments
from kgw.testing.fault_rules import Delay, Drop, Fault, FaultList, Refuse, Target, parse_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.errors import ErrorCode

_LEADERS_APIS = ("Produce", "Fetch")


class Faults:
    """Makes faults. Each strikes from the call on, `times` times, or until it is removed.

    It is removed by the end of its `with` block, by `remove`, `clear`, or the end of the test. APIs
    have Kafka's names: `Produce`, or several of them. With a `topic`, a `partition` of it or a
    `client_id`, only matching requests meet the fault; a request that names other partitions as
    well is carried out for those. With `must_strike` the test fails if the fault has never struck.

    Every method raises ValueError for invalid arguments.
    """

    def __init__(self, faults: FaultList) -> None:
        self._faults = faults

    def refuse(
        self,
        api: str | Iterable[str],
        error: str | ErrorCode,
        *,
        times: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        must_strike: bool = False,
    ) -> Fault:
        """Answer with an error, by Kafka's name, instead of carrying the request out."""
        target = Target.of(api, topic, partition, client_id)
        code = parse_error(error)
        return self._add(
            target, Refuse(code), f"refuse {target} with {code.name}", times, must_strike
        )

    def not_leader(
        self,
        *,
        times: int | None = 1,
        api: str | Iterable[str] = _LEADERS_APIS,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        must_strike: bool = False,
    ) -> Fault:
        """Answer like a broker that no longer leads; once, unless `times` says otherwise."""
        return self.refuse(
            api,
            "NOT_LEADER_OR_FOLLOWER",
            times=times,
            topic=topic,
            partition=partition,
            client_id=client_id,
            must_strike=must_strike,
        )

    def delay(
        self,
        api: str | Iterable[str],
        seconds: float,
        *,
        by_clock: bool = False,
        times: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        must_strike: bool = False,
    ) -> Fault:
        """Carry requests out and delay their answers.

        With `by_clock` the delay is in the broker's time, which `clock.advance` moves. Later
        answers of the same connection wait as well: they come in order.
        """
        seconds = arguments.seconds("seconds", seconds)
        target = Target.of(api, topic, partition, client_id)
        text = f"delay {target} by {seconds:g} s"
        return self._add(target, Delay(seconds, by_clock), text, times, must_strike)

    def drop(
        self,
        api: str | Iterable[str],
        *,
        before: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        must_strike: bool = False,
    ) -> Fault:
        """Close the connection instead of answering; once, unless `times` says otherwise.

        The request has been carried out by then; with `before` it has not.
        """
        target = Target.of(api, topic, partition, client_id)
        when = "before" if before else "after"
        text = f"drop the connection {when} {target}"
        return self._add(target, Drop(before), text, times, must_strike)

    def refuse_connections(self, *, times: int | None = None, must_strike: bool = False) -> Fault:
        """Close connections as soon as they are made. Open connections stay."""
        return self._add(None, None, "refuse connections", times, must_strike)

    def struck(self) -> int:
        """Return how often the faults requested since the last `clear` have struck."""
        return self._faults.struck()

    def clear(self) -> None:
        """Remove every fault, and do not check that it has struck."""
        self._faults.clear()

    def check(self) -> None:
        """Raise AssertionError for a fault that must strike and never has."""
        self._faults.check()

    def _add(
        self,
        target: Target | None,
        effect: Refuse | Delay | Drop | None,
        text: str,
        times: int | None,
        must_strike: bool,
    ) -> Fault:
        fault = Fault(self._faults, target, effect, times=times, must_strike=must_strike, text=text)
        return self._faults.add(fault)
