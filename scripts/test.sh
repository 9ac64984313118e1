#!/usr/bin/env bash
# All tests: the model-checked builds of what threads and processes share, the documentation's examples, the fuzz targets for seconds, and the
# workspace's.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== model checking (loom)"
(
    export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom
    cargo nextest run --release -p sidecore-shm --test loom
    cargo nextest run --release -p sidecore-nic --lib wire::sys
)

echo "== documentation examples"
cargo test --workspace --doc --quiet

echo "== fuzzing, seconds each"
FUZZ_SEED=1 scripts/fuzz.sh 3

echo "== workspace"
cargo nextest run --workspace --no-fail-fast "$@"
