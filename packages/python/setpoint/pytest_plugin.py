"""Fixtures for pytest: a server for the session, a control plane for each test."""

import pytest

import setpoint as _setpoint


@pytest.fixture(scope="session")
def setpoint_server():
    """The process that has the control planes. Override it to pass flags of kube-apiserver."""
    with _setpoint.Server() as server:
        yield server


@pytest.fixture
def setpoint_plane(setpoint_server):
    """A control plane for one test: `url`, `kubeconfig`, `token`, `certificate_authority`."""
    with setpoint_server.plane() as plane:
        yield plane


@pytest.fixture
def setpoint(setpoint_plane, tmp_path):
    """The path of a kubeconfig for the test's control plane."""
    path = tmp_path / "kubeconfig"
    path.write_text(setpoint_plane.kubeconfig)
    return str(path)
