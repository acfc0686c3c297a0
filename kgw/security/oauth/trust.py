"""The keys and rules by which a server accepts tokens. The keys are fetched again in the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.logs import EventLogger
from kgw.metrics import count
from kgw.security.oauth.errors import KeySetError
from kgw.security.oauth.key_set import KeySet, parse_key_set

if TYPE_CHECKING:
    from kgw.clock import Clock
    from kgw.metrics import Metrics
    from kgw.security.oauth.claims import ClaimRules
    from kgw.security.oauth.key_set import VerificationKey
    from kgw.security.oauth.refresh_rule import RefreshRule
    from kgw.security.oauth.signed_tokens import TokenHeader
    from kgw.security.oauth.sources import KeySource

_log = EventLogger(__name__)


class TokenTrust:
    """Whom a server trusts to issue tokens. Call `load` before anything else.

    When a fetch fails, the keys of the last successful one stay in use: an authorization server
    that is down must not end the logins of clients that have a token.
    """

    def __init__(
        self, source: KeySource, rules: ClaimRules, refresh: RefreshRule, clock: Clock
    ) -> None:
        self.rules = rules
        self._source = source
        self._refresh = refresh
        self._clock = clock
        self._keys = KeySet()
        self._skipped: tuple[str, ...] = ()
        self._failure: str | None = None
        """Why the last fetch has failed."""
        self._fetching: asyncio.Task[None] | None = None
        self._regularly: asyncio.Task[None] | None = None
        self._may_fetch = asyncio.Event()
        self._metrics: Metrics | None = None

    async def load(self) -> None:
        """Fetch the key set for the first time. Raises KeySetError.

        There is one attempt, as in Kafka: a server without keys refuses every login.
        """
        if not await self._fetch():
            raise KeySetError(f"{self._source}: {self._failure}")

    def start(self, metrics: Metrics) -> None:
        """Fetch the key set again and again from now on."""
        self._metrics = metrics
        self._regularly = asyncio.ensure_future(self._fetch_regularly())

    async def aclose(self) -> None:
        """Fetch no more."""
        tasks = [one for one in (self._regularly, self._fetching) if one is not None]
        self._regularly = self._fetching = None
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def fetch_now(self) -> None:
        """Fetch the key set soon, as an operator has asked for it."""
        self._may_fetch.set()

    def find(self, header: TokenHeader) -> VerificationKey | None:
        """Return the key of a token; None if the key set does not have it."""
        return self._keys.find(header.algorithm, header.key_id)

    async def find_again(self, header: TokenHeader) -> VerificationKey | None:
        """Fetch the key set if that may help, and return the key of a token.

        Logins that wait share one fetch.
        """
        if header.key_id is None or self._keys.has(header.key_id):
            return None
        if self._fetching is None and self._refresh.may_ask(self._clock.monotonic_s()):
            self._begin_fetch()
        if self._fetching is None:
            return None
        # A client that goes away ends neither the fetch nor the waits of others.
        await asyncio.wait([self._fetching])
        return self.find(header)

    def _begin_fetch(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._fetch_once())
        return self._fetching

    async def _fetch_once(self) -> None:
        try:
            is_done = await self._fetch()
            if self._metrics is not None:
                count(self._metrics.key_set_fetches, "done" if is_done else "failed")
        finally:
            self._fetching = None

    async def _fetch_regularly(self) -> None:
        while True:
            timer = self._clock.call_at(self._refresh.next_s, self._may_fetch.set)
            await self._may_fetch.wait()
            timer.cancel()
            self._may_fetch.clear()
            await asyncio.wait([self._begin_fetch()])

    async def _fetch(self) -> bool:
        """Fetch the key set; return whether the new one is in use."""
        self._refresh.begin(self._clock.monotonic_s())
        try:
            content = await self._source.fetch()
            # In a thread: a hundred keys take milliseconds.
            keys = await asyncio.to_thread(parse_key_set, content)
        except KeySetError as error:
            self._note_failure(str(error))
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, the next fetch may succeed
            self._note_failure(f"{type(error).__name__}")
            return False
        self._take(keys)
        return True

    def _note_failure(self, reason: str) -> None:
        self._refresh.fail(self._clock.monotonic_s())
        if reason != self._failure and self._keys.keys:
            _log.error(
                "the key set cannot be fetched: the old keys stay in use",
                source=str(self._source),
                why=reason,
            )
        self._failure = reason

    def _take(self, keys: KeySet) -> None:
        self._refresh.succeed(self._clock.monotonic_s())
        source = str(self._source)
        if self._failure is not None and self._keys.keys:
            _log.info("the key set is fetched again", source=source)
        self._failure = None
        if keys.skipped != self._skipped:
            for reason in keys.skipped:
                _log.warning("a key of the key set is not used", source=source, why=reason)
        self._skipped = keys.skipped
        old = {one.key_id for one in self._keys.keys}
        new = {one.key_id for one in keys.keys}
        if old and old != new:
            _log.info("the key set has changed", source=source, keys=len(keys.keys))
        self._keys = keys
