/* Options, names and bad arguments. */
#include "common.h"

struct number {
    const char *what;
    int level, name, value;
};

static void set_and_get(int fd, const struct number *all, int count) {
    for (int i = 0; i < count; i++) {
        char what[80];
        int value = all[i].value;
        snprintf(what, sizeof what, "set %s to %d", all[i].what, value);
        say(what, setsockopt(fd, all[i].level, all[i].name, &value, sizeof value));
        int told = 0;
        socklen_t len = sizeof told;
        snprintf(what, sizeof what, "get %s", all[i].what);
        if (say(what, getsockopt(fd, all[i].level, all[i].name, &told, &len)) == 0)
            printf("%s: %d in %u bytes\n", what, told, len);
    }
}

static const struct number streams[] = {
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 7},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 1},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 0},
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 3},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 90},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 0},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 11},
    {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 4},
    {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 128},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 30000},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, -1},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 3},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 0},
    {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 10000},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 10000},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 1},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 1},
    {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 5},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 2},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3},
    {"IP_TTL", IPPROTO_IP, IP_TTL, 33},
    {"IP_TTL", IPPROTO_IP, IP_TTL, 0},
    {"IP_TTL", IPPROTO_IP, IP_TTL, 256},
    {"an unknown option", SOL_SOCKET, 9999, 1},
    {"an unknown TCP option", IPPROTO_TCP, 9999, 1},
    {"SO_TYPE", SOL_SOCKET, SO_TYPE, 1},
};

static const struct number datagrams[] = {
    {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 2},
    {"IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, 9},
    {"IP_RECVTTL", IPPROTO_IP, IP_RECVTTL, 1},
    {"IP_RECVTOS", IPPROTO_IP, IP_RECVTOS, 1},
    {"IP_RECVERR", IPPROTO_IP, IP_RECVERR, 1},
    {"IP_TOS", IPPROTO_IP, IP_TOS, 0x10},
    {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1},
    {"IP_MULTICAST_TTL", IPPROTO_IP, IP_MULTICAST_TTL, 4},
    {"IP_MULTICAST_TTL", IPPROTO_IP, IP_MULTICAST_TTL, 300},
    {"IP_MULTICAST_LOOP", IPPROTO_IP, IP_MULTICAST_LOOP, 0},
    {"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, 2},
    {"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, 77},
    {"UDP_CORK", IPPROTO_UDP, UDP_CORK, 0},
    {"TCP_NODELAY of UDP", IPPROTO_TCP, TCP_NODELAY, 1},
};

static void lengths(int fd) {
    int value = 1;
    say("set with 3 bytes", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 3));
    say("set with 0 bytes", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 0));
    say("set with -1 bytes", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, -1));
    unsigned char byte = 77;
    say("set IP_TTL with a byte", setsockopt(fd, IPPROTO_IP, IP_TTL, &byte, 1));
    byte = 0;
    socklen_t len = 1;
    say("get IP_TTL into a byte", getsockopt(fd, IPPROTO_IP, IP_TTL, &byte, &len));
    printf("%d in %u bytes\n", byte, len);
    value = -1;
    len = 2;
    say("get SO_TYPE into 2 bytes", getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len));
    printf("%x in %u bytes\n", value, len);
    len = 0;
    say("get into nothing", getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len));
    len = -1;
    say("get into -1 bytes", getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len));
    struct linger linger = {5, 7};
    say("set SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    len = sizeof linger;
    say("get SO_LINGER", getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len));
    printf("%d %d\n", linger.l_onoff, linger.l_linger);
    linger.l_onoff = 0;
    say("unset SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    struct timeval time = {3, 1000000};
    say("set SO_RCVTIMEO wrongly", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    time.tv_usec = 500000;
    say("set SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    len = sizeof time;
    say("get SO_RCVTIMEO", getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &len));
    printf("%ld %ld\n", (long)time.tv_sec, (long)time.tv_usec);
    struct sockaddr_in name;
    len = 4;
    say("getsockname into 4 bytes", getsockname(fd, (struct sockaddr *)&name, &len));
    printf("whole: %u\n", len);
    len = -1;
    say("getsockname into -1 bytes", getsockname(fd, (struct sockaddr *)&name, &len));
}

static void congestion(int fd) {
    char name[16] = "reno";
    say("set TCP_CONGESTION", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)));
    memset(name, 'x', sizeof name);
    socklen_t len = sizeof name;
    say("get TCP_CONGESTION", getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len));
    printf("%s in %u bytes\n", name, len);
    say("set another", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "no such", 7));
}

/* Memory that is not there. What a read or write is given is looked at only roughly: so here it is what can never be memory. */
static void bad_memory(int ends[2]) {
    /* Not seen by a compiler that would warn. */
    char *volatile null = NULL;
    volatile int many = 5000;
    char *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *fixed = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int value = 1;
    socklen_t len = sizeof value, *no_len = (socklen_t *)nowhere;
    struct sockaddr *name = (struct sockaddr *)nowhere;
    say("setsockopt", setsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, nowhere, 4));
    say("setsockopt null", setsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, NULL, 4));
    say("getsockopt", getsockopt(ends[0], SOL_SOCKET, SO_TYPE, nowhere, &len));
    say("getsockopt length", getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &value, no_len));
    say("getsockopt read-only", getsockopt(ends[0], SOL_SOCKET, SO_TYPE, fixed, &len));
    say("getsockname", getsockname(ends[0], name, &len));
    say("getsockname length", getsockname(ends[0], (struct sockaddr *)&value, no_len));
    say("getpeername", getpeername(ends[0], name, &len));
    say("ioctl", ioctl(ends[0], FIONREAD, nowhere));
    say("FIONBIO", ioctl(ends[0], FIONBIO, nowhere));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    say("connect", connect(fd, name, sizeof(struct sockaddr_in)));
    say("bind", bind(fd, name, sizeof(struct sockaddr_in)));
    int set = epoll_create1(0);
    say("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, ends[0], (struct epoll_event *)nowhere));
    must(send(ends[1], "abc", 3, 0) == 3 && await_bits(ends[0], POLLIN), "send");
    say("recv null", recv(ends[0], null, 3, 0));
    say("recv beyond", recv(ends[0], (char *)-4096L, 3, 0));
    say("readv list", readv(ends[0], (struct iovec *)null, 2));
    say("readv count", readv(ends[0], (struct iovec *)fixed, many));
    say("send null", send(ends[0], null, 3, 0));
    say("recvmsg null", recvmsg(ends[0], (struct msghdr *)null, 0));
    say("sendmsg null", sendmsg(ends[0], (struct msghdr *)null, 0));
    char got[4];
    say("what came is there still", recv(ends[0], got, 3, 0));
    close(fd);
    close(set);
}

int main(void) {
    int ends[2];
    connected(ends);
    set_and_get(ends[0], streams, sizeof streams / sizeof *streams);
    lengths(ends[0]);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    congestion(fresh);
    struct sockaddr_in address, again;
    int udp = bound(SOCK_DGRAM, &address);
    set_and_get(udp, datagrams, sizeof datagrams / sizeof *datagrams);
    bad_memory(ends);

    int first = bound(SOCK_STREAM, &address);
    again = address;
    int second = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr *name = (struct sockaddr *)&again;
    say("bind to a port in use", bind(second, name, sizeof again));
    say("connect to who does not listen", connect(second, name, sizeof again));
    say("accept before listen", accept(first, NULL, NULL));
    int listens = -1;
    socklen_t len = sizeof listens;
    getsockopt(first, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len);
    printf("SO_ACCEPTCONN before: %d\n", listens);
    say("bind again", bind(first, name, sizeof again));
    say("listen", listen(first, 1));
    getsockopt(first, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len);
    printf("SO_ACCEPTCONN after: %d\n", listens);
    say("listen again", listen(first, 10));
    close(second);
    second = socket(AF_INET, SOCK_STREAM, 0);
    say("connect to who listens", connect(second, name, sizeof again));
    say("listen with a connection", listen(second, 1));
    say("connect again", connect(second, name, sizeof again));
    say("accept4 with nonsense", accept4(first, NULL, NULL, 0x4000));
    int child = accept4(first, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    printf("flags: %d %d\n", !!(fcntl(child, F_GETFL) & O_NONBLOCK), fcntl(child, F_GETFD));
    char byte;
    say("recv of a listener", recv(first, &byte, 1, MSG_DONTWAIT));
    say("send of a listener", send(first, &byte, 1, MSG_NOSIGNAL));
    say("getpeername of a listener", getpeername(first, name, &len));
    return 0;
}
