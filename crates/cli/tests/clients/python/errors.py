"""Bodies of 404, 409, 410 and 422 as clients read them."""
import json
from kubernetes import client, config

config.load_kube_config()
core = client.CoreV1Api()


def refused(status, call):
    try:
        call()
    except client.ApiException as error:
        assert error.status == status, error
        body = json.loads(error.body)
        assert body["kind"] == "Status" and body["status"] == "Failure" and body["code"] == status, body
        return body
    raise AssertionError(f"expected {status}")


missing = refused(404, lambda: core.read_namespaced_config_map("none", "default"))
assert missing["message"] == 'configmaps "none" not found' and missing["reason"] == "NotFound"
assert missing["details"] == {"name": "none", "kind": "configmaps"}

cm = core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="cm"), data={"a": "1"}))
twice = refused(409, lambda: core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="cm"))))
assert twice["reason"] == "AlreadyExists" and twice["message"] == 'configmaps "cm" already exists'

core.patch_namespaced_config_map("cm", "default", {"data": {"a": "2"}})
stale = refused(409, lambda: core.replace_namespaced_config_map("cm", "default", cm))
assert stale["reason"] == "Conflict"
assert stale["message"] == 'Operation cannot be fulfilled on configmaps "cm": the object has been modified; please apply your changes to the latest version and try again'

bad = refused(422, lambda: core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="Bad_Name"), data={"a/b": "1"})))
assert bad["reason"] == "Invalid" and bad["details"]["kind"] == "ConfigMap", bad
assert {c["field"] for c in bad["details"]["causes"]} == {"metadata.name", "data[a/b]"}, bad
assert {c["reason"] for c in bad["details"]["causes"]} == {"FieldValueInvalid"}, bad

service = refused(422, lambda: core.create_namespaced_service("default", client.V1Service(metadata=client.V1ObjectMeta(name="s"), spec=client.V1ServiceSpec(ports=[]))))
assert service["message"] == 'Service "s" is invalid: spec.ports: Required value', service

gone = refused(409, lambda: core.delete_namespaced_config_map("cm", "default", body=client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))))
assert gone["message"].startswith("Operation cannot be fulfilled on ConfigMap"), gone
