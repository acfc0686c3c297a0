#!/usr/bin/env bash
# Writes snappy.jsonl beside it anew: what snappy-java and Kafka's Java client make of some contents.
# Needs a JDK and Maven. The jars go to a directory of their own, which is removed.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
jars="$(mktemp -d)"
trap 'rm -rf "$jars"' EXIT
for artifact in org.apache.kafka:kafka-clients:3.9.1 org.xerial.snappy:snappy-java:1.1.10.7 \
    org.slf4j:slf4j-api:1.7.36 org.slf4j:slf4j-nop:1.7.36; do
    mvn --batch-mode --quiet dependency:copy -Dartifact="$artifact" -DoutputDirectory="$jars"
done
java -cp "$jars/*" "$here/SnappyBytes.java" >"$here/snappy.jsonl"
