# Two commands do everything on a fresh Debian 12 machine: `make demo` and `make test`.
# Elsewhere scripts/setup says what is missing and goes on when nothing is.

CACHE ?= $(or $(SCX_RETUNE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/scx_retune)
# scripts/setup writes where its tools are; every recipe below reads it.
ENV = set -a && . $(CACHE)/env && set +a &&

.PHONY: all setup kernels build check demo test test-pure test-vm

all: build

setup:
	@SCX_RETUNE_CACHE=$(CACHE) scripts/setup

# The oldest kernels that the tests run on, besides the default one.
kernels:
	@SCX_RETUNE_CACHE=$(CACHE) scripts/setup --kernel 6.18 --kernel 6.16

build: setup
	@$(ENV) cargo build --locked --release

check: setup
	@$(ENV) cargo fmt --check && cargo clippy --locked --all-targets -- -D warnings

demo: build
	@$(ENV) scripts/demo

test: kernels
	@$(ENV) scripts/test pure vm

test-pure: setup
	@$(ENV) scripts/test pure

test-vm: kernels
	@$(ENV) scripts/test vm
