#!/usr/bin/env bash
# DCTCP of the engine beside that of a Linux kernel, where the machine's own kernel has none: a guest kernel (User Mode Linux, Debian's package)
# receives, and the engine or another guest sends, each pair over a line of its own: 100 ms, 20 Mbit/s, marks above a queue of 40 packets. With
# `share`, both send to one guest over one line of 40 ms, and the first round is drawn: share.svg.
# Usage: scripts/dctcp.sh [ROUNDS [CONTROLLER [share]]]   (root; after `make build`; a round takes 40 s)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} controller=${2:-dctcp} share=${3:-}
case $share in
'') delay=50ms ;;
share) delay=20ms ;;
*)
    echo "dctcp: '$share' is not known; usage: scripts/dctcp.sh [ROUNDS [CONTROLLER [share]]]" >&2
    exit 2
    ;;
esac
scripts/setup.sh user-mode-linux:linux.uml kmod:insmod iproute2:ip python3:python3
work=$(mktemp -d)
truncate -s 100M "$work/file"
name=dctcp$$

guest() { # NAMESPACE DEVICE ROLE ADDRESS PEERS OUT
    ip -n "$1" tuntap add dev "$2" mode tap
    ip -n "$1" link set "$2" master br0 up
    ip netns exec "$1" linux.uml mem=256M root=/dev/root rootfstype=hostfs rootflags=/ rw init="$PWD/scripts/dctcp/init.sh" con=null \
        con0=null,fd:1 "vec0:transport=tap,ifname=$2,depth=128" DCTCP_ROLE="$3" DCTCP_ADDRESS="$4" DCTCP_PEER="$5" \
        DCTCP_CONTROLLER="$controller" DCTCP_SCRIPTS="$PWD/scripts/dctcp" DCTCP_OUT="$6" >"$6.console" 2>&1 </dev/null &
}

one() ( # engine|kernel|both ROUND
    here=$work/$1.$2 left=$name-$1$2-l right=$name-$1$2-r pids=()
    trap 'kill "${pids[@]}" 2>/dev/null || true; wait; ip netns del "$left"; ip netns del "$right"' EXIT
    for namespace in "$left" "$right"; do
        ip netns add "$namespace"
        ip -n "$namespace" link add br0 type bridge
        ip -n "$namespace" link set br0 up
    done
    target/release/sidecore lab link "l0@$left" "l1@$right" --delay "$delay" --rate 20mbit --queue 400p --mark-above 40p --seed "$2" \
        --time 60s >"$here.link" 2>&1 &
    pids+=($!)
    peers=()
    if [ "$1" != kernel ]; then
        target/release/sidecore engine --tap e0 --netns "$left" --addr 10.9.0.1/24 --socket "$here.sock" --congestion "$controller" \
            --ecn request >"$here.engine" 2>&1 &
        pids+=($!)
        sleep 1
        ip -n "$left" link set e0 master br0 up
        target/release/userver --root "$work" --listen 10.9.0.1:80 --io sidecore --socket "$here.sock" >"$here.userver" 2>&1 &
        pids+=($!)
        peers+=(10.9.0.1)
    fi
    if [ "$1" != engine ]; then
        sleep 1
        guest "$left" g0 send 10.9.0.3 - "$here.sent"
        pids+=($!)
        peers+=(10.9.0.3)
    fi
    ip -n "$left" link set l0 master br0 up
    ip -n "$right" link set l1 master br0 up
    guest "$right" g1 receive 10.9.0.2 "$(IFS=,; echo "${peers[*]}")" "$here.received"
    wait $! || true
    echo "round $2: $1: $(grep -v '^plot ' "$here.received" | tr '\n' ' ')"
    if [ "$1$2" = both1 ]; then
        sed -n 's/^plot //p' "$here.received" | sed "s/\"DCTCP\"/\"$controller: 20 Mbit\/s, 40 ms, marks above 40 frames of queue\"/" \
            | target/release/sidecore lab draw - --out "$work/share.svg"
    fi
)

for round in $(seq "$rounds"); do
    if [ -n "$share" ]; then
        one both "$round"
        continue
    fi
    one engine "$round" &
    one kernel "$round" &
    wait
done
echo "what each process said is in $work"
