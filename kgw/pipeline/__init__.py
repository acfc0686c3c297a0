"""Spark and what kgw holds: a data source, and jobs that archive, restore and prove.

An outsider: it speaks Kafka's protocol to any gateway, through `kgw.client`. Needs the extra
`spark`; only `kgw pipeline` imports it.
"""
