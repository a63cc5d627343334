"""kr8s: objects that know their kind, waits for conditions, watches, custom kinds."""
import threading
import kr8s
from kr8s.objects import ConfigMap, CustomResourceDefinition, Deployment, Job, Namespace, Node, new_class

api = kr8s.api()
assert api.version()["minor"] == "36"
assert ("pods", "Pod") in {(r["name"], r["kind"]) for r in api.api_resources()}
Namespace({"metadata": {"name": "k"}}).create()
container = {"name": "c", "image": "nginx"}
web = Deployment({"metadata": {"name": "web", "namespace": "k"}, "spec": {
    "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}})
web.create()
try:
    Deployment(web.raw).create()
    raise AssertionError("created twice")
except kr8s.ServerError as error:
    assert error.response.status_code in (400, 409), error
web.wait("condition=Available", timeout=30)
web.scale(3)
web.wait("jsonpath='{.status.readyReplicas}'=3", timeout=30)
assert [pod.metadata.namespace for pod in web.pods()] == ["k"] * 3
web.label(tier="front")
web.annotate({"a.b/c": "d"})
web.patch([{"op": "replace", "path": "/spec/paused", "value": True}], type="json")
web.refresh()
assert (web.labels["tier"], web.annotations["a.b/c"], web.spec.paused) == ("front", "d", True)

job = Job({"metadata": {"name": "job", "namespace": "k"}, "spec": {"template": {"spec": {
    "restartPolicy": "Never", "containers": [container | {"command": ["true"]}]}}}})
job.create()
job.wait(["condition=Complete", "condition=Failed"], timeout=30)

node = Node.get("node-0")
node.cordon()
node.taint("k", "v", effect="PreferNoSchedule")
assert Node.get("node-0").spec.unschedulable
node.uncordon()


def write():
    config = ConfigMap({"metadata": {"name": "w", "namespace": "k"}, "data": {"a": "b"}}, api=kr8s.api())
    config.create()
    config.patch({"data": {"b": "c"}})
    config.delete()


seen = []
writer = None
for event, config in kr8s.watch("configmaps", namespace="k"):
    # The first event is of an object that is there: the watch has begun.
    if writer is None:
        writer = threading.Thread(target=write)
        writer.start()
    if config.name == "w":
        seen.append(event)
    if event == "DELETED":
        break
writer.join()
assert seen == ["ADDED", "MODIFIED", "DELETED"], seen

crd = CustomResourceDefinition({"metadata": {"name": "krs.kr.io"}, "spec": {
    "group": "kr.io", "scope": "Namespaced",
    "names": {"kind": "Kr", "plural": "krs", "singular": "kr", "shortNames": ["krr"]},
    "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}})
crd.create()
# A new definition has `conditions: null`, which kr8s cannot wait with.
crd.wait("jsonpath='{.status.acceptedNames.kind}'=Kr", timeout=30)
crd.wait("condition=Established", timeout=30)
Kr = new_class("Kr", "kr.io/v1", namespaced=True)
one = Kr({"metadata": {"name": "one", "namespace": "k"}, "spec": {"x": 1}})
one.create()
one.patch({"status": {"y": 2}}, subresource="status")
assert [found.raw["status"] for found in kr8s.get("krr", namespace="k")] == [{"y": 2}]

web.delete(propagation_policy="Foreground")
web.wait("delete", timeout=30)
namespace = Namespace.get("k")
namespace.delete()
namespace.wait("delete", timeout=30)
