#!/usr/bin/env bash
# Runs one of Kafka's own tools, by its class. Needs a JDK and Maven. Without a class it prints the
# class path alone.
#   e2e/kafka-tool.sh KAFKA_VERSION [CLASS [ARGUMENT...]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=${1:?which version of Kafka?}
shift

classpath_file=$here/.build/tools-$version.classpath
if [[ ! -s $classpath_file ]]; then
    mkdir -p "$here/.build"
    mvn --batch-mode --quiet --file "$here/tools/pom.xml" "-Dkafka.version=$version" \
        dependency:build-classpath "-Dmdep.outputFile=$classpath_file" >&2
fi
if (($# == 0)); then
    cat "$classpath_file"
else
    exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$(<"$classpath_file")" "$@"
fi
