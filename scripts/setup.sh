#!/usr/bin/env bash
# Installs what a make target needs: each argument is PACKAGE:COMMAND, or PACKAGE:/FILE. Debian packages by apt-get (as root), cargo-* tools and
# cbindgen by cargo. A ? before it: only where this system has the package.
set -euo pipefail

need_apt=()
for want in "$@"; do
    optional=
    case "$want" in \?*) optional=1 want=${want#\?} ;; esac
    package=${want%%:*} command=${want##*:}
    case "$command" in /*) [ -e "$command" ] && continue ;; esac
    if [ -n "$optional" ] && ! apt-cache show "$package" >/dev/null 2>&1; then
        echo "setup: this system has no package $package: what needs it is skipped" >&2
        continue
    fi
    PATH="$PATH:/usr/sbin:/sbin" command -v "$command" >/dev/null 2>&1 && continue
    case "$package" in
    cargo-* | cbindgen) cargo install --locked --quiet "$package" ;;
    *) need_apt+=("$package") ;;
    esac
done

[ ${#need_apt[@]} -eq 0 ] && exit 0
mend="apt-get install -y ${need_apt[*]}"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: missing: ${need_apt[*]}; install them with this system's package manager" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing: ${need_apt[*]}; run: sudo $mend" >&2
    exit 1
fi
log=$(mktemp)
# Debian starts services that it installs; the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive $mend -qq; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "setup: could not install: ${need_apt[*]} (whole log: $log)" >&2
    exit 1
fi
rm -f "$log"
