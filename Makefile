# Everything a contributor types. Each target is one or two commands; what is
# more than that lives in a program.

GO    ?= go
BIN   := bin/rackproof
FUZZ  ?= 60s
PEERS := out/peers

export CGO_ENABLED ?= 0

.PHONY: build test test-kills race fuzz lint floors demo demo-sshd bench test-peers cross clean

build:
	$(GO) build -trimpath -ldflags=-s\ -w -o $(BIN) ./cmd/rackproof

# Every test, on real sshd, fio, stress-ng, redis and openssl. What is missing
# is named by the first line that fails, and .ci/run installs it. One package at
# a time: many of them load the machine on purpose.
test:
	$(GO) test -p 1 -timeout 30m ./...
	GOAMD64=v3 $(GO) test -run 'BitEqual|Golden|Exact' ./thresholds

# The examples drive the built program and have no concurrency of their own.
race:
	CGO_ENABLED=1 $(GO) test -race -p 1 -timeout 30m $$($(GO) list ./... | grep -v /examples/)

# The example killed at five moments instead of one, and resumed: ten minutes.
test-kills:
	$(GO) test -timeout 30m -run RunnerKilled ./examples/sshd-32 -kills 5

# One fuzz target after the other, FUZZ each.
fuzz:
	$(GO) run ./internal/fuzzall -time $(FUZZ)

lint:
	test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff

floors:
	$(GO) test ./internal/floors

# A simulated rack of 32 nodes on loopback, a runbook over SSH, a signed bundle,
# verified.
demo: build
	$(GO) run ./examples/quickstart/demo -rackproof $(BIN) -out out/demo

# The same with nothing simulated but the rack: 32 real sshd, fio, stress-ng.
demo-sshd: build
	$(GO) run ./examples/sshd-32/demo -rackproof $(BIN) -out out/demo-sshd

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Stock cosign against our bundles and ours against its keys. Building it
# takes about seven minutes, once.
test-peers: $(PEERS)/cosign
	COSIGN=$(abspath $(PEERS)/cosign) $(GO) test -tags peers -run Peers -v ./evidence/attest

$(PEERS)/cosign:
	GOBIN=$(abspath $(PEERS)) $(GO) install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3

# The command line is pure Go: it must cross-compile.
cross:
	GOOS=linux  GOARCH=amd64 $(GO) build -trimpath -o bin/cross/linux-amd64/rackproof  ./cmd/rackproof
	GOOS=linux  GOARCH=arm64 $(GO) build -trimpath -o bin/cross/linux-arm64/rackproof  ./cmd/rackproof
	GOOS=darwin GOARCH=amd64 $(GO) build -trimpath -o bin/cross/darwin-amd64/rackproof ./cmd/rackproof
	GOOS=darwin GOARCH=arm64 $(GO) build -trimpath -o bin/cross/darwin-arm64/rackproof ./cmd/rackproof

clean:
	rm -rf bin out
