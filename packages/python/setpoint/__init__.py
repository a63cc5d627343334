"""Kubernetes control planes for tests.

A `Server` is a process; each of its planes has its own objects, port and administrator::

    with Server() as server, server.plane() as plane:
        config.load_kube_config_from_dict(yaml.safe_load(plane.kubeconfig))

`setpoint.pytest_plugin` has fixtures of both.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from typing import Any

__all__ = ["Plane", "Server", "program"]


def program() -> str:
    """Path of the program: the one that `SETPOINT` names, this package's, or the one in PATH."""
    if named := os.environ.get("SETPOINT"):
        return named
    try:
        files = importlib.metadata.files("setpoint") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    installed = [file.locate() for file in files if file.match("bin/setpoint")]
    found = next((str(path) for path in installed if os.access(path, os.X_OK)), None)
    if found := found or shutil.which("setpoint"):
        return found
    raise FileNotFoundError("the program setpoint is neither in this package nor in PATH")


class _Access:
    """How an API server is reached by its administrator."""

    def __init__(self, access: dict[str, Any]):
        self.url: str = access["url"]
        #: The text of a kubeconfig.
        self.kubeconfig: str = access["kubeconfig"]
        self.token: str = access["token"]
        #: The CA of the server's certificate, in PEM.
        self.certificate_authority: str = access["certificateAuthority"]
        tls = ssl.create_default_context(cadata=self.certificate_authority)
        # Without the proxies of the environment: the server is on this machine.
        no_proxies = urllib.request.ProxyHandler({})
        self._opener = urllib.request.build_opener(no_proxies, urllib.request.HTTPSHandler(context=tls))

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request as the administrator; returns the document of the answer.

        An `urllib.error.HTTPError` has the text of the answer in its message.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with self._opener.open(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read()
            message = f"{error.reason}: {text.decode(errors='replace')}"
            raise urllib.error.HTTPError(error.url, error.code, message, error.headers, io.BytesIO(text)) from None


class Server(_Access):
    """A process of setpoint. It serves from when it is made until `close`, or the end of this process.

    Its arguments are flags of kube-apiserver. It is an API server itself, but tests want a `plane` each.
    """

    def __init__(self, *flags: str):
        command = [program(), "envtest", "serve", *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline()
        try:
            super().__init__(json.loads(line))
        except (ValueError, LookupError, ssl.SSLError):
            self.close()
            if line:
                raise RuntimeError(f"{command} is not setpoint: {line}") from None
            raise RuntimeError(f"{command} ended with {self._process.returncode}") from None

    def plane(self, *, virtual_time: bool = False) -> Plane:
        """Makes a control plane; one with virtual time can be advanced."""
        return Plane(self, self.request("POST", "/setpoint/planes", {"virtualTime": virtual_time}))

    def close(self) -> None:
        """Ends the process and all planes."""
        with self._process:
            self._process.terminate()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Plane(_Access):
    """A control plane. It ends with `close`, or with its server."""

    def __init__(self, server: Server, access: dict[str, Any]):
        super().__init__(access)
        self._server, self._path = server, f"/setpoint/planes/{access['id']}"

    def snapshot(self, name: str = "") -> None:
        """Keeps the state under a name."""
        self._server.request("POST", f"{self._path}/snapshot", {"name": name})

    def reset(self, name: str = "") -> None:
        """Brings the state of a snapshot back. Watches see the differences as changes."""
        self._server.request("POST", f"{self._path}/reset", {"name": name})

    def advance(self, seconds: float) -> str:
        """Lets time pass, at most a week; returns the time that is reached. Only with virtual time."""
        return self._server.request("POST", f"{self._path}/advance", {"seconds": seconds})["time"]

    def close(self) -> None:
        """Ends the control plane."""
        self._server.request("DELETE", self._path)

    def __enter__(self) -> Plane:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
