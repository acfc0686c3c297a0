"""`broker.faults`: makes faults for tests, and counts the requests that they affected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.testing import arguments
from kgw.testing.fault_rules import Delay, Drop, Fault, FaultList, Refuse, Target, parse_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.errors import ErrorCode

_LEADERS_APIS = ("Produce", "Fetch")


class Faults:
    """Makes faults. Each fault takes effect at once, for `times` requests or until it is removed.

    It is removed at the end of its `with` block, by `remove` or `clear`, or at the end of the test.
    APIs are given by Kafka's names, e.g. `Produce`. With a `topic`, one `partition` of it or a
    `client_id`, only matching requests are affected; if a request names other partitions too, it is
    handled for those. With `must_strike`, the test fails if the fault has affected no request.

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
        """Answer with an error, given by Kafka's name, instead of handling the request."""
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
        """Answer like a broker that is no longer the leader; once, unless `times` is given."""
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
        """Handle requests, but delay their responses.

        With `by_clock`, the delay is in the broker's time, which `clock.advance` moves. Later
        responses of the connection wait, too, as they must come in order.
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
        """Close the connection instead of responding; once, unless `times` is given.

        The request has been handled then; with `before`, it has not.
        """
        target = Target.of(api, topic, partition, client_id)
        when = "before" if before else "after"
        text = f"drop the connection {when} {target}"
        return self._add(target, Drop(before), text, times, must_strike)

    def refuse_connections(self, *, times: int | None = None, must_strike: bool = False) -> Fault:
        """Close new connections at once. Open connections stay."""
        return self._add(None, None, "refuse connections", times, must_strike)

    def struck(self) -> int:
        """Return how many requests the faults since the last `clear` have affected."""
        return self._faults.struck()

    def clear(self) -> None:
        """Remove all faults, without a check that they had an effect."""
        self._faults.clear()

    def check(self) -> None:
        """Raise AssertionError for a fault that must affect a request but never has."""
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
