"""J3: consume, transform, produce in transactions, while everything fails: output equals input.

Run as `python -m tests.campaigns.exactly_once --full --seed N`. Each pipeline is a group of workers
of one client library, each a process of its own, and readers of another library who read committed
records of its output. The gateway, its network, disk and clock fail (mixed_faults.py); workers are
killed, paused, and replaced by another process of their transactional id while they sleep.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.client import AsyncClient, ClientError, GroupClient, TransactionClient
from kgw.client.values import LATEST
from tests.campaigns.child import Child
from tests.campaigns.exactly_once_book import PipelineBook
from tests.campaigns.exactly_once_member import SESSION_MS
from tests.campaigns.history import (
    Bounds,
    FinalLog,
    Outcome,
    Send,
    check_history,
)
from tests.campaigns.machine import busy_cores
from tests.campaigns.mixed_faults import KGW_SERVE, faults_around
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message

    from tests.campaigns.exactly_once_book import Place
    from tests.campaigns.mixed_faults import Faults
