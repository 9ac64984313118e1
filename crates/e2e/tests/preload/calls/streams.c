/* Streams: urgent data, what waits for more, what is queued, files and pipes, descriptors. */
#include "common.h"

static char bytes[100000];

/* Reads `wanted` bytes; how many came. */
static long all(int fd, char *into, long wanted) {
    long got = 0, n = 1;
    while (got < wanted && await_bits(fd, POLLIN) && (n = read(fd, into + got, wanted - got)) > 0)
        got += n;
    return got;
}

static void urgent(void) {
    int ends[2], mark = -1;
    connected(ends);
    char got[16];
    say("MSG_OOB with nothing", recv(ends[1], got, 1, MSG_OOB));
    say("send urgent", send(ends[0], "abc", 3, MSG_OOB));
    printf("POLLPRI: %d\n", await_bits(ends[1], POLLPRI) == POLLPRI);
    say("SIOCATMARK", ioctl(ends[1], SIOCATMARK, &mark));
    printf("at the mark: %d, by libc: %d\n", mark, sockatmark(ends[1]));
    say("peek out of band", recv(ends[1], got, 5, MSG_OOB | MSG_PEEK));
    struct iovec one = {got, sizeof got};
    struct msghdr header = {.msg_iov = &one, .msg_iovlen = 1};
    say("recvmsg out of band", recvmsg(ends[1], &header, MSG_OOB));
    printf("%c, flags %x\n", got[0], header.msg_flags);
    say("once only", recv(ends[1], got, 1, MSG_OOB));
    say("the rest stops before it", recv(ends[1], got, sizeof got, 0));
    printf("now at the mark: %d\n", sockatmark(ends[1]));
    say("and nothing more", recv(ends[1], got, sizeof got, MSG_DONTWAIT));
    int on = 1;
    say("SO_OOBINLINE", setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
    say("send urgent", send(ends[0], "de", 2, MSG_OOB));
    printf("POLLPRI: %d\n", await_bits(ends[1], POLLPRI) == POLLPRI);
    say("MSG_OOB in line", recv(ends[1], got, 1, MSG_OOB));
    say("up to the mark", recv(ends[1], got, sizeof got, 0));
    say("the mark", recv(ends[1], got, sizeof got, 0));
    printf("%c\n", got[0]);
    say("MSG_OOB with MSG_DONTWAIT", recv(ends[1], got, 1, MSG_OOB | MSG_DONTWAIT));
}

static void more(void) {
    int ends[2], n = -1, on = 1;
    connected(ends);
    char got[64];
    say("MSG_MORE", send(ends[0], "begun ", 6, MSG_MORE));
    rest(20);
    say("what waits does not come yet", recv(ends[1], got, sizeof got, MSG_DONTWAIT));
    say("the end", send(ends[0], "ended", 5, 0));
    printf("together: %ld\n", all(ends[1], got, 11));
    say("TCP_CORK", setsockopt(ends[0], IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    say("corked", send(ends[0], "corked", 6, 0));
    rest(20);
    say("nor does it", recv(ends[1], got, sizeof got, MSG_DONTWAIT));
    on = 0;
    say("without", setsockopt(ends[0], IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    await_bits(ends[1], POLLIN);
    say("FIONREAD", ioctl(ends[1], FIONREAD, &n));
    printf("%d\n", n);
    say("peek and truncate", recv(ends[1], got, 3, MSG_PEEK));
    say("MSG_TRUNC throws away", recv(ends[1], got, 2, MSG_WAITALL));
    say("MSG_WAITALL", recv(ends[1], got, 4, MSG_WAITALL));
    for (int i = 0; i < 200 && (ioctl(ends[0], TIOCOUTQ, &n), n); i++)
        rest(10);
    printf("SIOCOUTQ in the end: %d\n", n);
    say("MSG_ERRQUEUE", recv(ends[1], got, 1, MSG_ERRQUEUE));
    say("read of no bytes", read(ends[1], got, 0));
    say("send of no bytes", send(ends[0], got, 0, 0));
    struct iovec pieces[3] = {{"a", 1}, {NULL, 0}, {"bc", 2}};
    say("writev", writev(ends[0], pieces, 3));
    struct iovec room[2] = {{got, 1}, {got + 1, 2}};
    await_bits(ends[1], POLLIN);
    say("preadv2 at -1", preadv2(ends[1], room, 2, -1, 0));
    say("preadv2 at 0", preadv2(ends[1], room, 2, 0, 0));
    say("pwritev2 at -1", pwritev2(ends[0], pieces, 3, -1, 0));
    say("pread", pread(ends[1], got, 1, 0));
    say("lseek", lseek(ends[1], 0, SEEK_CUR));
    say("shut down", shutdown(ends[0], SHUT_WR));
    say("send after that", send(ends[0], "x", 1, MSG_NOSIGNAL));
    printf("what was before: %ld\n", all(ends[1], got, 3));
    say("the end", recv(ends[1], got, 1, 0));
    say("shut down with nonsense", shutdown(ends[0], 9));
}

static void files(void) {
    int ends[2], pipe_ends[2];
    connected(ends);
    must(pipe(pipe_ends) == 0, "pipe");
    FILE *file = tmpfile();
    must(file && fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && !fflush(file), "tmpfile");
    int fd = fileno(file);
    static char got[sizeof bytes];
    off_t at = 1000;
    say("sendfile", sendfile(ends[0], fd, &at, 5000));
    printf("offset %ld\n", (long)at);
    off64_t at64 = 0;
    say("sendfile64", sendfile64(ends[0], fd, &at64, 100));
    lseek(fd, 90000, SEEK_SET);
    say("sendfile from its place", sendfile(ends[0], fd, NULL, 50000));
    printf("place %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    long n = all(ends[1], got, 15100);
    bool same = !memcmp(got, bytes + 1000, 5000) && !memcmp(got + 5000, bytes, 100)
        && !memcmp(got + 5100, bytes + 90000, 10000);
    printf("came: %ld, same: %d\n", n, same);
    say("sendfile from a socket", sendfile(ends[0], ends[1], NULL, 1));
    at = -1;
    say("sendfile from before the file", sendfile(ends[0], fd, &at, 1));

    must(write(pipe_ends[1], bytes, 3000) == 3000, "write");
    say("splice out of a pipe", splice(pipe_ends[0], NULL, ends[0], NULL, 3000, SPLICE_F_MORE));
    say("splice from an empty pipe",
        splice(pipe_ends[0], NULL, ends[0], NULL, 1, SPLICE_F_NONBLOCK));
    must(send(ends[0], "!", 1, 0) == 1, "send");
    memset(got, 0, sizeof got);
    n = 0;
    while (n < 3001) {
        long moved = splice(ends[1], NULL, pipe_ends[1], NULL, sizeof got, 0);
        must(moved > 0 && read(pipe_ends[0], got + n, moved) == moved, "splice");
        n += moved;
    }
    printf("spliced: %ld, same: %d\n", n, !memcmp(got, bytes, 3000) && got[3000] == '!');
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    say("splice from nothing", splice(ends[1], NULL, pipe_ends[1], NULL, 10, 0));
    fcntl(ends[1], F_SETFL, 0);
    loff_t place = 0;
    say("splice with a place", splice(pipe_ends[0], NULL, ends[0], &place, 10, 0));
    say("splice without a pipe", splice(ends[1], NULL, ends[0], NULL, 10, 0));
    shutdown(ends[0], SHUT_WR);
    await_bits(ends[1], POLLIN);
    say("splice at the end", splice(ends[1], NULL, pipe_ends[1], NULL, 10, 0));
}

static void numbers(void) {
    int ends[2];
    connected(ends);
    char got[8];
    int high = fcntl(ends[0], F_DUPFD, 100);
    int closing = fcntl(ends[0], F_DUPFD_CLOEXEC, 100);
    printf("F_DUPFD: %d, F_DUPFD_CLOEXEC: %d, flags %d %d\n", high, closing,
           fcntl(high, F_GETFD), fcntl(closing, F_GETFD));
    say("dup3 with O_CLOEXEC", dup3(ends[0], 105, O_CLOEXEC));
    printf("flags %d\n", fcntl(105, F_GETFD));
    say("dup3 onto itself", dup3(105, 105, 0));
    say("dup3 with nonsense", dup3(105, 106, 1));
    say("dup2 onto itself", dup2(105, 105));
    say("dup of nothing", dup(999));
    say("F_DUPFD of nothing", fcntl(999, F_DUPFD, 0));
    must(fcntl(105, F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
    printf("flags are the socket's: %d\n", !!(fcntl(high, F_GETFL) & O_NONBLOCK));
    int on = 0;
    say("FIONBIO off", ioctl(high, FIONBIO, &on));
    printf("for all: %d\n", !!(fcntl(105, F_GETFL) & O_NONBLOCK));
    close(ends[0]);
    say("close_range", close_range(high, closing, 0));
    say("it is closed", send(high, "x", 1, 0));
    say("the last still sends", send(105, "still", 5, 0));
    printf("came: %ld\n", all(ends[1], got, 5));
    say("close_range with CLOEXEC", close_range(ends[1], ends[1], CLOSE_RANGE_CLOEXEC));
    printf("flags %d\n", fcntl(ends[1], F_GETFD));
    say("close_range backwards", close_range(9, 8, 0));
    int other = open("/dev/null", O_RDWR);
    say("dup2 over the last", dup2(other, 105));
    printf("the peer sees the end: %d\n", !!await_bits(ends[1], POLLIN));
    say("recv", recv(ends[1], got, 1, 0));
    say("recv of what is no socket", recv(105, got, 1, 0));
    struct stat stat;
    printf("a socket: %d\n", fstat(ends[1], &stat) == 0 && S_ISSOCK(stat.st_mode));
}

int main(void) {
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    urgent();
    more();
    files();
    numbers();
    return 0;
}
