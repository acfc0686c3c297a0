#!/usr/bin/env bash
# Copies the kafka-clients jars whose message definitions the full run compares with ours.
# Argument: the directory to put them in. Needs Maven.
# scripts/e2e runs both; by hand:
#   e2e/fetch-kafka-jars.sh .cache/kafka-jars
#   KGW_KAFKA_JARS=.cache/kafka-jars python -m pytest -m full tests/protocol/test_kafka_jars.py
set -euo pipefail

directory=${1:?usage: fetch-kafka-jars.sh DIRECTORY}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
for version in 3.9.1 4.4.0; do
    mvn --batch-mode --quiet dependency:copy \
        "-Dartifact=org.apache.kafka:kafka-clients:$version" "-DoutputDirectory=$directory"
done
