# Shared by the scripts beside it; sourced, not run. Leaves the caller in the root of the checkout.
# shellcheck shell=bash
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

# What is compiled stays: tests start kgw hundreds of times.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }

# Prints the first Python on PATH that is new enough and can make virtual environments.
find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3.14 python3 python; do
        if [[ -n "$candidate" ]] && "$candidate" -c \
            'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    say "kgw needs Python 3.11 or newer with the venv module (Debian and Ubuntu: python3-venv)."
    say "None was found on PATH; set PYTHON to one and run this again."
    return 1
}

# install_lock FOLDER LOCK: what a lock file pins, with a line that counts the packages: pip itself
# would say nothing for minutes where the network is slow.
install_lock() {
    local folder="$1" lock="$2" total counted
    total="$(grep -c '==' "requirements/$lock.txt")"
    say "Installing requirements/$lock.txt: $total packages at most"
    if [[ -t 2 ]]; then counted='\r\033[K  %d: %s'; else counted='  %d: %s\n'; fi
    "$folder/bin/python" -m pip --disable-pip-version-check install --progress-bar off \
        --require-hashes --requirement "requirements/$lock.txt" |
        awk -v counted="$counted" '
            /^Collecting / { printf counted, ++found, $2; fflush() }
            /^Installing / { printf counted, found, "installing them"; fflush() }
            END { if (found && counted !~ /\n$/) print "" }' >&2
}

# ensure_environment FOLDER LOCK...: a virtual environment holding exactly what the lock files pin.
# Installs only when a lock file has changed since the last time.
ensure_environment() {
    local folder="$1" python lock wanted stamp
    shift
    if [[ ! -x "$folder/bin/python" ]]; then
        python="$(find_python)"
        say "Creating $folder ($("$python" --version))"
        "$python" -m venv --clear "$folder"
    fi
    for lock in "$@"; do
        stamp="$folder/.installed-$lock"
        wanted="$(cksum <"requirements/$lock.txt")"
        if [[ ! -f "$stamp" || "$(cat "$stamp")" != "$wanted" ]]; then
            install_lock "$folder" "$lock"
            printf '%s\n' "$wanted" >"$stamp"
        fi
    done
}

# needed_lock ARGUMENT...: prints which lock file `kgw serve` needs with these arguments. Databases,
# SeaweedFS, OTLP and OAUTHBEARER need packages of their own, four times the size of the others:
# wherever a setting can come from is searched for their names.
needed_lock() {
    local argument settings
    settings="$* $(env | grep '^KGW_' || true)"
    for argument in "$@" "${KGW_CONFIG:-}"; do
        # What cannot be read is for kgw to say.
        if [[ -r "${argument#*=}" && -f "${argument#*=}" ]]; then
            settings+=" $(tr -d '\0' <"${argument#*=}")"
        fi
    done
    # Variables have the names in capitals.
    if grep -iqE 'seaweedmq|postgresql|mysql|smq|otel|oauthbearer' <<<"$settings"; then
        echo run
    else
        echo serve
    fi
}

# ensure_kgw LOCK: .venv with that lock file's packages and this checkout as an editable install.
ensure_kgw() {
    local stamp=.venv/.installed-kgw wanted
    ensure_environment .venv "$1"
    # The installation also makes Python of the .proto files, where their compiler is there.
    wanted="$(cat pyproject.toml hatch_build.py kgw/backend/seaweedmq/protos/*.proto | cksum)"
    wanted+=" $(compgen -G '.venv/lib/python*/site-packages/grpc_tools' || true)"
    if [[ ! -f "$stamp" || "$(cat "$stamp")" != "$wanted" ]]; then
        # Until it was called kgw-broker; both would bring the plugin of pytest.
        if compgen -G '.venv/lib/python*/site-packages/kgw-*.dist-info' >/dev/null; then
            .venv/bin/python -m pip --disable-pip-version-check --quiet uninstall --yes kgw >&2
        fi
        .venv/bin/python -m pip --disable-pip-version-check --quiet install \
            --no-deps --no-build-isolation --no-index --editable . >&2
        printf '%s\n' "$wanted" >"$stamp"
    fi
}

# The client libraries of the interoperability matrix, each in an environment of its own.
clients=(kafka-python-2 kafka-python-3 aiokafka confluent-kafka)

ensure_clients() {
    local client environment environments=()
    for client in "${clients[@]}"; do
        ensure_environment ".venv-clients/$client" "$client" &
        environments+=($!)
    done
    for environment in "${environments[@]}"; do
        wait "$environment"
    done
}

# SeaweedFS, fetched once. Without it its tests are skipped and say so; in continuous integration
# they fail.
ensure_seaweedfs() {
    .venv/bin/python -m tests.seaweedfs install >/dev/null || [[ -z "${CI:-}" ]]
}

# Prometheus, fetched once, for the tests of the alert rules. Without it they are skipped and say so;
# in continuous integration they fail.
ensure_prometheus() {
    .venv/bin/python -m tests.monitoring.binary || [[ -z "${CI:-}" ]]
}

# The jars of Spark's own `kafka` source and of Delta tables, for what is compared with them.
ensure_spark_jars() {
    export KGW_SPARK_JARS="$root/.cache/spark-jars"
    .venv/bin/kgw pipeline jars --to "$KGW_SPARK_JARS" >/dev/null
    .venv/bin/kgw pipeline jars --delta --to "$KGW_SPARK_JARS" >/dev/null
}
