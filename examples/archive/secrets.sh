#!/bin/sh
# Create the Secrets of this example: the certificate and the password of the server, and the address for the operator.
# Run it once: PostgreSQL keeps the password with which it was created. Needs openssl and kubectl.
set -eu
namespace=perdure-system
host=perdure-postgres.$namespace.svc
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cd "$folder"
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $key -keyout ca.key -out ca.crt -days 3650 -subj "/CN=Perdure archive"
openssl req $key -keyout tls.key -out tls.csr -subj "/CN=$host"
echo "subjectAltName=DNS:$host" > names
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out tls.crt -days 825 -extfile names
openssl rand -hex 24 | tr -d '\n' > password
kubectl --namespace=$namespace create secret generic perdure-postgres \
  --from-file=password --from-file=tls.crt --from-file=tls.key
kubectl --namespace=$namespace create secret generic perdure-archive \
  --from-literal=url="postgresql://perdure:$(cat password)@$host/postgres" --from-file=ca.crt
