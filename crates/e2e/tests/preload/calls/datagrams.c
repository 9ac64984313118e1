/* Datagrams: messages beside them, the error queue, and what is put together. */
#include "common.h"
#include <sys/syscall.h>

static long long time_t_now(void) {
    return (long long)time(NULL);
}

static const char *bytes_of(size_t len) {
    static char bytes[70000];
    return len <= sizeof bytes ? bytes : NULL;
}

/* What one recvmsg gives: length, flags, and each message. */
static void receive(const char *what, int fd, size_t room, size_t control, int flags) {
    char bytes[256] = {0};
    union {
        char bytes[512];
        struct cmsghdr align;
    } messages;
    struct sockaddr_in from = {0};
    struct iovec one = {bytes, room};
    struct msghdr header = {&from, sizeof from, &one, 1, messages.bytes, control, 0};
    if (!(flags & MSG_ERRQUEUE))
        await_bits(fd, POLLIN);
    if (say(what, recvmsg(fd, &header, flags)) < 0)
        return;
    printf("  '%s' flags %x, name of %u bytes, %zu bytes of messages\n", bytes, header.msg_flags,
           header.msg_namelen, header.msg_controllen);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
        printf("  %d/%d of %zu bytes:", c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len);
        unsigned char *data = CMSG_DATA(c);
        size_t n = c->cmsg_len - CMSG_LEN(0), skip = 0;
        if (c->cmsg_level == SOL_SOCKET) {
            struct timeval time;
            memcpy(&time, data, sizeof time);
            printf(" a time of today: %d\n", llabs((long long)time.tv_sec - time_t_now()) < 60);
            continue;
        }
        /* The number of the link is whoever's. */
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
            skip = 4;
        for (size_t i = skip; i < n; i++)
            printf(" %d", data[i]);
        printf("\n");
    }
}

static void send_with(const char *what, int fd, struct sockaddr_in *to, int level, int type,
                      const void *data, size_t len) {
    union {
        char bytes[64];
        struct cmsghdr align;
    } messages = {{0}};
    struct iovec one = {"with", 4};
    struct msghdr header = {to, sizeof *to, &one, 1, messages.bytes, CMSG_SPACE(len), 0};
    struct cmsghdr *message = CMSG_FIRSTHDR(&header);
    message->cmsg_level = level;
    message->cmsg_type = type;
    message->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(message), data, len);
    say(what, sendmsg(fd, &header, 0));
}

static void beside(void) {
    struct sockaddr_in here, there;
    int a = bound(SOCK_DGRAM, &here), b = bound(SOCK_DGRAM, &there);
    int on = 1, ttl = 7, tos = 8;
    struct sockaddr *to = (struct sockaddr *)&there;
    socklen_t len = sizeof there;
    setsockopt(b, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    setsockopt(b, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    setsockopt(b, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    say("send", sendto(a, "plain", 5, 0, to, len));
    receive("with all", b, 100, 512, 0);
    setsockopt(a, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
    setsockopt(a, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
    say("send", sendto(a, "options", 7, 0, to, len));
    receive("with options", b, 100, 512, 0);
    ttl = 9;
    send_with("a TTL", a, &there, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
    receive("with a TTL of its own", b, 100, 512, 0);
    tos = 0x20;
    send_with("a TOS", a, &there, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
    receive("with a TOS of its own", b, 100, 512, 0);
    say("send", sendto(a, "after", 5, 0, to, len));
    receive("as before", b, 100, 512, 0);
    struct in_pktinfo info = {.ipi_spec_dst = here.sin_addr};
    send_with("a source", a, &there, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
    receive("from it", b, 100, 512, 0);
    ttl = 0;
    send_with("a TTL of 0", a, &there, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
    ttl = 300;
    send_with("a TTL of 300", a, &there, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
    send_with("a TTL that is too short", a, &there, IPPROTO_IP, IP_TTL, &ttl, 2);
    send_with("rights", a, &there, SOL_SOCKET, SCM_RIGHTS, &a, sizeof a);
    for (size_t control = 0; control <= 48; control += 12) {
        sendto(a, "cut", 3, 0, to, len);
        char what[40];
        snprintf(what, sizeof what, "room for %zu bytes", control);
        receive(what, b, 100, control, 0);
    }
    sendto(a, "much too long", 13, 0, to, len);
    receive("cut", b, 4, 0, MSG_PEEK);
    receive("cut, whole length", b, 4, 0, MSG_TRUNC);
    on = 0;
    setsockopt(b, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    setsockopt(b, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    setsockopt(b, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    on = 1;
    setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
    sendto(a, "time", 4, 0, to, len);
    receive("with a time", b, 100, 512, 0);
    on = 0;
    setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
    sendto(a, "", 0, 0, to, len);
    receive("nothing", b, 100, 512, 0);
    say("too long", sendto(a, bytes_of(70000), 70000, 0, to, len));
    say("urgent", sendto(a, "x", 1, MSG_OOB, to, len));
    /* The kernel's loopback delivers within the call that sends, an engine soon after it. */
    await_bits(b, POLLIN);
    say("recv urgent", recv(b, &on, 1, MSG_OOB | MSG_DONTWAIT));
    say("to nobody", send(a, "x", 1, 0));
    close(a);
    close(b);
}

/* The same by the numbers of the calls, as libuv makes them. */
static void by_number(int a, int b) {
    char got[2][10] = {{0}};
    struct iovec out[2] = {{"one", 3}, {"two", 3}}, in[2] = {{got[0], 9}, {got[1], 9}};
    struct mmsghdr many[2] = {{{0}, 0}};
    for (int i = 0; i < 2; i++)
        many[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
    say("sendmmsg by number", (int)syscall(SYS_sendmmsg, a, many, 2, 0));
    for (int i = 0; i < 2; i++)
        many[i].msg_hdr = (struct msghdr){.msg_iov = &in[i], .msg_iovlen = 1};
    struct timespec second = {1, 0};
    struct pollfd readable = {b, POLLIN, 0};
    say("ppoll by number", (int)syscall(SYS_ppoll, &readable, 1, &second, NULL, 8));
    rest(50);
    say("recvmmsg by number", (int)syscall(SYS_recvmmsg, b, many, 2, MSG_DONTWAIT, NULL));
    printf("%s %s\n", got[0], got[1]);
    say("and nothing more", (int)syscall(SYS_recvmmsg, b, many, 2, MSG_DONTWAIT, NULL));
    send(a, "three", 5, 0);
    int set = (int)syscall(SYS_epoll_create1, 0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.fd = b}, event = {0};
    say("epoll_ctl by number", (int)syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, b, &wanted));
    say("epoll_pwait2 by number", (int)syscall(SYS_epoll_pwait2, set, &event, 1, &second, NULL, 8));
#ifdef SYS_epoll_wait
    say("epoll_wait by number", (int)syscall(SYS_epoll_wait, set, &event, 1, 1000));
    say("poll by number", (int)syscall(SYS_poll, &readable, 1, 1000));
    fd_set bits;
    FD_ZERO(&bits);
    FD_SET(b, &bits);
    struct timeval time = {1, 0};
    say("select by number", (int)syscall(SYS_select, b + 1, &bits, NULL, NULL, &time));
    int other = dup(a);
    say("dup2 by number", (int)syscall(SYS_dup2, b, other) == other);
    say("and what it has", (int)recv(other, got[0], 9, MSG_DONTWAIT));
    close(other);
#endif
    close(set);
}

static void together(void) {
    struct sockaddr_in here, there;
    int a = bound(SOCK_DGRAM, &here), b = bound(SOCK_DGRAM, &there);
    must(connect(a, (struct sockaddr *)&there, sizeof there) == 0, "connect");
    say("MSG_MORE", send(a, "one ", 4, MSG_MORE));
    say("the end", send(a, "datagram", 8, 0));
    receive("together", b, 100, 0, 0);
    int on = 1, n = -1;
    say("UDP_CORK", setsockopt(a, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
    send(a, "an", 2, 0);
    send(a, "other", 5, 0);
    on = 0;
    say("without", setsockopt(a, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
    await_bits(b, POLLIN);
    say("FIONREAD", ioctl(b, FIONREAD, &n));
    printf("%d\n", n);
    receive("together", b, 100, 0, 0);

    struct iovec out[3] = {{"first", 5}, {"second", 6}, {"third", 5}};
    struct mmsghdr many[4] = {{{0}, 0}};
    for (int i = 0; i < 3; i++)
        many[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
    say("sendmmsg", sendmmsg(a, many, 3, 0));
    printf("%u %u %u\n", many[0].msg_len, many[1].msg_len, many[2].msg_len);
    char got[4][10] = {{0}};
    struct iovec in[4];
    for (int i = 0; i < 4; i++) {
        in[i] = (struct iovec){got[i], 9};
        many[i].msg_hdr = (struct msghdr){.msg_iov = &in[i], .msg_iovlen = 1};
    }
    struct timespec time = {0, 1000000};
    for (int i = 0; i < 500 && (ioctl(b, FIONREAD, &n), n == 0); i++)
        rest(2);
    rest(50);
    say("recvmmsg", recvmmsg(b, many, 4, MSG_DONTWAIT, &time));
    printf("%s %s %s\n", got[0], got[1], got[2]);
    say("with nothing there", recvmmsg(b, many, 4, MSG_DONTWAIT, NULL));
    send(a, "alone", 5, 0);
    say("for one", recvmmsg(b, many, 4, MSG_WAITFORONE, NULL));
    by_number(a, b);
    close(a);
    close(b);
}

static void errors(void) {
    struct sockaddr_in here, gone;
    int a = bound(SOCK_DGRAM, &here), b = bound(SOCK_DGRAM, &gone), on = 1;
    close(b);
    must(connect(a, (struct sockaddr *)&gone, sizeof gone) == 0, "connect");
    say("to a closed port", send(a, "lost", 4, 0));
    printf("POLLERR: %d\n", await_bits(a, 0) | !!await_bits(a, POLLERR));
    say("is told once", recv(a, &on, 1, MSG_DONTWAIT));
    say("and not again", recv(a, &on, 1, MSG_DONTWAIT));
    on = 1;
    say("IP_RECVERR", setsockopt(a, IPPROTO_IP, IP_RECVERR, &on, sizeof on));
    receive("nothing in the queue", a, 100, 512, MSG_ERRQUEUE);
    say("to a closed port", send(a, "lost", 4, 0));
    printf("POLLERR: %d\n", !!await_bits(a, POLLERR));
    int error = 0;
    socklen_t len = sizeof error;
    getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &len);
    printf("SO_ERROR: %d\n", error);
    char bytes[100];
    union {
        char bytes[512];
        struct cmsghdr align;
    } messages;
    struct sockaddr_in to;
    struct iovec one = {bytes, sizeof bytes};
    struct msghdr header = {&to, sizeof to, &one, 1, messages.bytes, sizeof messages, 0};
    say("the queue", recvmsg(a, &header, MSG_ERRQUEUE));
    struct cmsghdr *message = CMSG_FIRSTHDR(&header);
    struct sock_extended_err *told = (struct sock_extended_err *)CMSG_DATA(message);
    struct sockaddr_in *offender = (struct sockaddr_in *)SO_EE_OFFENDER(told);
    printf("flags %x, %d/%d of %zu bytes, errno %u, origin %d, type %d, code %d, from %s\n",
           header.msg_flags, message->cmsg_level, message->cmsg_type, (size_t)message->cmsg_len,
           told->ee_errno, told->ee_origin, told->ee_type, told->ee_code,
           inet_ntoa(offender->sin_addr));
    printf("it was for the port: %d\n", to.sin_port == gone.sin_port);
    receive("once only", a, 100, 512, MSG_ERRQUEUE);
    close(a);
}

/* Several datagrams by one call: cut by the sender, joined by the receiver. */
static void segments(void) {
    struct sockaddr_in here, there;
    int a = bound(SOCK_DGRAM, &here), b = bound(SOCK_DGRAM, &there), size = 1000, on = 1;
    must(connect(a, (struct sockaddr *)&there, sizeof there) == 0, "connect");
    socklen_t len = sizeof on;
    say("UDP_SEGMENT", setsockopt(a, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
    say("too long", setsockopt(a, IPPROTO_UDP, UDP_SEGMENT, &(int){65536}, sizeof size));
    say("asked", getsockopt(a, IPPROTO_UDP, UDP_SEGMENT, &on, &len));
    printf("%d\n", on);
    static char all[4000], got[8000];
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)(i / 7);
    say("send of 2500", send(a, all, 2500, 0));
    for (int i = 0; i < 3; i++) {
        must(await_bits(b, POLLIN) == POLLIN, "poll");
        say("one by one", recv(b, got, sizeof got, 0));
        printf("its bytes: %d\n", memcmp(got, all + i * 1000, i < 2 ? 1000 : 500) == 0);
    }
    on = 1;
    say("UDP_GRO", setsockopt(b, IPPROTO_UDP, UDP_GRO, &on, sizeof on));
    struct iovec one = {all, 3200};
    union {
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
        struct cmsghdr align;
    } asks = {0};
    struct msghdr header = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = asks.bytes, .msg_controllen = sizeof asks.bytes};
    struct cmsghdr *message = CMSG_FIRSTHDR(&header);
    message->cmsg_level = IPPROTO_UDP;
    message->cmsg_type = UDP_SEGMENT;
    message->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    memcpy(CMSG_DATA(message), &(uint16_t){800}, sizeof(uint16_t));
    say("sendmsg in pieces of 800", sendmsg(a, &header, 0));
    rest(200);
    struct iovec room = {got, sizeof got};
    union {
        char bytes[256];
        struct cmsghdr align;
    } told;
    struct msghdr in = {.msg_iov = &room, .msg_iovlen = 1, .msg_control = told.bytes, .msg_controllen = sizeof told.bytes};
    say("joined", recvmsg(b, &in, MSG_DONTWAIT));
    printf("the bytes: %d\n", memcmp(got, all, 3200) == 0);
    message = CMSG_FIRSTHDR(&in);
    if (message)
        printf("%d/%d: %d\n", message->cmsg_level, message->cmsg_type, *(int *)CMSG_DATA(message));
    say("and nothing else", recv(b, got, sizeof got, MSG_DONTWAIT));
    say("one alone", send(a, all, 300, 0));
    must(await_bits(b, POLLIN) == POLLIN, "poll");
    in.msg_controllen = sizeof told.bytes;
    say("is received", recvmsg(b, &in, 0));
    printf("without a message: %d\n", CMSG_FIRSTHDR(&in) == NULL);
    header.msg_controllen = CMSG_LEN(1);
    memset(asks.bytes, 0, sizeof asks.bytes);
    message = CMSG_FIRSTHDR(&header);
    message->cmsg_level = IPPROTO_UDP;
    message->cmsg_type = UDP_SEGMENT;
    message->cmsg_len = CMSG_LEN(1);
    say("a message that is too short", sendmsg(a, &header, 0));
    size = IP_PMTUDISC_OMIT;
    say("IP_PMTUDISC_OMIT", setsockopt(a, IPPROTO_IP, IP_MTU_DISCOVER, &size, sizeof size));
    say("nonsense", setsockopt(a, IPPROTO_IP, IP_MTU_DISCOVER, &(int){6}, sizeof size));
    close(a);
    close(b);
    struct timeval time = {0, 100000};
    a = bound(SOCK_DGRAM, &here);
    say("SO_RCVTIMEO", setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    say("ends a receive", recv(a, got, sizeof got, 0));
    close(a);
}

/* One socket for each peer at one address, and one for who comes next, as servers have it. */
static void peers(void) {
    struct sockaddr_in here, first, second;
    int on = 1, server = socket(AF_INET, SOCK_DGRAM, 0), next = socket(AF_INET, SOCK_DGRAM, 0);
    int a = bound(SOCK_DGRAM, &first), b = bound(SOCK_DGRAM, &second);
    socklen_t len = sizeof here;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(next, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    here = loopback(0);
    must(bind(server, (struct sockaddr *)&here, len) == 0, "bind");
    must(getsockname(server, (struct sockaddr *)&here, &len) == 0, "getsockname");
    must(connect(a, (struct sockaddr *)&here, len) == 0, "connect");
    must(connect(b, (struct sockaddr *)&here, len) == 0, "connect");
    send(a, "one", 3, 0);
    receive("from the first", server, 100, 0, 0);
    must(connect(server, (struct sockaddr *)&first, len) == 0, "connect");
    say("the next one", bind(next, (struct sockaddr *)&here, len));
    for (int i = 0; i < 3; i++) {
        send(a, "of the first", 12, 0);
        send(b, "of the second", 13, 0);
        receive("at the first's", server, 100, 0, 0);
        receive("at the next", next, 100, 0, 0);
    }
    say("no more", recv(server, &on, 1, MSG_DONTWAIT));
    say("nor here", recv(next, &on, 1, MSG_DONTWAIT));
    close(next);
    send(b, "to nobody", 9, 0);
    printf("refused: %d\n", !!(await_bits(b, POLLERR) & POLLERR));
    say("it is told", recv(b, &on, 1, MSG_DONTWAIT));
    close(server);
    close(a);
    close(b);
}

static void at(const char *what, int fd, int (*ask)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_in address = {0};
    socklen_t len = sizeof address;
    if (say(what, ask(fd, (struct sockaddr *)&address, &len)) == 0)
        printf("  %s, port %s\n", inet_ntoa(address.sin_addr), address.sin_port ? "some" : "none");
}

/* connect to AF_UNSPEC: it hears everybody again, at the address that it was bound to, and has nowhere to send to. */
static void disconnected(void) {
    struct sockaddr_in here, first, second;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int taken = bound(SOCK_DGRAM, &here), a = bound(SOCK_DGRAM, &first), b = bound(SOCK_DGRAM, &second);
    socklen_t len = sizeof here;
    struct sockaddr *to = (struct sockaddr *)&here;
    /* The port is the program's own choice, so that it stays. */
    close(taken);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    must(bind(s, to, len) == 0, "bind");
    say("without a peer", send(s, "x", 1, 0));
    for (int i = 0; i < 2; i++) {
        must(connect(s, (struct sockaddr *)&first, len) == 0, "connect");
        at("the peer", s, getpeername);
        sendto(b, "from a stranger", 15, 0, to, len);
        sendto(a, "from the peer", 13, 0, to, len);
        receive("connected", s, 100, 0, 0);
        say("no more", recv(s, &none, 1, MSG_DONTWAIT));
        /* What waits is received afterwards, too. */
        sendto(a, "before", 6, 0, to, len);
        await_bits(s, POLLIN);
        say("too short", connect(s, &none, 1));
        say("AF_UNSPEC", connect(s, &none, i ? sizeof none : sizeof none.sa_family));
        at("no peer", s, getpeername);
        at("the same place", s, getsockname);
        say("nowhere to", send(s, "x", 1, 0));
        say("nowhere to, by sendmsg", sendmsg(s, &(struct msghdr){0}, 0));
        receive("what came before", s, 100, 0, 0);
        sendto(b, "from another", 12, 0, to, len);
        receive("disconnected", s, 100, 0, 0);
        sendto(a, "from the old one", 16, 0, to, len);
        receive("disconnected", s, 100, 0, 0);
        say("to another", sendto(s, "hello", 5, 0, (struct sockaddr *)&second, len));
        receive("at the other", b, 100, 0, 0);
    }
    say("once more", connect(s, &none, sizeof none));
    must(connect(s, (struct sockaddr *)&second, len) == 0, "connect");
    sendto(a, "from a stranger", 15, 0, to, len);
    sendto(b, "from the new peer", 17, 0, to, len);
    receive("connected again", s, 100, 0, 0);
    say("to it", send(s, "there", 5, 0));
    receive("at the new peer", b, 100, 0, 0);
    /* A child has no peer either. */
    must(connect(s, &none, sizeof none) == 0, "connect");
    fflush(stdout);
    if (fork() == 0) {
        at("no peer in a child", s, getpeername);
        say("nowhere to", send(s, "x", 1, 0));
        must(connect(s, (struct sockaddr *)&first, len) == 0, "connect");
        must(connect(s, &none, sizeof none) == 0, "connect");
        exit(0);
    }
    wait(NULL);
    sendto(b, "for the parent", 14, 0, to, len);
    receive("in the parent", s, 100, 0, 0);
    say("nowhere to", send(s, "x", 1, 0));
    close(s);
    /* A stream's socket that is not connected. */
    s = socket(AF_INET, SOCK_STREAM, 0);
    say("a stream", connect(s, &none, sizeof none));
    close(s);
    close(a);
    close(b);
}

int main(void) {
    beside();
    peers();
    disconnected();
    together();
    segments();
    errors();
    return 0;
}
