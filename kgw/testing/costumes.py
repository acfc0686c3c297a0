"""Makes a broker imitate a release of Kafka, by the API versions that it lists and serves."""

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
"""The first release that lists its versions in answer to an unknown version of ApiVersions
(KIP-511)."""
_TRANSACTION_FEATURE = RELEASES.index("4.0")
"""The first release with the features that kgw lists (KIP-890)."""
_PRODUCE_FROM_0 = RELEASES.index("4.0")
"""The first release that lists Produce from version 0 on, but serves it from version 3 on
(KAFKA-18659)."""


class Costume:
    """A release of Kafka to imitate: the API versions that both the release and kgw serve."""

    def __init__(self, release: str) -> None:
        """`release` has two numbers, as in `2.8`; before 1.0 three, as in `0.10.2`.

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
        """Return whether the release serves an API version; otherwise it closes the connection."""
        first, last = self._served.get(api_key, (0, -1))
        return first <= version <= last

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the first and last version of each API that ApiVersions lists."""
        listed = dict(self._served)
        if self._number >= _PRODUCE_FROM_0:
            listed[ApiKey.PRODUCE] = (0, listed[ApiKey.PRODUCE][1])
        return listed

    def dress(self, answer: Any) -> Any:
        """Change an ApiVersions response to list the APIs and versions of the release."""
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
        """Return the response, in version 0, to an unknown version of ApiVersions."""
        first, last = self._served[ApiKey.API_VERSIONS]
        known = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=first, max_version=last)]
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=known if self._number >= _TELLS_ITS_VERSIONS else [],
        )


def served(release: str) -> Mapping[int, tuple[int, int]]:
    """Return for each API the versions that both the release and kgw serve."""
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
