"""A suite as users of the wheel have it: fixtures that nobody imports, and the client of Kubernetes."""

import urllib.error
from datetime import datetime, timedelta, timezone

import pytest
from kubernetes import client, config


def config_map(name):
    return {"metadata": {"name": name}, "data": {"k": "v"}}


@pytest.mark.parametrize("turn", range(3))
def test_each_test_has_a_control_plane(setpoint, turn):
    config.load_kube_config(setpoint)
    core = client.CoreV1Api()
    # The same name each time.
    core.create_namespaced_config_map("default", config_map("a"))
    assert core.read_namespaced_config_map("a", "default").data == {"k": "v"}


def test_a_plane_goes_back_to_a_snapshot(setpoint, setpoint_plane):
    core = client.CoreV1Api(config.new_client_from_config(setpoint))
    setpoint_plane.snapshot("start")
    core.create_namespaced_config_map("default", config_map("b"))
    setpoint_plane.reset("start")
    with pytest.raises(client.ApiException) as refused:
        core.read_namespaced_config_map("b", "default")
    assert refused.value.status == 404


def test_time_is_advanced(setpoint_server):
    with setpoint_server.plane(virtual_time=True) as plane:
        now = datetime.now(timezone.utc)
        assert datetime.fromisoformat(plane.advance(3700)) - now >= timedelta(hours=1)


def test_requests_need_no_client(setpoint_server):
    assert setpoint_server.request("GET", "/version")["major"] == "1"
    assert setpoint_server.request("GET", "/setpoint/planes")["items"] == []
    with pytest.raises(urllib.error.HTTPError, match="there is no plane 77") as refused:
        setpoint_server.request("DELETE", "/setpoint/planes/77")
    assert refused.value.code == 404
