"""A broker for tests with the standard library's unittest, run by pytest or otherwise."""

from __future__ import annotations

import unittest
from typing import TYPE_CHECKING, Any, ClassVar

from kgw.testing.broker import Broker
from kgw.testing.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.testing.security import BrokerSecurity


class BrokerTestCase(unittest.TestCase):
    """Gives each test its own new broker, `self.kgw_broker`.

        class OrdersTest(BrokerTestCase):
            kgw_topics = {"orders": 3}

            def test_an_order_is_stored(self) -> None:
                self.kgw_broker.produce("orders", ["one"])

    If a subclass defines `setUp` or `setUpClass`, it must first call the method of this class.
    """

    kgw_topics: ClassVar[Mapping[str, int | Mapping[str, object]]] = {}
    kgw_settings: ClassVar[Mapping[str, object]] = {}
    kgw_costume: ClassVar[str | None] = None
    kgw_security: ClassVar[BrokerSecurity | Mapping[str, Any] | None] = None
    kgw_broker: Broker
    _kgw_thread: ClassVar[LoopThread]

    @classmethod
    def setUpClass(cls) -> None:
        """Start the thread for the brokers of this class."""
        super().setUpClass()
        cls._kgw_thread = LoopThread()
        cls.addClassCleanup(cls._kgw_thread.close)

    def setUp(self) -> None:
        """Start the broker for this test."""
        super().setUp()
        self.kgw_broker = Broker(
            topics=self.kgw_topics,
            settings=self.kgw_settings,
            costume=self.kgw_costume,
            security=self.kgw_security,
            thread=self._kgw_thread,
        ).start()
        self.addCleanup(self.kgw_broker.close)
        # Cleanups run in reverse order, so this check runs first.
        self.addCleanup(self.kgw_broker.faults.check)
