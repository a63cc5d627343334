// The informer: its list, every change once, selectors, ended watches, lost history, restarts.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'seen';
await core.createNamespace({ body: { metadata: { name: namespace } } });
const create = (name, tier) =>
    core.createNamespacedConfigMap({ namespace, body: { metadata: { name, labels: { tier } }, data: { v: '1' } } });
const patch = (name, body) =>
    core.patchNamespacedConfigMap(
        { namespace, name, body },
        k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
    );

/// Events in their order, and a promise of the next one.
const events = [];
let wake = () => {};
const next = async () => {
    while (events.length === 0) {
        await new Promise((resolve) => (wake = resolve));
    }
    return events.shift();
};
const record = (event) => {
    events.push(event);
    wake();
};

await create('first', 'front');
await create('other', 'back');
const labelSelector = 'tier=front';
const informer = k8s.makeInformer(
    config,
    `/api/v1/namespaces/${namespace}/configmaps`,
    () => core.listNamespacedConfigMap({ namespace, labelSelector }),
    labelSelector,
);
for (const verb of [k8s.ADD, k8s.UPDATE, k8s.DELETE]) {
    informer.on(verb, (object) => record(`${verb} ${object.metadata.name} ${object.data?.v}`));
}
let connects = 0;
informer.on(k8s.CONNECT, () => connects++);
// `stop` aborts the watch's request, which is told as an error.
informer.on(k8s.ERROR, (error) => error.name === 'AbortError' || record(`error ${error.message ?? error}`));
await informer.start();
assert.equal(await next(), 'add first 1');

await create('second', 'front');
await create('unseen', 'back');
await patch('second', { data: { v: '2' } });
await core.deleteNamespacedConfigMap({ namespace, name: 'first' });
assert.deepEqual([await next(), await next(), await next()], ['add second 1', 'update second 2', 'delete first 1']);
// An object enters the selection as an add, and leaves it as a delete of its last selected state.
await patch('other', { metadata: { labels: { tier: 'front' } } });
await patch('second', { metadata: { labels: { tier: 'back' } }, data: { v: '3' } });
assert.deepEqual([await next(), await next()], ['add other 1', 'delete second 2']);
assert.deepEqual(informer.list(namespace).map((object) => object.metadata.name), ['other']);
assert.equal(informer.get('other', namespace).data.v, '1');

// A watch that the server ends is resumed where it was: nothing is lost or repeated.
const before = connects;
const version = informer.latestResourceVersion();
const request = informer.request;
await informer.stop();
await patch('other', { data: { v: '2' } });
await create('third', 'front');
await informer.start();
assert.notEqual(informer.request, request);
assert.deepEqual([await next(), await next()], ['update other 2', 'add third 1']);
assert.ok(connects > before && Number(informer.latestResourceVersion()) > Number(version));

// A watch with a timeout ends by itself, without an error.
const done = new Promise((resolve) =>
    new k8s.Watch(config).watch(
        `/api/v1/namespaces/${namespace}/configmaps`,
        { timeoutSeconds: 1, labelSelector, allowWatchBookmarks: true },
        (type, object) => record(`${type} ${object.metadata.name}`),
        resolve,
    ),
);
assert.equal(await done, null);
assert.deepEqual([await next(), await next()].sort(), ['ADDED other', 'ADDED third']);
events.length = 0;

// Without its version it lists again: the difference comes as events.
await informer.stop();
informer.resourceVersion = '';
await core.deleteNamespacedConfigMap({ namespace, name: 'third' });
await create('fourth', 'front');
await informer.start();
assert.deepEqual([await next(), await next()], ['delete third 1', 'add fourth 1']);
await informer.stop();
assert.deepEqual(events, []);
process.exit(0);
