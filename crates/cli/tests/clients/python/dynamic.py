"""The dynamic client discovers a custom resource and uses every verb of it."""
import time
import yaml
from kubernetes import client, config, dynamic

config.load_kube_config()
api = client.ApiClient()
extensions = client.ApiextensionsV1Api(api)
extensions.create_custom_resource_definition(yaml.safe_load(open("crd.yaml")))
for _ in range(1000):
    conditions = extensions.read_custom_resource_definition("networks.samplecrd.k8s.io").status.conditions or []
    if any(c.type == "Established" and c.status == "True" for c in conditions):
        break
    time.sleep(0.01)
else:
    raise AssertionError("never established")

networks = dynamic.DynamicClient(api).resources.get(api_version="samplecrd.k8s.io/v1", kind="Network")
body = {"apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "n"}, "spec": {"cidr": "10.0.0.0/8", "gateway": "10.0.0.1"}}
made = networks.create(namespace="default", body=body)
assert made.metadata.generation == 1 and made.spec.cidr == "10.0.0.0/8"
patched = networks.patch(namespace="default", name="n", body={"spec": {"gateway": "10.0.0.2"}}, content_type="application/merge-patch+json")
assert (patched.spec.gateway, patched.metadata.generation) == ("10.0.0.2", 2)
applied = networks.server_side_apply(namespace="default", name="n", body=body, field_manager="py", force_conflicts=True)
assert applied.spec.gateway == "10.0.0.1"
assert [m.manager for m in applied.metadata.managedFields if m.operation == "Apply"] == ["py"]
status = networks.status.patch(namespace="default", name="n", body={"status": {"cidr": "10.0.0.0/8"}}, content_type="application/merge-patch+json")
assert status.status.cidr == "10.0.0.0/8"
assert [n.metadata.name for n in networks.get(namespace="default").items] == ["n"]
custom = client.CustomObjectsApi(api)
assert custom.get_namespaced_custom_object("samplecrd.k8s.io", "v1", "default", "networks", "n")["spec"]["cidr"] == "10.0.0.0/8"
try:
    networks.patch(namespace="default", name="n", body={"spec": {"gateway": "10.0.0.3"}}, content_type="application/strategic-merge-patch+json")
    raise AssertionError("strategic merge of a custom resource was accepted")
except dynamic.exceptions.ApiException as error:
    assert error.status == 415, error
networks.delete(namespace="default", name="n")
assert networks.get(namespace="default").items == []
