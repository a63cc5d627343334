"""Watches start anywhere in history, carry every change once, and say when history is gone."""
from kubernetes import client, config, watch

config.load_kube_config()
core = client.CoreV1Api()
core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="w")))


def config_map(name, value):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"v": value})


start = core.list_namespaced_config_map("w").metadata.resource_version
core.create_namespaced_config_map("w", config_map("a", "1"))
core.patch_namespaced_config_map("a", "w", {"data": {"v": "2"}})
core.create_namespaced_config_map("w", config_map("b", "1"))
core.delete_namespaced_config_map("a", "w")

seen, versions = [], []
stream = watch.Watch()
for event in stream.stream(core.list_namespaced_config_map, "w", resource_version=start, timeout_seconds=20):
    if event["object"].metadata.name not in ("a", "b"):
        continue
    seen.append((event["type"], event["object"].metadata.name, event["object"].data["v"]))
    versions.append(int(event["object"].metadata.resource_version))
    if len(seen) == 4:
        stream.stop()
assert seen == [("ADDED", "a", "1"), ("MODIFIED", "a", "2"), ("ADDED", "b", "1"), ("DELETED", "a", "2")], seen
assert versions == sorted(set(versions)), versions

present = []
for event in watch.Watch().stream(core.list_namespaced_config_map, "w", field_selector="metadata.name=b", timeout_seconds=1):
    present.append((event["type"], event["object"].metadata.name))
assert present == [("ADDED", "b")], present

try:
    for event in watch.Watch().stream(core.list_namespaced_config_map, "w", resource_version="notanumber", timeout_seconds=1):
        raise AssertionError(event)
except client.ApiException as error:
    assert error.status == 500 and "notanumber" in error.body, error
