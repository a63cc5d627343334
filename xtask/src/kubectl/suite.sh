#!/usr/bin/env bash
# Runs the cases of Kubernetes' `test/cmd` with our program as kube-apiserver.
#
# Environment: KUBERNETES (its source), PROGRAMS (a folder with kubectl, kubectl-convert and
# kube-apiserver), ETCD_PORT, WORK (a folder for logs), OPENAPI (a published document), and
# CASES (words, the cases to run; all if it is empty).
set -o errexit -o nounset -o pipefail

cd "$KUBERNETES"
export PATH="$PROGRAMS:$PATH" KUBE_ROOT="$KUBERNETES" ETCD_HOST=127.0.0.1 ALLOW_SKEW=1
export KUBE_JUNIT_REPORT_DIR="$WORK/junit"
# Everything is built.
make() { :; }

source hack/lib/init.sh
source hack/lib/test.sh
source test/cmd/legacy-script.sh

THIS_PLATFORM_BIN=$PROGRAMS
# The suite presents this certificate itself.
CERTIFICATES=${TMPDIR:-/tmp/}
# The etcd is the caller's.
kube::etcd::start() { :; }
kube::etcd::cleanup() { :; }

openssl genrsa -out "$WORK/service-accounts.key" 2048 2> /dev/null
setup
SETPOINT_CONTROLLERS='*' SETPOINT_OPENAPI="$OPENAPI" kube-apiserver \
  --bind-address=127.0.0.1 \
  --secure-port="$SECURE_API_PORT" \
  --cert-dir="$CERTIFICATES" \
  --client-ca-file=hack/testdata/ca/ca.crt \
  --token-auth-file=hack/testdata/auth-tokens.csv \
  --authorization-mode=RBAC,AlwaysAllow \
  --enable-admission-plugins=LimitRanger,ResourceQuota \
  --disable-admission-plugins=ServiceAccount,DefaultStorageClass,DefaultTolerationSeconds,StorageObjectInUseProtection \
  --etcd-servers="http://$ETCD_HOST:$ETCD_PORT" \
  --runtime-config=api/v1 \
  --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file="$WORK/service-accounts.key" \
  --service-account-signing-key-file="$WORK/service-accounts.key" \
  --service-cluster-ip-range=10.0.0.0/24 > "$WORK/kube-apiserver.log" 2>&1 &
export APISERVER_PID=$!
kube::util::wait_for_url_with_bearer_token \
  "https://127.0.0.1:$SECURE_API_PORT/healthz" admin-token apiserver

# A node without a kubelet, whose managers are kept because it has an annotation.
kubectl create -f - << 'NODE'
apiVersion: v1
kind: Node
metadata: {name: 127.0.0.1, annotations: {save-managers: "true"}}
status: {capacity: {memory: 1Gi}}
NODE
export SUPPORTED_RESOURCES=("*") WHAT="$CASES"
runTests
