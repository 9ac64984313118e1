# What a person types. Each target installs what it needs (Debian packages, cargo tools) and says plainly what is missing where it cannot.

.PHONY: help build demo test lint bench doc header install install-programs install-dusi install-exs build-capi clean setup-demo setup-test

CARGO ?= cargo

help:
	@echo "make demo    build, start an engine on a TAP, serve real clients, print the table beside the kernel's figures"
	@echo "make test    install what the tests need and run all of them"
	@echo "make lint    formatting, clippy, licences, source-tree checks"
	@echo "make bench   counted instructions and times"
	@echo "make install PREFIX=/usr/local   programs, their library, and the C interfaces with man pages and pkg-config files (DESTDIR is honoured)"
	@echo "make header  the C interfaces' headers and man pages anew, after a change of their source"
	@echo "make build   release binaries in target/release (sidecore, userver, and what sidecore run loads)"

build:
	$(CARGO) build --release --workspace --bins
	$(CARGO) build --release -p sidecore-preload

setup-demo:
	@scripts/setup.sh iproute2:ip

setup-test:
	@scripts/setup.sh iproute2:ip curl:curl wrk:wrk tcpdump:tcpdump gcc:cc g++:c++ binutils:readelf pkg-config:pkg-config dnsmasq-base:dnsmasq nginx-light:nginx wget:wget apache2-utils:ab redis-server:redis-server redis-tools:redis-benchmark memcached:memcached haproxy:haproxy openssl:openssl python3:python3 iperf3:iperf3 nftables:nft ?libpython3.11-testsuite:/usr/lib/python3.11/test/test_socket.py socat:socat netcat-openbsd:nc postgresql:pgbench nodejs:node openjdk-17-jdk-headless:javac openssh-client:ssh openssh-server:sshd python3-requests:/usr/lib/python3/dist-packages/requests apache2-bin:apache2 rsync:rsync git:git lighttpd:lighttpd php-cli:php bind9-dnsutils:dig ?unbound:unbound ?stunnel4:stunnel4 ?varnish:varnishd ?gunicorn:gunicorn ?uvicorn:uvicorn ?mosquitto:mosquitto ?mosquitto-clients:mosquitto_pub cargo-nextest:cargo-nextest

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

# Where `make install` puts things.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
CAPI := crates/capi
EXS := crates/exs
CAPI_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Another profile's libraries are installed by giving their folder.
CAPI_BUILT ?= target/release
BUILD_FIRST = $(if $(filter target/release,$(CAPI_BUILT)),build-capi)

build-capi:
	$(CARGO) build --release -p sidecore-capi -p sidecore-exs

# The library $(1), of which programs ask for version 0, with its static form and man pages of the crate $(2), and the pkg-config file $(3).
define install_library
	install -d "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(PREFIX)/include/sys" "$(DESTDIR)$(PREFIX)/share/man/man3" "$(DESTDIR)$(PREFIX)/share/man/man7"
	install -m 755 $(CAPI_BUILT)/$(1).so "$(DESTDIR)$(LIBDIR)/$(1).so.$(CAPI_VERSION)"
	ln -sf $(1).so.$(CAPI_VERSION) "$(DESTDIR)$(LIBDIR)/$(1).so.0"
	ln -sf $(1).so.0 "$(DESTDIR)$(LIBDIR)/$(1).so"
	install -m 644 $(CAPI_BUILT)/$(1).a "$(DESTDIR)$(LIBDIR)"
	install -m 644 $(2)/man/*.3 "$(DESTDIR)$(PREFIX)/share/man/man3"
	install -m 644 $(2)/man/*.7 "$(DESTDIR)$(PREFIX)/share/man/man7"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(CAPI_VERSION)|' $(2)/$(3).pc.in \
		>"$(DESTDIR)$(LIBDIR)/pkgconfig/$(3).pc"
endef

install: install-programs install-dusi install-exs

# `sidecore run` looks for its library in ../lib/sidecore.
install-programs: $(if $(BUILD_FIRST),build)
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib/sidecore"
	install -m 755 $(CAPI_BUILT)/sidecore $(CAPI_BUILT)/userver "$(DESTDIR)$(PREFIX)/bin"
	install -m 644 $(CAPI_BUILT)/libsidecore_preload.so "$(DESTDIR)$(PREFIX)/lib/sidecore"

install-dusi: $(BUILD_FIRST)
	$(call install_library,libsidecore_dusi,$(CAPI),sidecore-dusi)
	install -m 644 $(CAPI)/include/dusi.h "$(DESTDIR)$(PREFIX)/include"

install-exs: $(BUILD_FIRST)
	$(call install_library,libexs,$(EXS),sidecore-exs)
	install -m 644 $(EXS)/include/sys/exs.h "$(DESTDIR)$(PREFIX)/include/sys"

clean:
	$(CARGO) clean
