// Logs and commands of a running pod.
import assert from 'node:assert/strict';
import { PassThrough, Readable } from 'node:stream';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'default';
/// Repeats a read until it gives what is waited for.
const until = async (read) => {
    for (;;) {
        const found = await read().catch((error) => {
            if (error.code !== 404) throw error;
        });
        if (found) return found;
    }
};
await until(() => core.readNamespacedServiceAccount({ namespace, name: 'default' }));
await core.createNamespacedPod({
    namespace,
    body: {
        metadata: { name: 'p' },
        spec: { containers: [{ name: 'c', image: 'i', command: ['sh', '-c', 'echo hello; echo there; sleep 1000'] }] },
    },
});
await until(async () => (await core.readNamespacedPod({ namespace, name: 'p' })).status.phase === 'Running');

const collect = (stream, enough) =>
    new Promise((resolve) => {
        let text = '';
        stream.on('data', (chunk) => {
            text += chunk;
            if (enough(text)) resolve(text);
        });
    });

const log = new PassThrough();
const abort = await new k8s.Log(config).log(namespace, 'p', 'c', log, { follow: true });
assert.equal(await collect(log, (text) => text.split('\n').length > 2), 'hello\nthere\n');
abort.abort();

// A command's streams and its exit code.
const [out, err] = [new PassThrough(), new PassThrough()];
const [heard, complained] = [collect(out, (t) => t.endsWith('\n')), collect(err, (t) => t.endsWith('\n'))];
const status = await new Promise((resolve, reject) =>
    new k8s.Exec(config)
        .exec(namespace, 'p', 'c', ['sh', '-c', 'read x; echo got $x; echo bad >&2; exit 3'], out, err, Readable.from(['a line\n']), false, resolve)
        .catch(reject),
);
assert.deepEqual([await heard, await complained], ['got a line\n', 'bad\n']);
assert.equal(status.status, 'Failure');
assert.deepEqual(status.details.causes, [{ reason: 'ExitCode', message: '3' }]);
process.exit(0);
