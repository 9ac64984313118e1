#!/usr/bin/env bash
# Everything that is checked without running the program.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== formatting"
cargo fmt --all --check

echo "== clippy"
cargo clippy --workspace --all-targets --quiet -- -D warnings

echo "== source tree"
cargo xtask tidy

echo "== what the pages about RFCs claim"
cargo xtask conformance

echo "== licences, sources, duplicate versions"
scripts/setup.sh cargo-deny:cargo-deny
cargo deny --log-level error check licenses bans sources

echo "== advisories"
scripts/advisories.sh
