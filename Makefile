# What a person types. Each target installs what it needs (Debian packages, cargo tools) and says plainly what is missing where it cannot.

.PHONY: help build demo test lint bench doc clean setup-demo setup-test

CARGO ?= cargo

help:
	@echo "make demo    build, start an engine on a TAP, serve real clients, print the table beside the kernel's figures"
	@echo "make test    install what the tests need and run all of them"
	@echo "make lint    formatting, clippy, licences, source-tree checks"
	@echo "make bench   counted instructions and times"
	@echo "make build   release binaries in target/release (sidecore, userver)"

build:
	$(CARGO) build --release --workspace --bins

setup-demo:
	@scripts/setup.sh iproute2:ip

setup-test:
	@scripts/setup.sh iproute2:ip curl:curl wrk:wrk tcpdump:tcpdump g++:c++ dnsmasq-base:dnsmasq nginx-light:nginx wget:wget apache2-utils:ab redis-server:redis-server redis-tools:redis-benchmark memcached:memcached haproxy:haproxy openssl:openssl python3:python3 iperf3:iperf3 socat:socat netcat-openbsd:nc cargo-nextest:cargo-nextest

demo: setup-demo build
	target/release/sidecore demo $(DEMO_ARGS)

test: setup-test
	@scripts/test.sh

lint:
	@scripts/lint.sh

bench:
	@scripts/setup.sh valgrind:valgrind
	@scripts/bench.sh

doc:
	$(CARGO) doc --workspace --no-deps

clean:
	$(CARGO) clean
