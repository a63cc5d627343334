// Manifests of any kind: a definition and its objects, applied, changed and deleted.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const extensions = config.makeApiClient(k8s.ApiextensionsV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);

const [definition] = k8s.loadAllYaml(readFileSync('crd.yaml', 'utf8'));
await objects.create(definition);
for (let isEstablished = false; !isEstablished; ) {
    const found = await extensions.readCustomResourceDefinition({ name: definition.metadata.name });
    isEstablished = (found.status?.conditions ?? []).some((c) => c.type === 'Established' && c.status === 'True');
}

// Server-side apply by two managers.
const apply = (spec, manager, force) =>
    objects.patch(
        { apiVersion: 'samplecrd.k8s.io/v1', kind: 'Network', metadata: { name: 'n', namespace: 'default' }, spec },
        undefined,
        undefined,
        manager,
        force,
        k8s.PatchStrategy.ServerSideApply,
    );
const spec = { cidr: '10.0.0.0/8', gateway: '10.0.0.1' };
const made = await apply(spec, 'one', false);
assert.equal(made.metadata.generation, 1);
assert.equal((await apply(spec, 'one', false)).metadata.resourceVersion, made.metadata.resourceVersion);
await assert.rejects(apply({ ...spec, gateway: '10.0.0.2' }, 'two', false), (error) => {
    assert.equal(error.code, 409);
    const { message, details } = JSON.parse(error.body);
    assert.equal(message, 'Apply failed with 1 conflict: conflict with "one": .spec.gateway');
    assert.equal(details.causes[0].field, '.spec.gateway');
    return true;
});
const forced = await apply({ ...spec, gateway: '10.0.0.2' }, 'two', true);
assert.deepEqual([forced.spec.gateway, forced.metadata.generation], ['10.0.0.2', 2]);
await assert.rejects(apply({ cidr: 'x' }, 'one', true), (error) => error.code === 422);

// The same object through the client of custom resources, its status apart from its spec.
const place = { group: 'samplecrd.k8s.io', version: 'v1', namespace: 'default', plural: 'networks', name: 'n' };
const body = { ...(await custom.getNamespacedCustomObject(place)), status: { cidr: '10.0.0.0/8' } };
const shown = await custom.replaceNamespacedCustomObjectStatus({ ...place, body });
assert.deepEqual([shown.status.cidr, shown.metadata.generation], ['10.0.0.0/8', 2]);
const list = await custom.listNamespacedCustomObject({ ...place });
assert.deepEqual([list.kind, list.items.length], ['NetworkList', 1]);

// One file with several kinds, in order.
const manifests = k8s.loadAllYaml(`
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec: {rules: [{host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`);
for (const manifest of manifests) {
    await objects.create(manifest);
}
const service = await objects.read({ apiVersion: 'v1', kind: 'Service', metadata: { name: 'web', namespace: 'shop' } });
assert.match(service.spec.clusterIP, /^10\./);
assert.equal(service.spec.ports[0].targetPort, 'http');
const ingresses = await objects.list('networking.k8s.io/v1', 'Ingress', 'shop');
assert.deepEqual(ingresses.items.map((ingress) => ingress.spec.rules[0].host), ['shop.example']);
for (const manifest of manifests.reverse()) {
    await objects.delete(manifest);
}
await objects.delete(definition);
