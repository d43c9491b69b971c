#!/bin/bash
# preload.sh CONTAINERD_BIN IMAGE_STORE ARCHIVE...
#
# Imports image archives into IMAGE_STORE (the /var/lib/containerd of the node
# image) with a containerd that runs on the host for as long as that takes. Runs in
# a mount and PID namespace of its own, so nothing stays behind if it is killed.
set -euo pipefail
bin=$1 store=$2
shift 2

# A short path whatever the cache folder is called: a Unix socket's is 107 bytes at most.
mount -t tmpfs preload /mnt
cat >/mnt/config.toml <<TOML
version = 3
root = "$store"
state = "/mnt/state"
disabled_plugins = [
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.grpc.v1.cri",
  "io.containerd.nri.v1.nri",
]
[grpc]
  address = "/mnt/containerd.sock"
[ttrpc]
  address = "/mnt/containerd.sock.ttrpc"
TOML

"$bin/containerd" --config /mnt/config.toml --log-level warn &
daemon=$!
ctr() { "$bin/ctr" --address /mnt/containerd.sock --namespace k8s.io "$@"; }
for _ in $(seq 100); do
  ctr version >/dev/null 2>&1 && break
  sleep 0.1
done

for archive in "$@"; do
  # --local: the transfer service knows no --discard-unpacked-layers, and without it
  # every layer would be in the image twice, packed and unpacked.
  ctr images import --local --discard-unpacked-layers "$archive"
done
ctr images list --quiet

kill "$daemon"
wait "$daemon" || true
