#!/usr/bin/env bash
# Copies what Spark's own `kafka` source needs beside PySpark: the connector of its version, and the
# libraries that its POM names; and Delta's for this version.
# Argument: the directory to put them in. Needs Maven.
# scripts/e2e runs it; by hand:
#   e2e/fetch-spark-jars.sh .cache/spark-jars
#   KGW_SPARK_JARS=.cache/spark-jars python -m pytest e2e/test_spark_kafka_source.py
set -euo pipefail

directory=${1:?usage: fetch-spark-jars.sh DIRECTORY}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
for artifact in \
    org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
    org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0 \
    org.apache.kafka:kafka-clients:3.9.2 \
    org.apache.commons:commons-pool2:2.13.1 \
    io.delta:delta-spark_4.2_2.13:4.4.0 \
    io.delta:delta-storage:4.4.0; do
    mvn --batch-mode --quiet dependency:copy \
        "-Dartifact=$artifact" "-DoutputDirectory=$directory"
done
