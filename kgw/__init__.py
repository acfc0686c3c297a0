"""kgw: an asyncio server that Kafka clients cannot tell from a broker."""

__version__ = "0.1.0"
