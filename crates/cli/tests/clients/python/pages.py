"""Pages of one list show one moment, whatever is written between them."""
import json
from kubernetes import client, config

config.load_kube_config()
core = client.CoreV1Api()
for i in range(25):
    core.create_namespaced_secret("default", client.V1Secret(metadata=client.V1ObjectMeta(name=f"s{i:02}")))

names, token, versions, remaining = [], None, set(), []
while True:
    page = core.list_namespaced_secret("default", limit=10, _continue=token)
    names += [s.metadata.name for s in page.items]
    versions.add(page.metadata.resource_version)
    remaining.append(page.metadata.remaining_item_count)
    token = page.metadata._continue
    if not token:
        break
    core.create_namespaced_secret("default", client.V1Secret(metadata=client.V1ObjectMeta(name=f"s{len(names)}-late")))
assert names == [f"s{i:02}" for i in range(25)], names
assert len(versions) == 1 and remaining == [15, 5, None], (versions, remaining)

for token, said in [("garbage", "continue key is not valid"), ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJ4In0", "continue key is not valid")]:
    try:
        core.list_namespaced_secret("default", limit=10, _continue=token)
        raise AssertionError("a bad token was accepted")
    except client.ApiException as error:
        assert error.status == 400 and said in json.loads(error.body)["message"], error
