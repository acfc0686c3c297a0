"""Limits how often the passwords of users can be tried from one network. Pure.

A network is an IPv4 address, or the /64 of an IPv6 address, which one customer of a provider has.
Many clients may share one, behind address translation. So failed logins are counted twice:

| Count | Limit in a minute | Beyond the limit |
| --- | --- | --- |
| of one name in a network | a sixth of the other one, at least 1 | this name is refused there |
| of a network | `kgw.failed.logins.per.minute` | other names are refused there |

- One client with a wrong password, however often it tries, is refused by the first count. It uses a
  sixth of the second one, and no other client of its network is refused.
- A client that tries many names is refused by the second count. Names that have logged in from the
  network before are still checked, each with its own first count.
- A login that a count refuses is not added to this count, so both allow logins again, one after the
  other, while a client goes on without a pause.
- Only clients that log in are concerned: open connections stay, and may log in again (KIP-368).

Made-up names do not reset the count of another name. When the table of names is full, a new name
takes the place of the name with the smallest count, and begins with that count. A count is removed
before its time only if 10,000 other names have larger ones, and the name gets its place back with
at least as large a count.

A client cannot learn which names have logged in from its network. While the network is beyond its
limit, each failed login is answered alike and adds to the count of its name alike, whether the
password was checked or not.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from ipaddress import IPv6Address, ip_address
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

MAX_NETWORKS: Final = 10_000
MAX_NAMES: Final = 10_000
NAME_SHARE: Final = 6

_WINDOW_S: Final = 60.0
_LONGEST_REFUSAL_S: Final = 120.0
"""The longest time for which one name is refused: many logins may be checked at the same time."""
_LONGEST_NAME: Final = 201
"""More characters than the name of a user can have."""
_ROUNDING_S: Final = 1e-6
_NETWORK_BITS: Final = 64

_Key = TypeVar("_Key")


def network_of(host: str) -> str:
    """Return the network of a client's address: the address itself, or its /64."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _NETWORK_BITS << _NETWORK_BITS)}/{_NETWORK_BITS}"


class Attempt(NamedTuple):
    """A login whose password may be checked."""

    network: str
    name: str
    is_exempt: bool
    """Whether its network is beyond the limit, and the name has logged in from there before."""


class _Counts(Generic[_Key]):
    """Failed logins by key, each as the time at which all of them are forgotten.

    A failure moves this time by the time in which one failure is allowed, so that the count needs
    one number. A new key in a full table replaces the key with the smallest count and begins with
    that count, as in the algorithm "space saving" (Metwally, Agrawal, El Abbadi 2005).
    """

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._forgotten_s: dict[_Key, float] = {}
        self._smallest: list[tuple[float, int, _Key]] = []
        """A heap with one entry for each key: a time, which is the present one or an earlier one,
        and a number that grows, so that of equal counts the oldest is the smallest."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._forgotten_s)

    def is_spent(self, key: _Key, now_s: float, per_minute: int) -> bool:
        """Return whether one more failure would be too many."""
        forgotten_s = self._forgotten_s.get(key, now_s)
        return forgotten_s - now_s + _WINDOW_S / per_minute > _WINDOW_S + _ROUNDING_S

    def count(self, key: _Key, now_s: float, per_minute: int, longest_s: float) -> None:
        """Count a failure. All failures of the key are forgotten after `longest_s`, or before."""
        before_s = self._forgotten_s.get(key)
        is_new = before_s is None
        if before_s is None:
            before_s = self._remove_smallest() if len(self) >= self._max_keys else now_s
        forgotten_s = min(max(before_s, now_s) + _WINDOW_S / per_minute, now_s + longest_s)
        self._forgotten_s[key] = forgotten_s
        if is_new:
            heappush(self._smallest, self._entry(forgotten_s, key))

    def _remove_smallest(self) -> float:
        """Remove the key with the smallest count; return the time at which it was forgotten."""
        while True:
            noted_s, _, key = self._smallest[0]
            forgotten_s = self._forgotten_s[key]
            if noted_s == forgotten_s:
                heappop(self._smallest)
                return self._forgotten_s.pop(key)
            heapreplace(self._smallest, self._entry(forgotten_s, key))

    def _entry(self, forgotten_s: float, key: _Key) -> tuple[float, int, _Key]:
        self._number += 1
        return forgotten_s, self._number, key


class FailedLogins:
    """The failed logins of the last minute. `now_s` is monotonic time.

    `per_minute` is `kgw.failed.logins.per.minute`; with 0 nothing is counted or refused.
    """

    def __init__(self, *, max_networks: int = MAX_NETWORKS, max_names: int = MAX_NAMES) -> None:
        """Keep at most `max_networks` networks and `max_names` names in memory."""
        self._of_networks: _Counts[str] = _Counts(max_networks)
        self._of_names: _Counts[tuple[str, str]] = _Counts(max_names)
        self._max_known = max_names
        self._known: dict[tuple[str, str], None] = {}
        """Names that have logged in from a network; the last one to do so is at the end."""

    def begin(self, network: str, name: str, now_s: float, per_minute: int) -> Attempt | None:
        """Return the attempt of a client that claims a name; None if it must be refused.

        `fail` or `succeed` must follow the check of the password.
        """
        name = name[:_LONGEST_NAME]
        if not per_minute:
            return Attempt(network, name, is_exempt=False)
        if self._of_names.is_spent((network, name), now_s, _per_name(per_minute)):
            return None
        is_limited = self.is_limited(network, now_s, per_minute)
        if is_limited and (network, name) not in self._known:
            self._count_name(network, name, now_s, per_minute)
            return None
        return Attempt(network, name, is_limited)

    def fail(self, attempt: Attempt, now_s: float, per_minute: int) -> None:
        """Count an attempt whose password was wrong."""
        if not per_minute:
            return
        self._count_name(attempt.network, attempt.name, now_s, per_minute)
        if not attempt.is_exempt:
            # Without an upper bound: many passwords may be checked at the same time, all of them
            # begun below the limit, and each of them must be paid for by time.
            self._of_networks.count(attempt.network, now_s, per_minute, inf)

    def succeed(self, attempt: Attempt) -> None:
        """Remember that a name has logged in from a network."""
        key = attempt.network, attempt.name
        self._known.pop(key, None)
        if len(self._known) >= self._max_known:
            del self._known[next(iter(self._known))]
        self._known[key] = None

    def is_limited(self, network: str, now_s: float, per_minute: int) -> bool:
        """Return whether a network has too many failed logins."""
        return bool(per_minute) and self._of_networks.is_spent(network, now_s, per_minute)

    def _count_name(self, network: str, name: str, now_s: float, per_minute: int) -> None:
        self._of_names.count((network, name), now_s, _per_name(per_minute), _LONGEST_REFUSAL_S)

    @property
    def size(self) -> int:
        """The number of entries in memory."""
        return len(self._of_networks) + len(self._of_names) + len(self._known)


def _per_name(per_minute: int) -> int:
    return max(1, per_minute // NAME_SHARE)
