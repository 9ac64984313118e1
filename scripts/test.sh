#!/usr/bin/env bash
# All tests: the workspace's, the documentation's examples, and the model-checked builds of the shared-memory crate.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== workspace"
cargo nextest run --workspace --no-fail-fast "$@"

echo "== documentation examples"
cargo test --workspace --doc --quiet

echo "== model checking (loom)"
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo nextest run --release -p sidecore-shm --test 'loom*'
