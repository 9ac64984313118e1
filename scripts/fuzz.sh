#!/usr/bin/env bash
# Runs every fuzz target for so many seconds (default 5), from the seeds in fuzz/corpus. Needs no nightly compiler: the coverage marks that
# libFuzzer reads are the compiler's own, and what a sanitizer would find the crates that forbid unsafe code cannot do.
# Usage: scripts/fuzz.sh [SECONDS [TARGET...]]; what is found new is kept in fuzz/found/TARGET. FUZZ_SEED=N makes runs alike.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${1:-5}
shift || true
case $seconds in
'' | *[!0-9]*)
    echo "fuzz: '$seconds' is no number of seconds" >&2
    exit 2
    ;;
esac
if ! command -v c++ >/dev/null 2>&1; then
    echo "fuzz: libFuzzer needs a C++ compiler: apt-get install g++" >&2
    exit 1
fi

coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target the marks are put into what runs, not into what builds it.
RUSTFLAGS="${RUSTFLAGS:-} $coverage" cargo build --release --quiet --target "$host"

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls fuzz_targets | sed 's/\.rs$//')
for target in "${targets[@]}"; do
    program=target/$host/release/$target
    if [ ! -x "$program" ]; then
        echo "fuzz: there is no target '$target'; there are: $(ls fuzz_targets | sed 's/\.rs$//' | tr '\n' ' ')" >&2
        exit 2
    fi
    mkdir -p "found/$target" "artifacts/$target" "corpus/$target"
    log=artifacts/$target.log
    if ! "$program" -seed="${FUZZ_SEED:-0}" -max_total_time="$seconds" -max_len=4096 -len_control=0 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" "found/$target" "corpus/$target" >"$log" 2>&1; then
        tail -40 "$log" >&2
        echo "fuzz: $target failed; its input is in fuzz/artifacts/$target, its log is fuzz/$log" >&2
        exit 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    covered=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
    echo "fuzz: $target: $runs runs, ${covered#cov: } branches, nothing found"
done
