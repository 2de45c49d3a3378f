# The commands of the README. Everything that is needed is installed by them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
export CARGO_TERM_PROGRESS_WHEN := never
# Programs of administrators are not in everybody's path.
export PATH := $(PATH):/usr/sbin:/sbin

root := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

.PHONY: up
up: packages ## install what is needed, build, start Orlop in the background with a demo VM
	@[ -e target/quick/orlop ] || echo "building orlop: some minutes on two cores, once"
	CARGO_TERM_PROGRESS_WHEN=auto cargo build --profile quick --locked --package orlop
	examples/demo

.PHONY: down
down: ## stop the demo VM and everything else, leave nothing running
	@examples/demo down

# A change is judged by the same cases every time; `make fuzz` looks for new ones.
test test-peers: export PROPTEST_RNG_SEED ?= 1

# One build of everything, tests included, serves all steps below: the same packages, features and profile.
.PHONY: test
test: test-packages ## install what is needed, run every test
	guest/build > /dev/null
	cargo test --workspace --locked
	cargo xtask tidy

.PHONY: test-peers
test-peers: test-packages peers ## run what depends on the real peers
	export ORLOP_PEERS=$$(e2e/peers/build --dir)
	# The build of `make test`, whole: another choice of targets has other features, and would build nearly all of it again.
	cargo test --workspace --locked --no-run 2>&1 | tee target/tests.txt
	failed=
	for program in $$(sed -n 's/^ *Executable tests.*(\(.*\/peers_[^)]*\))$$/\1/p' target/tests.txt); do
	    echo "     Running $$program"
	    "$$program" --include-ignored || failed="$$failed $$program"
	done
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

.PHONY: fuzz
fuzz: ## run the property tests with new seeds until one fails (Ctrl-C stops it)
	while true; do
	    export PROPTEST_RNG_SEED=$$RANDOM$$RANDOM
	    echo "PROPTEST_RNG_SEED=$$PROPTEST_RNG_SEED"
	    cargo test --quiet --locked --package api --package apiserver --package hypervisor --package kube-controllers \
	        --package manager --package network --package storage --package structural --package virt-launcher \
	        --lib --test fuzz --test roundtrip
	done

.PHONY: sim
sim: ## run the simulation with new seeds until one fails (Ctrl-C stops it)
	while true; do
	    cargo run --quiet --locked --package bench --bin sim -- --from $$((RANDOM * 32768 + RANDOM)) --seeds 200
	done

.PHONY: peers
peers: test-packages ## build or fetch the real programs that Orlop is compared with, once
	e2e/peers/build

.PHONY: lint
lint: ## lints and formatting, as CI checks them
	cargo clippy --workspace --all-targets --locked -- --deny warnings
	cargo fmt --all --check

.PHONY: generate
generate: ## write the files that are generated and checked in
	cargo xtask crds

# To run: a C compiler links; QEMU and its firmware run guests; the last line is for pods and their networks. QEMU's two
# packages are named together: Debian's qemu-system-x86 may remove a newer qemu-utils.
to_run := cc:build-essential git:git \
    qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils /usr/share/OVMF/OVMF_CODE_4M.fd:ovmf \
    runc:runc nft:nftables iptables:iptables ip:iproute2 /usr/lib/cni/bridge:containernetworking-plugins

# To test: a real registry and what fills it, what reads disks and certificates, what ends test programs with their test
# (setpriv), and what stands in for a broken QEMU.
to_test := docker-registry:docker-registry skopeo:skopeo xorriso:xorriso isoinfo:genisoimage openssl:openssl \
    setpriv:util-linux blkid:util-linux mkfs.ext4:e2fsprogs python3:python3

# Installs what is missing of a list; with everything there it needs no network.
define install
	@missing=()
	for pair in $(1); do
	    command -v "$${pair%%:*}" >/dev/null || [ -e "$${pair%%:*}" ] || missing+=("$${pair##*:}")
	done
	if [ $${#missing[@]} -gt 0 ]; then
	    echo "installing $${missing[*]}"
	    $(root) apt-get update -qq
	    $(root) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$${missing[@]}"
	fi
endef

.PHONY: toolchain
toolchain:
	@command -v cargo >/dev/null || { echo "a Rust toolchain is needed: https://rustup.rs"; exit 1; }
	needed=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
	found=$$(cargo --version | cut -d ' ' -f 2)
	[ "$$(printf '%s\n' "$$needed" "$$found" | sort -V | head -n 1)" = "$$needed" ] \
	    || { echo "Rust $$needed or newer is needed, and this is $$found: rustup update"; exit 1; }

.PHONY: packages
packages: toolchain
	$(call install,$(to_run))

.PHONY: test-packages
test-packages: packages
	$(call install,$(to_test))
