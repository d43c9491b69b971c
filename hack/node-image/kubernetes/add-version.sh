#!/bin/bash
# add-version.sh VERSION
#
# Writes MINOR.mod and MINOR.sum for a version of Kubernetes, such as 1.38.mod for 1.38.1,
# from its own go.mod: the modules in its tree are replaced by the ones that it publishes.
set -euo pipefail
version=$1 minor=${1%.*} staging=v0.${1#1.}
cd "$(dirname "$0")"
module=$(GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@v$version" | jq -r .GoMod)
etcd=$(awk '$1 == "go.etcd.io/etcd/server/v3" { print $2 }' "$module")
{
  printf 'module perdure.dev/hack/kubernetes\n\n'
  grep -E '^(go|godebug) ' "$module"
  printf '\nrequire (\n\tgo.etcd.io/etcd/server/v3 %s\n\tk8s.io/component-base v0.0.0\n' "$etcd"
  printf '\tk8s.io/kubectl v0.0.0\n\tk8s.io/kubernetes v%s\n)\n\nreplace (\n' "$version"
  awk -v staging="$staging" '$2 == "=>" && $3 ~ /staging/ { printf "\t%s => %s %s\n", $1, $1, staging }' "$module"
  printf ')\n'
} >"$minor.mod"
rm -f "$minor.sum"
go mod tidy -modfile="$minor.mod"
