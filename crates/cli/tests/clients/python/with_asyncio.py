"""kubernetes_asyncio: many calls at once over one connection pool, and a watch beside them."""
import asyncio
from kubernetes_asyncio import client, config, watch


async def main():
    await config.load_kube_config()
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)

        async def create(n):
            metadata = client.V1ObjectMeta(name=f"c{n}", labels={"of": "asyncio"})
            return await core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=metadata))

        begin = (await core.list_namespaced_config_map("default")).metadata.resource_version

        async def follow():
            names = set()
            async with watch.Watch() as events:
                changes = events.stream(core.list_namespaced_config_map, "default", label_selector="of=asyncio",
                                        resource_version=begin, timeout_seconds=30)
                async for event in changes:
                    names.add(event["object"].metadata.name)
                    if len(names) == 50:
                        return names

        follower = asyncio.create_task(follow())
        made = await asyncio.gather(*(create(n) for n in range(50)))
        assert len({one.metadata.uid for one in made}) == 50
        assert await asyncio.wait_for(follower, 30) == {f"c{n}" for n in range(50)}

        first = await core.list_namespaced_config_map("default", label_selector="of=asyncio", limit=20)
        rest = await core.list_namespaced_config_map("default", label_selector="of=asyncio", _continue=first.metadata._continue)
        assert (len(first.items), first.metadata.remaining_item_count, len(rest.items)) == (20, None, 30)
        try:
            await create(0)
            raise AssertionError("created twice")
        except client.ApiException as error:
            assert error.status == 409 and error.reason == "Conflict", error
        await core.delete_collection_namespaced_config_map("default", label_selector="of=asyncio")
        assert (await core.list_namespaced_config_map("default", label_selector="of=asyncio")).items == []


asyncio.run(main())
