/* What the examples share: arguments, and what is done about errors. */
#ifndef DUSI_EXAMPLE_H
#define DUSI_EXAMPLE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dusi.h>

/* Ends the program unless a call was answered DUSI_OK. */
static void must(Dusi_Status status, const char *what)
{
    if (status != DUSI_OK) {
        fprintf(stderr, "%s: %s\n", what, Dusi_Status_String(status));
        exit(1);
    }
}

/* The arguments of both programs: --socket PATH, --address IP, --port N, --count N. */
typedef struct Options {
    const char *socket;
    struct sockaddr_in address;
    long count;
} Options;

static Options options(int argc, char **argv, long count)
{
    Options found;
    int i;
    memset(&found, 0, sizeof found);
    found.count = count;
    found.address.sin_family = AF_INET;
    found.address.sin_port = htons(7);
    for (i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--socket") == 0) {
            found.socket = value;
        } else if (strcmp(argv[i], "--address") == 0 && inet_pton(AF_INET, value, &found.address.sin_addr) == 1) {
            continue;
        } else if (strcmp(argv[i], "--port") == 0) {
            found.address.sin_port = htons((uint16_t)strtoul(value, NULL, 10));
        } else if (strcmp(argv[i], "--count") == 0) {
            found.count = strtol(value, NULL, 10);
        } else {
            break;
        }
    }
    if (i < argc) {
        fprintf(stderr, "usage: %s [--socket PATH] [--address IP] [--port N] [--count N]\n", argv[0]);
        exit(2);
    }
    return found;
}

#endif
