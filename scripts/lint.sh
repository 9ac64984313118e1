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

echo "== licences, sources, duplicate versions"
scripts/setup.sh cargo-deny:cargo-deny
cargo deny --log-level error check licenses bans sources

echo "== advisories"
# The RustSec database lives on GitHub. Where a copy is there it is used; where not, that is said, and is no failure.
if [ -d "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" ]; then
    cargo deny --log-level error check --disable-fetch advisories
else
    echo "not checked: there is no copy of the RustSec advisory database on this machine"
fi
