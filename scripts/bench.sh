#!/usr/bin/env bash
# Counted instructions (valgrind; comparable between runs) and times (divan; comparable within a run only).
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(cargo metadata --format-version 1 --locked 2>/dev/null | tr ',' '\n' | grep -A1 '"name":"gungraun"' | sed -n 's/.*"version":"\([^"]*\)".*/\1/p' | head -n 1)
[ -z "$version" ] || gungraun-runner --version 2>/dev/null | grep -q "$version" || cargo install --locked --quiet gungraun-runner --version "$version"
cargo bench --workspace "$@"
echo "Times between processes, against the kernel: target/release/sidecore lab run NAME [--quick]"
echo "  rpc, echo, web, transfer, connections, idle, wake (docs/measurements says what each asks)"
