// Typed calls: create, read, replace, every patch type, pages, errors, delete.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const namespace = 'typed';
await core.createNamespace({ body: { metadata: { name: namespace } } });

// Replace, with the version that was read; the same version again is a conflict.
const made = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'cm' }, data: { a: '1' } } });
assert.ok(made.metadata.creationTimestamp instanceof Date);
made.data.b = '2 < 3 & 4';
const replaced = await core.replaceNamespacedConfigMap({ namespace, name: 'cm', body: made });
assert.equal(replaced.data.b, '2 < 3 & 4');
await assert.rejects(core.replaceNamespacedConfigMap({ namespace, name: 'cm', body: made }), (error) => {
    assert.ok(error instanceof k8s.ApiException);
    assert.equal(error.code, 409);
    assert.equal(JSON.parse(error.body).reason, 'Conflict');
    return true;
});

// Each patch type.
const patch = (body, type) =>
    apps.patchNamespacedDeployment({ namespace, name: 'web', body }, k8s.setHeaderOptions('Content-Type', type));
await apps.createNamespacedDeployment({
    namespace,
    body: {
        metadata: { name: 'web' },
        spec: {
            selector: { matchLabels: { app: 'web' } },
            template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'one', image: 'i:1' }] } },
        },
    },
});
let web = await patch(
    { spec: { template: { spec: { containers: [{ name: 'two', image: 'i:2' }] } } } },
    k8s.PatchStrategy.StrategicMergePatch,
);
assert.deepEqual(web.spec.template.spec.containers.map((c) => c.name), ['two', 'one']);
web = await patch([{ op: 'remove', path: '/spec/template/spec/containers/0' }], k8s.PatchStrategy.JsonPatch);
assert.deepEqual(web.spec.template.spec.containers.map((c) => c.name), ['one']);
web = await patch({ metadata: { labels: { tier: 'front' } } }, k8s.PatchStrategy.MergePatch);
assert.equal(web.metadata.labels.tier, 'front');
const scale = await apps.readNamespacedDeploymentScale({ namespace, name: 'web' });
scale.spec.replicas = 3;
await apps.replaceNamespacedDeploymentScale({ namespace, name: 'web', body: scale });
assert.equal((await apps.readNamespacedDeployment({ namespace, name: 'web' })).spec.replicas, 3);

// Pages.
for (let i = 0; i < 7; i++) {
    await core.createNamespacedSecret({
        namespace,
        body: { metadata: { name: `s${i}`, labels: { odd: String(i % 2) } }, stringData: { key: `value ${i}` } },
    });
}
const names = [];
let _continue;
do {
    const page = await core.listNamespacedSecret({ namespace, limit: 3, _continue });
    names.push(...page.items.map((secret) => secret.metadata.name));
    _continue = page.metadata._continue;
} while (_continue);
assert.deepEqual(names, ['s0', 's1', 's2', 's3', 's4', 's5', 's6']);
const odd = await core.listNamespacedSecret({ namespace, labelSelector: 'odd=1', fieldSelector: 'metadata.name!=s3' });
assert.deepEqual(odd.items.map((secret) => Buffer.from(secret.data.key, 'base64').toString()), ['value 1', 'value 5']);

// What is refused says why, in every form.
await assert.rejects(core.readNamespacedSecret({ namespace, name: 'none' }), (error) => {
    assert.equal(error.code, 404);
    assert.equal(JSON.parse(error.body).message, 'secrets "none" not found');
    return true;
});
await assert.rejects(
    core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'Not_A_Name' } } }),
    (error) => error.code === 422 && JSON.parse(error.body).details.causes[0].field === 'metadata.name',
);
await assert.rejects(
    core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'cm' } } }),
    (error) => error.code === 409 && JSON.parse(error.body).reason === 'AlreadyExists',
);

const gone = await core.deleteNamespacedSecret({ namespace, name: 's0' });
assert.equal(gone.status, 'Success');
await core.deleteCollectionNamespacedSecret({ namespace, labelSelector: 'odd=1' });
assert.deepEqual((await core.listNamespacedSecret({ namespace })).items.map((s) => s.metadata.name), ['s2', 's4', 's6']);
