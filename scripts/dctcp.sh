#!/usr/bin/env bash
# DCTCP of the engine beside that of a Linux kernel, where the machine's own kernel has none: a guest kernel (User Mode Linux, Debian's package)
# receives, and the engine or another guest sends, each pair over a line of its own: 100 ms, 20 Mbit/s, marks above a queue of 40 packets.
# Usage: scripts/dctcp.sh [ROUNDS [CONTROLLER]]   (root; after `make build`; a round takes 40 s)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} controller=${2:-dctcp}
scripts/setup.sh user-mode-linux:linux.uml iproute2:ip python3:python3
work=$(mktemp -d)
truncate -s 100M "$work/file"
name=dctcp$$

guest() { # NAMESPACE DEVICE ROLE ADDRESS OUT
    ip -n "$1" tuntap add dev "$2" mode tap
    ip -n "$1" link set "$2" master br0 up
    ip netns exec "$1" linux.uml mem=256M root=/dev/root rootfstype=hostfs rootflags=/ rw init="$PWD/scripts/dctcp/init.sh" con=null \
        con0=null,fd:1 "vec0:transport=tap,ifname=$2,depth=128" DCTCP_ROLE="$3" DCTCP_ADDRESS="$4" DCTCP_PEER=10.9.0.1 \
        DCTCP_CONTROLLER="$controller" DCTCP_SCRIPTS="$PWD/scripts/dctcp" DCTCP_OUT="$5" >"$5.console" 2>&1 </dev/null &
}

one() ( # engine|kernel ROUND
    here=$work/$1.$2 left=$name-$1$2-l right=$name-$1$2-r pids=()
    trap 'kill "${pids[@]}" 2>/dev/null || true; wait; ip netns del "$left"; ip netns del "$right"' EXIT
    for namespace in "$left" "$right"; do
        ip netns add "$namespace"
        ip -n "$namespace" link add br0 type bridge
        ip -n "$namespace" link set br0 up
    done
    target/release/sidecore lab link "l0@$left" "l1@$right" --delay 50ms --rate 20mbit --queue 400p --mark-above 40p --seed "$2" \
        --time 60s >"$here.link" 2>&1 &
    pids+=($!)
    if [ "$1" = engine ]; then
        target/release/sidecore engine --tap e0 --netns "$left" --addr 10.9.0.1/24 --socket "$here.sock" --congestion "$controller" \
            --ecn request >"$here.engine" 2>&1 &
        pids+=($!)
        sleep 1
        ip -n "$left" link set e0 master br0 up
        target/release/userver --root "$work" --listen 10.9.0.1:80 --io sidecore --socket "$here.sock" >"$here.userver" 2>&1 &
        pids+=($!)
    else
        sleep 1
        guest "$left" g0 send 10.9.0.1 "$here.sent"
        pids+=($!)
    fi
    ip -n "$left" link set l0 master br0 up
    ip -n "$right" link set l1 master br0 up
    guest "$right" g1 receive 10.9.0.2 "$here.received"
    wait $! || true
    echo "round $2: $1: $(cat "$here.received")"
)

for round in $(seq "$rounds"); do
    one engine "$round" &
    one kernel "$round" &
    wait
done
echo "what each process said is in $work"
