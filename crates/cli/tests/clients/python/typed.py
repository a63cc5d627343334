"""Typed objects: what goes in comes out, patches of three types, status and scale."""
from kubernetes import client, config

config.load_kube_config()
core, apps = client.CoreV1Api(), client.AppsV1Api()

made = core.create_namespaced_config_map("default", client.V1ConfigMap(
    metadata=client.V1ObjectMeta(name="cm", labels={"a": "b"}), data={"k": "v"}))
assert made.metadata.uid and made.metadata.resource_version and made.metadata.creation_timestamp
assert core.read_namespaced_config_map("cm", "default").data == {"k": "v"}
assert core.patch_namespaced_config_map("cm", "default", {"data": {"k": None, "l": "w"}}).data == {"l": "w"}
patched = core.patch_namespaced_config_map("cm", "default", [{"op": "add", "path": "/data/m", "value": "x"}])
assert patched.data == {"l": "w", "m": "x"}
patched.data["l"] = "replaced"
assert core.replace_namespaced_config_map("cm", "default", patched).data["l"] == "replaced"
names = [c.metadata.name for c in core.list_namespaced_config_map("default", label_selector="a=b").items]
assert names == ["cm"], names
assert core.delete_namespaced_config_map("cm", "default")["status"] == "Success"

container = client.V1Container(name="c", image="i", resources=client.V1ResourceRequirements(requests={"cpu": "1000m", "memory": "1024Mi"}))
template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels={"a": "b"}), spec=client.V1PodSpec(containers=[container]))
deployment = apps.create_namespaced_deployment("default", client.V1Deployment(
    metadata=client.V1ObjectMeta(name="d"),
    spec=client.V1DeploymentSpec(replicas=2, selector=client.V1LabelSelector(match_labels={"a": "b"}), template=template)))
assert deployment.spec.template.spec.containers[0].resources.requests == {"cpu": "1", "memory": "1Gi"}
assert deployment.spec.strategy.rolling_update.max_surge == "25%"
assert apps.patch_namespaced_deployment_scale("d", "default", {"spec": {"replicas": 7}}).spec.replicas == 7
assert apps.read_namespaced_deployment_scale("d", "default").status.selector == "a=b"
status = apps.patch_namespaced_deployment_status("d", "default", {"status": {"replicas": 7, "observedGeneration": 2}})
assert (status.status.replicas, status.spec.replicas, status.metadata.generation) == (7, 7, 2)
apps.delete_namespaced_deployment("d", "default", propagation_policy="Foreground")

secret = core.create_namespaced_secret("default", client.V1Secret(metadata=client.V1ObjectMeta(generate_name="s-"), string_data={"p": "w"}))
assert secret.metadata.name.startswith("s-") and len(secret.metadata.name) == 7
assert secret.data == {"p": "dw=="} and secret.type == "Opaque"
dry = core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="dry")), dry_run="All")
assert dry.metadata.uid and "dry" not in [c.metadata.name for c in core.list_namespaced_config_map("default").items]
core.delete_collection_namespaced_secret("default")
assert core.list_namespaced_secret("default").items == []
assert client.VersionApi().get_code().major == "1"
