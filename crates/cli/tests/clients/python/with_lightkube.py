"""lightkube: typed objects, operators in selectors, patches, apply with conflicts, subresources."""
from lightkube import Client, operators as op
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import Eviction
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

client = Client(field_manager="lk")
for n in range(5):
    client.create(ConfigMap(metadata=ObjectMeta(name=f"c{n}", labels={"n": str(n)}), data={"a": "b"}))


def names(**selectors):
    return [found.metadata.name for found in client.list(ConfigMap, chunk_size=2, **selectors)]


assert names(labels={"n": op.exists()}) == ["c0", "c1", "c2", "c3", "c4"]
assert names(labels={"n": op.in_(["1", "2"])}) == ["c1", "c2"]
assert names(labels={"n": op.exists()}, fields={"metadata.name": op.not_equal("c2")}) == ["c0", "c1", "c3", "c4"]
try:
    client.get(ConfigMap, "absent")
    raise AssertionError("found")
except ApiError as error:
    assert error.status.code == 404 and error.status.reason == "NotFound"

applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c1"}, "data": {"applied": "1"}}
for kind, patch in (
    (PatchType.MERGE, {"data": {"merged": "1"}}),
    (PatchType.STRATEGIC, {"data": {"strategic": "1"}}),
    (PatchType.JSON, [{"op": "add", "path": "/data/json", "value": "1"}]),
    (PatchType.APPLY, applied),
):
    client.patch(ConfigMap, "c1", patch, patch_type=kind, force=kind == PatchType.APPLY)
assert sorted(client.get(ConfigMap, "c1").data) == ["a", "applied", "json", "merged", "strategic"]


def config(value):
    return ConfigMap(metadata=ObjectMeta(name="owned", namespace="default"), data={"x": value})


client.apply(config("1"))
try:
    client.apply(config("2"), field_manager="other")
    raise AssertionError("no conflict")
except ApiError as error:
    assert error.status.code == 409 and 'conflict with "lk": .data.x' in error.status.message, error
assert client.apply(config("2"), field_manager="other", force=True).data == {"x": "2"}

labels = {"app": "d"}
pods = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[Container(name="c", image="nginx")]))
spec = DeploymentSpec(replicas=1, selector=LabelSelector(matchLabels=labels), template=pods)
client.create(Deployment(metadata=ObjectMeta(name="d"), spec=spec))
assert client.wait(Deployment, "d", for_conditions=["Available"]).status.availableReplicas == 1
scale = client.replace(Deployment.Scale(metadata=ObjectMeta(name="d"), spec=ScaleSpec(replicas=2)), "d")
assert scale.spec.replicas == 2
pod = next(iter(client.list(Pod, labels=labels))).metadata.name
client.create(Pod.Eviction(metadata=ObjectMeta(name=pod)), pod)
for event, found in client.watch(Pod, fields={"metadata.name": pod}):
    if event == "DELETED" or found.metadata.deletionTimestamp:
        break

Definition = create_global_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
assert list(client.list(Definition)) == []
client.delete(Deployment, "d")
