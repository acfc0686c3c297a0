"""Kafka's wire protocol: messages, codecs, headers and frames, without I/O."""
