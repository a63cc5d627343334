"""Every patch type and server-side apply, over typed and dynamic clients, with watches that see them."""
import json
from kubernetes import client, config, dynamic, utils, watch

config.load_kube_config()
api = client.ApiClient()
core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
resources = dynamic.DynamicClient(api).resources
deployments = resources.get(api_version="apps/v1", kind="Deployment")

made = utils.create_from_dict(api, {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "one", "image": "i:1"}]}}}})
version = apps.read_namespaced_deployment("d", "default").metadata.resource_version


def images(deployment):
    return {c.name: c.image for c in deployment.spec.template.spec.containers}


strategic = apps.patch_namespaced_deployment("d", "default", {"spec": {"template": {"spec": {"containers": [{"name": "two", "image": "i:2"}]}}}})
assert images(strategic) == {"one": "i:1", "two": "i:2"}
containers = "/spec/template/spec/containers"
tested = apps.patch_namespaced_deployment("d", "default", [{"op": "test", "path": f"{containers}/0/name", "value": "two"}, {"op": "remove", "path": f"{containers}/0"}])
assert images(tested) == {"one": "i:1"}
merged = deployments.patch(namespace="default", name="d", body={"spec": {"replicas": 4, "paused": None}}, content_type="application/merge-patch+json")
assert merged.spec.replicas == 4
body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 5}}
try:
    deployments.server_side_apply(namespace="default", body=body, name="d", field_manager="py")
    raise AssertionError("no conflict")
except dynamic.exceptions.ConflictError as error:
    cause = json.loads(error.body)["details"]["causes"][0]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".spec.replicas"), cause
applied = deployments.server_side_apply(namespace="default", body=body, name="d", field_manager="py", force_conflicts=True)
assert applied.spec.replicas == 5 and images(apps.read_namespaced_deployment("d", "default")) == {"one": "i:1"}

# Both clients watch from before the patches and see every one of them.
seen = []
for event in deployments.watch(namespace="default", name="d", resource_version=version, timeout=20):
    seen.append((event["type"], event["object"].spec.replicas))
    if len(seen) == 4:
        break
assert seen == [("MODIFIED", 1), ("MODIFIED", 1), ("MODIFIED", 4), ("MODIFIED", 5)], seen
stream, typed = watch.Watch(), []
for event in stream.stream(apps.list_namespaced_deployment, "default", resource_version=version, timeout_seconds=20):
    typed.append(event["object"].spec.replicas)
    if len(typed) == 4:
        stream.stop()
assert typed == [1, 1, 4, 5], typed

# What may not be.
for patch, status in [({"spec": {"replicas": -1}}, 422), ({"spec": {"replicas": "many"}}, 422), ({"spec": {"selector": {"matchLabels": {"x": "y"}}}}, 422)]:
    try:
        apps.patch_namespaced_deployment("d", "default", patch)
        raise AssertionError(f"{patch} was accepted")
    except client.ApiException as error:
        assert error.status == status, error
invalid = None
try:
    apps.patch_namespaced_deployment("d", "default", {"spec": {"replicas": -1}})
except client.ApiException as error:
    invalid = json.loads(error.body)
assert invalid["message"] == 'Deployment.apps "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0', invalid
assert invalid["details"] == {"name": "d", "group": "apps", "kind": "Deployment", "causes": [
    {"reason": "FieldValueInvalid", "message": "Invalid value: -1: must be greater than or equal to 0", "field": "spec.replicas"}]}, invalid

namespaces = resources.get(api_version="v1", kind="Namespace")
later = namespaces.create(body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}})
core.create_namespaced_secret("later", client.V1Secret(metadata=client.V1ObjectMeta(name="s")))
core.delete_namespace("later")
for event in watch.Watch().stream(core.list_namespace, field_selector="metadata.name=later", resource_version=later.metadata.resourceVersion, timeout_seconds=30):
    if event["type"] == "DELETED":
        break
else:
    raise AssertionError("the namespace stayed")
