# The commands of the README. Everything that is needed is installed by them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
export CARGO_TERM_PROGRESS_WHEN := never
# Programs of administrators are not in everybody's path.
export PATH := $(PATH):/usr/sbin:/sbin

# Whatever a user's settings say: the program is looked for below.
export CARGO_TARGET_DIR := $(CURDIR)/target
unexport CARGO_BUILD_TARGET CARGO_BUILD_TARGET_DIR

# The way to packages is known to this user, and sudo would forget it.
proxies := $(foreach name,http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY,$(if $($(name)),$(name)='$($(name))'))
root := $(if $(filter 0,$(shell id -u)),,sudo env $(proxies))

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

.PHONY: up
up: run-packages ## install what is needed, build, start Orlop in the background with a demo VM
	@[ -e target/quick/orlop ] || echo "Building Orlop. The first build takes several minutes."
	CARGO_TERM_PROGRESS_WHEN=auto cargo build --profile quick --locked --package orlop
	examples/demo

.PHONY: down
down: ## stop the demo VM and everything else
	@examples/demo down

# A change is judged by the same cases every time; `make soak` looks for new ones.
test test-fast test-peers: export PROPTEST_RNG_SEED ?= 1

.PHONY: test
test: test-packages ## install what is needed, run every test; ends with those that this machine cannot run
	@guest/build > /dev/null || echo "cannot build the test guest; tests that boot it are skipped" >&2
	.ci/suites

.PHONY: test-fast
test-fast: toolchain ## run the tests that need neither root nor QEMU
	@ORLOP_TESTS=fast .ci/suites

.PHONY: test-peers
test-peers: test-packages peers ## run the tests that need the real Kubernetes programs
	@guest/build > /dev/null
	ORLOP_PEERS=$$(e2e/peers/build --dir) .ci/suites 'peers_*' --include-ignored $(foreach name,$(SKIP),--skip $(name))

.PHONY: peers
peers: test-packages ## build the Kubernetes programs that tests compare Orlop with, once
	e2e/peers/build

.PHONY: soak
soak: test-packages ## run kills, simulation and property tests with new seeds until something fails; ROUNDS=3 ends after three rounds
	@.ci/soak $(ROUNDS)

# Each time others, unless FROM says where to begin.
FROM := $(or $(FROM),$(shell echo $$((RANDOM * 32768 + RANDOM))))
COUNT := $(or $(COUNT),10000)

.PHONY: seeds
seeds: toolchain ## run new seeds of the simulation; choose with COUNT=100, FROM=7 and SCENE=virtual_machines
	@for scene in $(or $(SCENE),seeds services virtual_machines vm_pools); do
	    echo "== $$scene: make seeds SCENE=$$scene FROM=$(FROM) COUNT=$(COUNT)"
	    ORLOP_SIM_SEED=$(FROM)..$$(($(FROM) + $(COUNT))) cargo test --profile seeds --locked --package simulation \
	        --test "$$scene" -- --nocapture what_must_hold_holds_for_every_seed
	done

.PHONY: proof
proof: test-packages ## run all comparisons and other projects' test suites in full; writes docs/proof.md
	@.ci/proof

# Figures are those of a release; PROFILE=quick is built much sooner and uses more CPU. BESIDE names KubeVirt's virt-controller.
VMS := $(or $(VMS),100,500,2000,5000)
PROFILE := $(or $(PROFILE),release)

.PHONY: bench-growth
bench-growth: toolchain ## measure what many VMs cost each part; choose with VMS=100,500, PROFILE=quick and BESIDE=virt-controller
	cargo build --profile $(PROFILE) --locked --package orlop --package bench --bin orlop --bin growth
	target/$(PROFILE:dev=debug)/growth --vms $(VMS) $(if $(BESIDE),--beside $(BESIDE))

.PHONY: lint
lint: toolchain ## check lints and formatting, as CI does
	cargo clippy --workspace --all-targets --locked -- --deny warnings
	cargo fmt --all --check

.PHONY: deny
deny: toolchain ## check bans, licences and sources of dependencies
	@.ci/deny bans licenses sources

.PHONY: generate
generate: ## write the generated files that are checked in
	cargo xtask crds
	cargo xtask compatibility

# Pairs of a program or file and the package that brings it. To run: a C compiler links; QEMU and its firmware run guests;
# the last line is for pods and their networks. QEMU's two packages are named together: Debian's qemu-system-x86 may remove
# a newer qemu-utils.
to_run := cc:build-essential \
    qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils /usr/share/OVMF/OVMF_CODE_4M.fd:ovmf \
    runc:runc nft:nftables iptables:iptables ip:iproute2 /usr/lib/cni/bridge:containernetworking-plugins
# To test: a real registry and what fills it, what reads disks and certificates, what logs in, what ends test programs with their test
# (setpriv), what stands in for a broken QEMU, and what shows system calls.
to_test := $(to_run) git:git docker-registry:docker-registry skopeo:skopeo xorriso:xorriso isoinfo:genisoimage openssl:openssl ssh:openssh-client \
    setpriv:util-linux blkid:util-linux flock:util-linux mkfs.ext4:e2fsprogs python3:python3 strace:strace

# With everything there it needs no network.
.PHONY: run-packages test-packages
run-packages: wanted := $(to_run)
test-packages: wanted := $(to_test)
run-packages test-packages: toolchain
	@missing=()
	for pair in $(wanted); do
	    command -v "$${pair%%:*}" >/dev/null || [ -e "$${pair%%:*}" ] || missing+=("$${pair##*:}")
	done
	if [ $${#missing[@]} -gt 0 ]; then
	    echo "installing $${missing[*]}"
	    said=$$(mktemp)
	    { $(root) apt-get update -qq && $(root) env DEBIAN_FRONTEND=noninteractive \
	        apt-get install -y -qq --no-install-recommends "$${missing[@]}"; } > "$$said" 2>&1 || {
	        tail -n 20 "$$said" >&2
	        echo "cannot install the required packages: $${missing[*]}" >&2
	        exit 1
	    }
	    rm -f "$$said"
	    # Tests start a registry of their own; Debian's package has one listen on every address.
	    if [[ " $${missing[*]} " == *" docker-registry "* && -d /run/systemd/system ]]; then
	        $(root) systemctl disable --quiet --now docker-registry || true
	    fi
	fi

# Told before anything is installed or built.
.PHONY: toolchain
toolchain:
	@needed=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
	if [ "$$(uname -m)" != x86_64 ]; then
	    echo "Orlop needs an x86_64 machine; this one is $$(uname -m)" >&2
	    exit 1
	fi
	if [ "$$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
	    echo "some steps need root: install sudo, or run make as root" >&2
	    exit 1
	fi
	if ! command -v cargo >/dev/null; then
	    echo "Orlop needs Rust $$needed or newer; install it from https://rustup.rs" >&2
	    exit 1
	fi
	found=$$(cargo --version | cut -d' ' -f2)
	if ! printf '%s\n' "$$needed" "$$found" | sort --check=quiet --version-sort; then
	    echo "Orlop needs Rust $$needed or newer, but cargo is $$found; try rustup update stable" >&2
	    exit 1
	fi
