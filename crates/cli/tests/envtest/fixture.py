"""A fixture as Python suites have it: starts the binaries of KUBEBUILDER_ASSETS, and uses them."""

import os
import random
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from kubernetes import client


def free_port():
    # Below the ports of outgoing connections, which could take one before the program listens.
    while True:
        with socket.socket() as s:
            port = random.randrange(12_000, 32_000)
            if s.connect_ex(("127.0.0.1", port)) != 0:
                return port


def wait(url):
    context = ssl._create_unverified_context()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if urllib.request.urlopen(url, context=context).status == 200:
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"{url} is not ready")


assets = os.environ["KUBEBUILDER_ASSETS"]
with tempfile.TemporaryDirectory() as folder:
    port, etcd_port = free_port(), free_port()
    with open(f"{folder}/tokens.csv", "w") as tokens:
        tokens.write("secret,admin,1,system:masters\n")
    url = f"http://127.0.0.1:{etcd_port}"
    etcd = subprocess.Popen(
        [f"{assets}/etcd", "--data-dir", f"{folder}/etcd", "--listen-client-urls", url, "--advertise-client-urls", url],
        stderr=subprocess.DEVNULL,
    )
    wait(f"{url}/health")
    server = subprocess.Popen(
        [
            f"{assets}/kube-apiserver",
            f"--cert-dir={folder}/certs",
            f"--etcd-servers={url}",
            f"--secure-port={port}",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        ],
        stderr=subprocess.DEVNULL,
    )
    wait(f"https://127.0.0.1:{port}/readyz")
    configuration = client.Configuration()
    configuration.host = f"https://127.0.0.1:{port}"
    # The certificate that the server has made is its own chain, as the original's.
    configuration.ssl_ca_cert = f"{folder}/certs/apiserver.crt"
    configuration.api_key = {"authorization": "Bearer secret"}
    core = client.CoreV1Api(client.ApiClient(configuration))
    core.create_namespaced_config_map("default", {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert core.read_namespaced_config_map("a", "default").data == {"k": "v"}
    for process in (server, etcd):
        process.terminate()
        assert process.wait(20) == 0
print("passed")
