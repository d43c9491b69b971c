#!/bin/bash
# The pod network of a node image that holds no kindnetd: this node's podCIDR
# becomes a bridge CNI config, the podCIDRs of the other nodes become routes.
# All kind nodes sit on one Docker network, so plain routes are enough.
# NetworkPolicy is not enforced.
#
# It asks the API server with curl and the kubelet's own certificate: the kubectl
# of this image is the whole of Kubernetes in one binary, far too heavy to be
# started every few seconds on every node.
set -u

readonly KUBELET_CONF=/etc/kubernetes/kubelet.conf
readonly CERT=/var/lib/kubelet/pki/kubelet-client-current.pem
readonly CONFLIST=/etc/cni/net.d/10-podnet.conflist
# kind's default podSubnet; traffic that leaves it must leave with the node's address.
readonly POD_SUBNET=10.244.0.0/16

node=$(hostname)

list_nodes() {
  local server
  server=$(sed -n 's/^ *server: *//p' "$KUBELET_CONF") || return 1
  # resourceVersion=0: from the API server's cache, so that polling costs etcd nothing.
  curl --silent --fail --max-time 5 --cacert /etc/kubernetes/pki/ca.crt \
    --cert "$CERT" --key "$CERT" "$server/api/v1/nodes?resourceVersion=0"
}

write_conflist() {
  local cidr=$1
  grep -qsF "\"$cidr\"" "$CONFLIST" && return
  # Renamed into place: containerd reads the folder as soon as something changes in it.
  cat >"$CONFLIST.tmp" <<JSON
{
  "cniVersion": "1.0.0",
  "name": "podnet",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "ipMasq": false,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "$cidr"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
JSON
  mv "$CONFLIST.tmp" "$CONFLIST"
}

masquerade() {
  local rule=(POSTROUTING -s "$1" ! -d "$POD_SUBNET" -j MASQUERADE)
  iptables -t nat -C "${rule[@]}" 2>/dev/null || iptables -t nat -A "${rule[@]}"
}

while true; do
  pause=1
  if [ -f "$KUBELET_CONF" ] && nodes=$(list_nodes); then
    cidr=$(jq -r --arg node "$node" \
      '.items[] | select(.metadata.name == $node) | .spec.podCIDR // empty' <<<"$nodes")
    if [ -n "$cidr" ]; then
      write_conflist "$cidr"
      masquerade "$cidr"
      pause=3
    fi
    jq -r --arg node "$node" '
      .items[]
      | select(.metadata.name != $node and .spec.podCIDR != null)
      | .spec.podCIDR + " " + ([.status.addresses[] | select(.type == "InternalIP").address][0])
    ' <<<"$nodes" | while read -r other address; do
      ip route replace "$other" via "$address"
    done
  fi
  sleep "$pause"
done
