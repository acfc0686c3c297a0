"""The faults that tests request, and the requests that each fault affects."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Self

from kgw.errors import ErrorCode
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.testing import arguments
from kgw.testing.topic_fields import TOPIC_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def api_name(api_key: ApiKey) -> str:
    """Return Kafka's name of an API, e.g. `InitProducerId`."""
    return api_key.name.title().replace("_", "")


_APIS = {api_name(ApiKey(key)): ApiKey(key) for key in HANDLERS}


def parse_apis(names: str | Iterable[str]) -> frozenset[ApiKey]:
    """Return API keys for Kafka's names of APIs.

    Raises ValueError for an API that kgw does not serve.
    """
    wanted = arguments.texts("api", names)
    unknown = [name for name in wanted if name not in _APIS]
    if unknown or not wanted:
        raise ValueError(
            f"no API is called {', '.join(unknown) or 'nothing'}; those that kgw serves are: "
            f"{', '.join(_APIS)}"
        )
    return frozenset(_APIS[name] for name in wanted)


def parse_error(error: str | ErrorCode) -> ErrorCode:
    """Return the error code with one of Kafka's names. Raises ValueError."""
    name = error.name if isinstance(error, ErrorCode) else error
    code = ErrorCode.__members__.get(arguments.text("error", name))
    if code is None or code is ErrorCode.NONE:
        raise ValueError(f"Kafka has no error {name!r}; NOT_LEADER_OR_FOLLOWER is one")
    return code


class Target(NamedTuple):
    """The requests that a fault affects; None in a field means any."""

    apis: frozenset[ApiKey]
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None

    @classmethod
    def of(
        cls,
        api: str | Iterable[str],
        topic: str | None,
        partition: int | None,
        client_id: str | None,
    ) -> Self:
        """Make a target from a test's arguments. Raises ValueError if no request could match it."""
        apis = parse_apis(api)
        for argument, given in (("topic", topic), ("client_id", client_id)):
            if given is not None:
                arguments.text(argument, given)
        if partition is not None:
            arguments.whole_number("partition", partition)
        if partition is not None and topic is None:
            raise ValueError(f"partition {partition} of which topic?")
        if topic is not None:
            lacking = [one for one in apis if one not in TOPIC_FIELDS]
            if lacking:
                raise ValueError(
                    f"{', '.join(sorted(map(api_name, lacking)))}: no fault can be for one topic; "
                    f"it can for {', '.join(map(api_name, TOPIC_FIELDS))}"
                )
        if partition is not None:
            lacking = [one for one in apis if not TOPIC_FIELDS[one].partitions]
            if lacking:
                raise ValueError(
                    f"{', '.join(sorted(map(api_name, lacking)))} is about whole topics, "
                    "not about partitions"
                )
        return cls(apis, topic, partition, client_id)

    def takes_place(self, topic: str, partition: int | None) -> bool:
        """Return whether the target includes a topic, or one partition of it."""
        return self.topic in {None, topic} and (
            self.partition is None or partition is None or self.partition == partition
        )

    def __str__(self) -> str:
        place = "" if self.topic is None else f" of {self.topic}"
        if self.partition is not None:
            place += f"-{self.partition}"
        client = "" if self.client_id is None else f" from {self.client_id}"
        return "/".join(sorted(map(api_name, self.apis))) + place + client


class Refuse(NamedTuple):
    """The effect of a fault: answer with an error code instead of handling the request."""

    code: ErrorCode


class Delay(NamedTuple):
    """The effect of a fault: handle the request, but delay the response."""

    seconds: float
    by_clock: bool


class Drop(NamedTuple):
    """The effect of a fault: close the connection before the request is handled, or after it."""

    before: bool


class Fault:
    """A fault that affects matching requests, up to a number of times or until it is removed.

    As a context manager, it is removed at the end of the block. `count` is the number of requests
    that it has affected.
    """

    def __init__(
        self,
        faults: FaultList,
        target: Target | None,
        effect: Refuse | Delay | Drop | None,
        *,
        times: int | None,
        must_strike: bool,
        text: str,
    ) -> None:
        if times is not None and (arguments.whole_number("times", times) < 1):
            raise ValueError(f"a fault strikes once or more often, not {times} times")
        self.target = target
        self.effect = effect
        self.times = times
        self.must_strike = must_strike
        self.count = 0
        self._faults = faults
        self._text = text

    def __repr__(self) -> str:
        return f"<Fault {self._text}, struck {self.count} times>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.remove()
        if error is None:
            self.check()
        self.must_strike = False

    @property
    def is_spent(self) -> bool:
        """Whether the fault has affected as many requests as it should."""
        return self.times is not None and self.count >= self.times

    def remove(self) -> None:
        """Remove the fault: it affects no more requests."""
        self._faults.remove(self)

    def check(self) -> None:
        """Raise AssertionError, once, if the fault must affect a request but never has."""
        if self.must_strike and not self.count:
            self.must_strike = False
            raise AssertionError(f"the fault never struck: {self._text}")

    def strike(self) -> None:
        """Count an affected request. Called only in the broker's event loop."""
        self.count += 1
        if self.is_spent:
            self.remove()


class FaultList:
    """The current faults, in the order in which they were requested.

    Any thread may change the list, so `active` is an immutable tuple.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.active: tuple[Fault, ...] = ()
        self._asked: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Add a fault, which takes effect at once."""
        with self._lock:
            self.active += (fault,)
            self._asked.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault."""
        with self._lock:
            self.active = tuple(one for one in self.active if one is not fault)

    def clear(self) -> None:
        """Remove all faults, and stop counting those that were requested."""
        with self._lock:
            self.active = ()
            self._asked.clear()

    def struck(self) -> int:
        """Return how many requests all requested faults have affected."""
        return sum(fault.count for fault in self._asked)

    def check(self) -> None:
        """Raise AssertionError for the first fault that must affect a request but never has."""
        for fault in self._asked:
            fault.check()

    def matching(
        self, api_key: ApiKey, client_id: str | None, is_about: Callable[[Target], bool]
    ) -> list[Fault]:
        """Return the faults that affect a request; `is_about` checks the topics."""
        return [
            fault
            for fault in self.active
            if (target := fault.target) is not None
            and api_key in target.apis
            and target.client_id in {None, client_id}
            and (target.topic is None or is_about(target))
        ]
