# What a person types. Each target installs what it needs (Debian packages, cargo tools) and says plainly what is missing where it cannot.

.PHONY: help build demo test lint bench doc header install build-capi clean setup-demo setup-test

CARGO ?= cargo

help:
	@echo "make demo    build, start an engine on a TAP, serve real clients, print the table beside the kernel's figures"
	@echo "make test    install what the tests need and run all of them"
	@echo "make lint    formatting, clippy, licences, source-tree checks"
	@echo "make bench   counted instructions and times"
	@echo "make install PREFIX=/usr/local   the C interface: library, header, man pages, pkg-config file (DESTDIR is honoured)"
	@echo "make header  the C interface's header and man pages anew, after a change of its source"
	@echo "make build   release binaries in target/release (sidecore, userver)"

build:
	$(CARGO) build --release --workspace --bins

setup-demo:
	@scripts/setup.sh iproute2:ip

setup-test:
	@scripts/setup.sh iproute2:ip curl:curl wrk:wrk tcpdump:tcpdump gcc:cc g++:c++ binutils:readelf pkg-config:pkg-config dnsmasq-base:dnsmasq nginx-light:nginx wget:wget apache2-utils:ab redis-server:redis-server redis-tools:redis-benchmark memcached:memcached haproxy:haproxy openssl:openssl python3:python3 iperf3:iperf3 nftables:nft ?libpython3.11-testsuite:/usr/lib/python3.11/test/test_socket.py socat:socat netcat-openbsd:nc cargo-nextest:cargo-nextest

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

header:
	@scripts/setup.sh cbindgen:cbindgen
	$(CARGO) xtask header

# Where `make install` puts the C interface.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
CAPI := crates/capi
CAPI_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
CAPI_SONAME := libsidecore_dusi.so.0
# Another profile's libraries are installed by giving their folder.
CAPI_BUILT ?= target/release

build-capi:
	$(CARGO) build --release -p sidecore-capi

install: $(if $(filter target/release,$(CAPI_BUILT)),build-capi)
	install -d "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(PREFIX)/include" "$(DESTDIR)$(PREFIX)/share/man/man3" "$(DESTDIR)$(PREFIX)/share/man/man7"
	install -m 755 $(CAPI_BUILT)/libsidecore_dusi.so "$(DESTDIR)$(LIBDIR)/libsidecore_dusi.so.$(CAPI_VERSION)"
	ln -sf libsidecore_dusi.so.$(CAPI_VERSION) "$(DESTDIR)$(LIBDIR)/$(CAPI_SONAME)"
	ln -sf $(CAPI_SONAME) "$(DESTDIR)$(LIBDIR)/libsidecore_dusi.so"
	install -m 644 $(CAPI_BUILT)/libsidecore_dusi.a "$(DESTDIR)$(LIBDIR)"
	install -m 644 $(CAPI)/include/dusi.h "$(DESTDIR)$(PREFIX)/include"
	install -m 644 $(CAPI)/man/*.3 "$(DESTDIR)$(PREFIX)/share/man/man3"
	install -m 644 $(CAPI)/man/*.7 "$(DESTDIR)$(PREFIX)/share/man/man7"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(CAPI_VERSION)|' $(CAPI)/sidecore-dusi.pc.in \
		>"$(DESTDIR)$(LIBDIR)/pkgconfig/sidecore-dusi.pc"

clean:
	$(CARGO) clean
