"""The stock keeper beside a broker that fails. Runs with `python -m unittest` as well."""

from __future__ import annotations

import unittest
from typing import ClassVar

from stock import DeliveryError, Stock

from kgw.testing.security import BrokerSecurity
from kgw.testing.testcase import BrokerTestCase


class StockTest(BrokerTestCase):
    """With kgw as it is."""

    kgw_topics: ClassVar = {"movements": 1, "counts": {"cleanup.policy": "compact"}}

    def counts(self) -> list[tuple[bytes | None, bytes | None]]:
        """Return what was written, in order."""
        return [(record.key, record.value) for record in self.kgw_broker.records("counts")]

    def test_movements_are_counted(self) -> None:
        """Each one writes the new count of its article."""
        self.kgw_broker.produce("movements", ["nails 5", "nails -2", "screws 1"])
        with Stock(self.kgw_broker.client_config()) as stock:
            for _ in range(3):
                self.assertTrue(stock.take())
        expected = [(b"nails", b"5"), (b"nails", b"3"), (b"screws", b"1")]
        self.assertEqual(expected, self.counts())
        self.assertEqual({("movements", 0): 3}, self.kgw_broker.committed("stock"))

    def test_a_count_that_is_not_stored_is_not_committed(self) -> None:
        """The producer is refused for good, and the movement is read again by the next one."""
        self.kgw_broker.produce("movements", ["nails 5"])
        refused = self.kgw_broker.faults.refuse(
            "Produce", "TOPIC_AUTHORIZATION_FAILED", topic="counts", must_strike=True
        )
        with (
            Stock(self.kgw_broker.client_config()) as stock,
            refused,
            self.assertRaises(DeliveryError),
        ):
            stock.take()
        self.assertEqual({}, self.kgw_broker.committed("stock"))
        with Stock(self.kgw_broker.client_config()) as stock:
            self.assertTrue(stock.take())
        self.assertEqual([(b"nails", b"5")], self.counts())

    def test_a_lost_answer_counts_once(self) -> None:
        """The connection ends behind the request: it is sent again and stored once."""
        self.kgw_broker.produce("movements", ["nails 5"])
        with (
            Stock(self.kgw_broker.client_config()) as stock,
            self.kgw_broker.faults.drop("Produce", must_strike=True),
        ):
            self.assertTrue(stock.take())
        self.assertEqual([(b"nails", b"5")], self.counts())

    def test_a_restart_of_the_broker_passes_unnoticed(self) -> None:
        """Its port and its records are the same."""
        self.kgw_broker.produce("movements", ["nails 5"])
        with Stock(self.kgw_broker.client_config()) as stock:
            self.assertTrue(stock.take())
            self.kgw_broker.restart()
            self.kgw_broker.produce("movements", ["nails 1"])
            self.assertTrue(stock.take())
        self.assertEqual([(b"nails", b"5"), (b"nails", b"6")], self.counts())


class StockWithRightsTest(StockTest):
    """Over TLS, as a user who may do what the stock keeper needs and no more."""

    kgw_security: ClassVar = (
        BrokerSecurity("SASL_SSL", users={"stock": "secret"})
        .allow("stock", "READ", topic="movements")
        .allow("stock", "WRITE", topic="counts")
        .allow("stock", "READ", group="stock")
    )


class StockOnKafka28Test(StockTest):
    """The same with a broker that passes for Kafka 2.8."""

    kgw_costume = "2.8"


if __name__ == "__main__":
    unittest.main()
