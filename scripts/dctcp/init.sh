#!/bin/sh
# First process of the guest kernel (see scripts/dctcp.sh): the machine's own file system is its root. What it is to do stands on its command line.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for word in $(cat /proc/cmdline); do
    case $word in DCTCP_*=*) export "${word?}" ;; esac
done
module=/usr/lib/uml/modules/$(uname -r)/kernel/net/ipv4/tcp_$DCTCP_CONTROLLER.ko
[ ! -f "$module" ] || insmod "$module"
ip link set lo up
ip addr add "$DCTCP_ADDRESS/24" dev vec0
ip link set vec0 up
cd /proc/sys/net || exit 1
echo 1 >ipv4/tcp_ecn
echo "$DCTCP_CONTROLLER" >ipv4/tcp_congestion_control
used=$(cat ipv4/tcp_congestion_control)
if [ "$used" != "$DCTCP_CONTROLLER" ]; then
    echo "the guest kernel has no $DCTCP_CONTROLLER, but $used" >"$DCTCP_OUT"
    sync
    echo o >/proc/sysrq-trigger
    sleep 5
fi
echo "4096 1048576 16777216" >ipv4/tcp_rmem
echo "4096 1048576 16777216" >ipv4/tcp_wmem
python3 "$DCTCP_SCRIPTS/$DCTCP_ROLE.py" "$DCTCP_PEER" >"$DCTCP_OUT" 2>&1
sync
echo o >/proc/sysrq-trigger
sleep 5
