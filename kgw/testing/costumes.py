"""Makes a broker look like an older, or newer, Kafka: which APIs it lists, in which versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kgw.testing.costume_table import RELEASES, SERVED_SINCE

if TYPE_CHECKING:
    from collections.abc import Mapping

_TELLS_ITS_VERSIONS = RELEASES.index("2.4")
"""The first release that answers an unknown version of ApiVersions with its versions (KIP-511)."""
_TRANSACTION_FEATURE = RELEASES.index("4.0")
"""The first release with features that kgw has (KIP-890)."""
_PRODUCE_FROM_0 = RELEASES.index("4.0")
"""The first release that lists Produce from version 0 on and serves it from 3 (KAFKA-18659)."""


class Costume:
    """The versions of a release of Kafka, as far as kgw serves them."""

    def __init__(self, release: str) -> None:
        """Take a release by its first two numbers, as `2.8`; by three before 1.0, as `0.10.2`.

        Raises ValueError for an unknown release.
        """
        if release not in RELEASES:
            raise ValueError(f"no costume for Kafka {release!r}; there are {', '.join(RELEASES)}")
        self.release = release
        self._number = RELEASES.index(release)
        self._served = served(release)

    def __repr__(self) -> str:
        return f"<Costume Kafka {self.release}>"

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether this Kafka serves a version of an API; else it closes the connection."""
        first, last = self._served.get(api_key, (0, -1))
        return first <= version <= last

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the first and last version of each API that ApiVersions lists."""
        listed = dict(self._served)
        if self._number >= _PRODUCE_FROM_0:
            listed[ApiKey.PRODUCE] = (0, listed[ApiKey.PRODUCE][1])
        return listed

    def dress(self, answer: Any) -> Any:
        """Make an answer to ApiVersions list the APIs and versions of this Kafka."""
        if answer.error_code:
            return answer
        answer.api_keys = [
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in self.ranges().items()
        ]
        if self._number < _TRANSACTION_FEATURE:
            answer.supported_features = []
            answer.finalized_features = []
            answer.finalized_features_epoch = -1
        return answer

    def unsupported_version(self) -> ApiVersionsResponse:
        """Return the answer, in version 0, to an unknown version of ApiVersions."""
        first, last = self._served[ApiKey.API_VERSIONS]
        known = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=first, max_version=last)]
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=known if self._number >= _TELLS_ITS_VERSIONS else [],
        )


def served(release: str) -> Mapping[int, tuple[int, int]]:
    """Return the versions of each API that both a release and kgw have."""
    number = RELEASES.index(release)
    found: dict[int, tuple[int, int]] = {}
    for key, rows in SERVED_SINCE.items():
        past = [row for row in rows if RELEASES.index(row[0]) <= number]
        if not past:
            continue
        _, first, last = past[-1]
        first = max(first, HANDLERS[key].min_version)
        last = min(last, HANDLERS[key].max_version)
        if first <= last:
            found[key] = (first, last)
    return found
