"""Spark for kgw: a data source, and jobs that archive, restore and audit topics.

It is a Kafka client of any gateway, through `kgw.client`. It needs the extra `spark`; only `kgw
pipeline` imports it.
"""
