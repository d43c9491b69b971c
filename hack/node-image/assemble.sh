#!/bin/bash
# assemble.sh ROOTFS_TAR ROOT KIND_FILES FILES BINARIES VERSION PAUSE_IMAGE
#
# Lays out the root of the node image in ROOT: Debian packages, the files that
# kind's own base image has (KIND_FILES, from kind's Go module), this project's
# FILES, and the BINARIES built from Go modules. It follows images/base/Dockerfile
# of kind; where it differs, a comment says why.
set -euo pipefail
rootfs=$1 root=$2 kind_files=$3 files=$4 binaries=$5 version=$6 pause_image=$7

tar -C "$root" -xf "$rootfs"
cp -r --no-preserve=mode,ownership "$kind_files"/{etc,kind,usr} "$root/"
chmod 755 "$root"/kind/bin/* "$root"/usr/local/bin/*
cp -r --no-preserve=ownership "$files"/. "$root/"

cd "$root"
# No systemd unit may touch the host (udev, tmpfiles, binfmt): nodes are privileged.
rm -f lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
  lib/systemd/system/multi-user.target.wants/* etc/systemd/system/*.wants/* \
  lib/systemd/system/local-fs.target.wants/* lib/systemd/system/basic.target.wants/* \
  lib/systemd/system/sockets.target.wants/*{udev,initctl}*
echo ReadKMsg=no >>etc/systemd/journald.conf
systemctl --quiet --root="$root" enable kubelet containerd undo-mount-hacks podnet
systemctl --quiet --root="$root" mask systemd-binfmt

install -m755 "$binaries"/{containerd,containerd-shim-runc-v2,ctr,crictl} usr/local/bin/
install -m755 "$binaries"/runc usr/local/sbin/
install -m755 "$binaries"/kubernetes usr/bin/
for name in kubelet kubeadm kubectl; do ln -s kubernetes "usr/bin/$name"; done

mkdir -p etc/kubernetes/manifests etc/cni/net.d opt/cni/bin var/lib/containerd
mv usr/lib/cni/{bridge,host-local,loopback,portmap,ptp} opt/cni/bin/
rm -rf usr/lib/cni

# restrict_oom_score_adj: a host without CAP_SYS_RESOURCE lets nobody lower an OOM
# score. sandbox_image: the pause image that this kubeadm names, or the kubelet and
# containerd would disagree and containerd would try to pull one.
sed -i -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \
  -e "s#sandbox_image = .*#sandbox_image = \"$pause_image\"#" etc/containerd/config.toml
grep -q 'restrict_oom_score_adj = true' etc/containerd/config.toml
grep -qF "\"$pause_image\"" etc/containerd/config.toml

usr/local/bin/ctr oci spec | jq '
  .hooks.createContainer = [{"path": "/kind/bin/mount-product-files.sh"}]
  | del(.process.rlimits)' >etc/containerd/cri-base.json

printf %s "$version" >kind/version
rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/*.log
