"""History ends: watches and pages that need what is gone are told 410, and how to go on."""
import json
from kubernetes import client, config, watch

config.load_kube_config()
core = client.CoreV1Api()


def config_map(name, data=None):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data or {})


for name in ("a", "b", "c"):
    core.create_namespaced_config_map("default", config_map(name))
start = core.list_namespaced_config_map("default").metadata.resource_version
token = core.list_namespaced_config_map("default", limit=1).metadata._continue
exact = lambda: core.list_namespaced_config_map("default", resource_version=start, resource_version_match="Exact")
names = [cm.metadata.name for cm in exact().items if cm.metadata.name != "kube-root-ca.crt"]
assert names == ["a", "b", "c"]

# More than the server remembers.
core.create_namespaced_config_map("default", config_map("big"))
payload = "x" * 1_000_000
for i in range(300):
    core.replace_namespaced_config_map("big", "default", config_map("big", {"i": str(i), "p": payload}))

try:
    for event in watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=5):
        raise AssertionError(event["type"])
    raise AssertionError("the watch ended without an error")
except client.ApiException as error:
    assert error.status == 410 and "too old resource version" in error.reason, error

try:
    exact()
    raise AssertionError("an old list was served")
except client.ApiException as error:
    body = json.loads(error.body)
    assert (error.status, body["reason"], body["message"]) == (410, "Expired", "The resourceVersion for the provided list is too old."), body

try:
    core.list_namespaced_config_map("default", limit=1, _continue=token)
    raise AssertionError("an old page was served")
except client.ApiException as error:
    body = json.loads(error.body)
    assert (error.status, body["reason"]) == (410, "Expired"), body
    assert body["message"].startswith("The provided continue parameter is too old to display a consistent list result."), body
    rest = core.list_namespaced_config_map("default", _continue=body["metadata"]["continue"])
    names = [cm.metadata.name for cm in rest.items if cm.metadata.name != "kube-root-ca.crt"]
    assert names == ["b", "big", "c"], "from there on, as it is now"
