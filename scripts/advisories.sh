#!/usr/bin/env bash
# Looks for dependencies with known flaws. RustSec's database is published on GitHub alone, which not every machine reaches: where there is a copy it
# is used. Where there is none, what the registry itself says is checked: no version in use may have been withdrawn by its authors.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -d "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" ]; then
    exec cargo deny --log-level error --offline check advisories
fi

echo "withdrawn versions only: there is no copy of the RustSec advisory database on this machine"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# cargo-deny looks at withdrawn versions while it checks advisories, and wants a database that is not empty: one about nothing.
url=https://none.invalid/db
about=$folder/none/crates/no-such-crate
mkdir -p "$about"
cat >"$about/RUSTSEC-2000-0001.md" <<'ADVISORY'
```toml
[advisory]
id = "RUSTSEC-2000-0001"
package = "no-such-crate"
date = "2000-01-01"

[versions]
patched = []
```

# Nothing

Keeps the database from being empty.
ADVISORY
git init -q -b main "$folder/none"
git -C "$folder/none" add -A
git -C "$folder/none" -c user.name=none -c user.email=none@none.invalid commit -q -m none
cat deny.toml - >"$folder/deny.toml" <<CONFIG

[advisories]
db-path = "$folder/dbs"
db-urls = ["$url"]
yanked = "deny"
CONFIG
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$folder/none.insteadOf" GIT_CONFIG_VALUE_0="$url"
cargo deny --log-level error --config "$folder/deny.toml" check advisories
