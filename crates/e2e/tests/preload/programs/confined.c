/* It takes one connection, and then has nothing but read(2), write(2) and its end. */
#include <arpa/inet.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(8080)};
    if (count < 3 || !inet_aton(words[1], &at.sin_addr)) return 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 5)) return 2;
    close(accept(listener, 0, 0));
    int connection = accept(listener, 0, 0);
    close(listener);
    if (!strcmp(words[2], "prctl")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 3;
    } else if (!strcmp(words[2], "seccomp")) {
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL)) return 3;
    } else {
        if (syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0)) return 3;
    }
    char bytes[4096];
    ssize_t n;
    while ((n = read(connection, bytes, sizeof bytes)) > 0)
        for (ssize_t done = 0, m; done < n; done += m)
            if ((m = write(connection, bytes + done, n - done)) < 0) syscall(SYS_exit, 4);
    syscall(SYS_exit, 0);
}
