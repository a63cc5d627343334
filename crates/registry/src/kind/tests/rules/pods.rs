//! Containers and volumes of pods, and of templates.
use super::{Name, refuses};
use serde_json::{Value, json};

const POD: Name = ("", "v1", "Pod");

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn containers() {
    refuses(
        POD,
        &pod(),
        &[
            ("/spec/containers", json!([]), &["spec.containers: Required value"]),
            (
                "/spec/containers/0/name",
                json!("a.b"),
                &["spec.containers[0].name: Invalid value: \"a.b\": must not contain dots"],
            ),
            (
                "/spec/containers/0/image",
                json!(" i"),
                &[
                    "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
                ],
            ),
            (
                "/spec/containers/-",
                json!({"name": "c", "image": "i"}),
                &["spec.containers[1].name: Duplicate value: \"c\""],
            ),
            (
                "/spec/containers/0/imagePullPolicy",
                json!("X"),
                &[
                    "spec.containers[0].imagePullPolicy: Unsupported value: \"X\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
                ],
            ),
            (
                "/spec/containers/0/terminationMessagePolicy",
                json!("X"),
                &[
                    "spec.containers[0].terminationMessagePolicy: Unsupported value: \"X\": supported values: \"File\", \"FallbackToLogsOnError\"",
                ],
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 0}]),
                &["spec.containers[0].ports[0].containerPort: Required value"],
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 70000}]),
                &[
                    "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
                &["spec.containers[0].ports[1].name: Duplicate value: \"a\""],
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]),
                &["spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//5\""],
            ),
            (
                "/spec/containers/0/env",
                json!([{"name": "a=b"}]),
                &[
                    "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
                ],
            ),
            (
                "/spec/containers/0/env",
                json!([{"name": "a", "valueFrom": {}}]),
                &[
                    "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
                ],
            ),
            (
                "/spec/containers/0/env",
                json!([{"name": "a", "value": "b", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
                &[
                    "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
                ],
            ),
            (
                "/spec/containers/0/env",
                json!([{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]),
                &[
                    "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not supported: spec.x",
                ],
            ),
            (
                "/spec/containers/0/env",
                json!([{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}}]),
                &[],
            ),
            (
                "/spec/containers/0/env",
                json!([{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}]),
                &[
                    "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource",
                ],
            ),
            (
                "/spec/containers/0/envFrom",
                json!([{}]),
                &[
                    "spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
                ],
            ),
            (
                "/spec/containers/0/restartPolicy",
                json!("X"),
                &[
                    "spec.containers[0].restartPolicy: Unsupported value: \"X\": supported values: \"Always\", \"Never\", \"OnFailure\"",
                ],
            ),
            (
                "/spec/initContainers",
                json!([{"name": "c", "image": "i"}]),
                &["spec.initContainers[0].name: Duplicate value: \"c\""],
            ),
            (
                "/spec/initContainers",
                json!([{"name": "i", "image": "i", "livenessProbe": {"exec": {"command": ["x"]}}}]),
                &[
                    "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
                ],
            ),
            (
                "/spec/initContainers",
                json!([{"name": "i", "image": "i", "restartPolicy": "Always", "livenessProbe": {"exec": {"command": ["x"]}}}]),
                &[],
            ),
            (
                "/spec/ephemeralContainers",
                json!([{"name": "e", "image": "i"}]),
                &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
            ),
        ],
    );
}

#[test]
fn resources_of_containers() {
    let at = "/spec/containers/0/resources";
    refuses(
        POD,
        &pod(),
        &[
            (
                at,
                json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
                &[
                    "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
                ],
            ),
            (
                at,
                json!({"limits": {"cpu": "-1"}}),
                &[
                    "spec.containers[0].resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
                    "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
                ],
            ),
            (
                at,
                json!({"requests": {"disk": "1"}}),
                &[
                    "spec.containers[0].resources.requests[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified",
                    "spec.containers[0].resources.requests[disk]: Invalid value: \"disk\": must be a standard resource for containers",
                ],
            ),
            (
                at,
                json!({"requests": {"ex.io/gpu": "1"}}),
                &[
                    "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
                ],
            ),
            (
                at,
                json!({"limits": {"ex.io/gpu": "500m"}}),
                &[
                    "spec.containers[0].resources.limits[ex.io/gpu]: Invalid value: \"500m\": must be an integer",
                    "spec.containers[0].resources.requests[ex.io/gpu]: Invalid value: \"500m\": must be an integer",
                ],
            ),
            (at, json!({"limits": {"ex.io/gpu": "1"}}), &[]),
            (
                at,
                json!({"limits": {"hugepages-2Mi": "2Mi"}}),
                &["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
            ),
            (
                at,
                json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
                &[
                    "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                    "spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                ],
            ),
            (
                at,
                json!({"claims": [{"name": "x"}]}),
                &[
                    "spec.containers[0].resources.claims[0]: Not found: \"x\": must be one of the names in pod.spec.resourceClaims which is empty",
                ],
            ),
            (
                "/spec/resources",
                json!({"requests": {"cpu": "1"}, "limits": {"ephemeral-storage": "1"}}),
                &[
                    "spec.resources.limits[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
                ],
            ),
        ],
    );
}

#[test]
fn probes_and_hooks() {
    let probe = "/spec/containers/0/readinessProbe";
    refuses(
        POD,
        &pod(),
        &[
            (
                probe,
                json!({}),
                &["spec.containers[0].readinessProbe: Required value: must specify a handler type"],
            ),
            (
                probe,
                json!({"exec": {"command": []}}),
                &["spec.containers[0].readinessProbe.exec.command: Required value"],
            ),
            (
                probe,
                json!({"tcpSocket": {"port": 1}, "grpc": {"port": 1}}),
                &[
                    "spec.containers[0].readinessProbe.grpc: Forbidden: may not specify more than 1 handler type",
                ],
            ),
            (
                probe,
                json!({"httpGet": {"port": "HTTP"}}),
                &[
                    "spec.containers[0].readinessProbe.httpGet.port: Invalid value: \"HTTP\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                    "spec.containers[0].readinessProbe.httpGet.port: Invalid value: \"HTTP\": must contain at least one letter (a-z)",
                ],
            ),
            (
                probe,
                json!({"tcpSocket": {"port": 1}, "periodSeconds": -1}),
                &[
                    "spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                ],
            ),
            (
                "/spec/containers/0/livenessProbe",
                json!({"tcpSocket": {"port": 1}, "successThreshold": 2}),
                &["spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"],
            ),
            (
                "/spec/containers/0/lifecycle",
                json!({"preStop": {"sleep": {"seconds": 31}}}),
                &[
                    "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
                ],
            ),
            (
                "/spec/containers/0/lifecycle",
                json!({"stopSignal": "SIGTERM"}),
                &[
                    "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
                ],
            ),
        ],
    );
}

#[test]
fn volumes_and_mounts() {
    let volumes = "/spec/volumes";
    refuses(
        POD,
        &pod(),
        &[
            (
                volumes,
                json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
                &["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
            ),
            (
                volumes,
                json!([{"name": "v", "hostPath": {"path": "/x"}, "iscsi": {
                    "initiatorName": "iqn.2001-04.com.example:i", "targetPortal": "p".repeat(63),
                }}]),
                &[
                    "spec.volumes[0].iscsi: Forbidden: may not specify more than 1 volume type",
                    "spec.volumes[0].name: Invalid value: \"v\": Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
                ],
            ),
            // The API knows the last path of each volume only.
            (
                "/spec",
                json!({
                    "volumes": [
                        {"name": "v", "emptyDir": {}},
                        {"name": "w", "persistentVolumeClaim": {"claimName": "c"}},
                    ],
                    "containers": [{
                        "name": "c", "image": "i",
                        "volumeMounts": [
                            {"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"},
                        ],
                        "volumeDevices": [{"name": "w", "devicePath": "/a"}],
                    }],
                }),
                &[
                    "spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"/a\": must not already exist as a path in volumeDevices",
                ],
            ),
            (
                volumes,
                json!([{"name": "v", "hostPath": {"path": "/x/../y"}}]),
                &[
                    "spec.volumes[0].hostPath.path: Invalid value: \"/x/../y\": must not contain '..'",
                ],
            ),
            (
                volumes,
                json!([{"name": "v", "secret": {"secretName": ""}}]),
                &["spec.volumes[0].secret.secretName: Required value"],
            ),
            (
                volumes,
                json!([{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}]),
                &[
                    "spec.volumes[0].configMap.items[0].path: Invalid value: \"../x\": must not contain '..'",
                ],
            ),
            (
                volumes,
                json!([{"name": "v", "configMap": {"name": "c", "defaultMode": 512}}]),
                &[
                    "spec.volumes[0].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
                ],
            ),
            (
                volumes,
                json!([{"name": "v", "nfs": {"server": "s", "path": "p"}}]),
                &["spec.volumes[0].nfs.path: Invalid value: \"p\": must be an absolute path"],
            ),
            (
                volumes,
                json!([{"name": "v", "iscsi": {"targetPortal": "p", "iqn": "x", "lun": 0}}]),
                &[
                    "spec.volumes[0].iscsi.iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa",
                ],
            ),
            (
                volumes,
                json!([{"name": "v", "iscsi": {"targetPortal": "p", "iqn": "iqn.2015-02.example.com:test", "lun": 0}}]),
                &[],
            ),
            (
                volumes,
                json!([{"name": "v", "csi": {"driver": ""}}]),
                &["spec.volumes[0].csi.driver: Required value"],
            ),
            (
                volumes,
                json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}}]),
                &[
                    "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
                    "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
                ],
            ),
            (
                volumes,
                json!([{"name": "v", "projected": {"sources": [{"secret": {"name": "a", "items": [{"key": "k", "path": "p"}]}}, {"configMap": {"name": "b", "items": [{"key": "k", "path": "p"}]}}]}}]),
                &["spec.volumes[0].projected: Invalid value: \"b\": conflicting duplicate paths"],
            ),
            (
                volumes,
                json!([{"name": "v", "downwardAPI": {"items": [{"path": "p"}]}}]),
                &[
                    "spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
                ],
            ),
            (
                volumes,
                json!([{"name": "v", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]),
                &[],
            ),
            (
                volumes,
                json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["X"], "resources": {"requests": {"storage": "1"}}}}}}]),
                &[
                    "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes: Unsupported value: \"X\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
                ],
            ),
            (
                volumes,
                json!([{"name": "v", "image": {"reference": ""}}]),
                &["spec.volumes[0].image.reference: Required value"],
            ),
            (
                "/spec/containers/0/volumeMounts",
                json!([{"name": "v", "mountPath": "/v"}]),
                &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
            ),
            (
                "/spec/containers/0/volumeDevices",
                json!([{"name": "v", "devicePath": "/v"}]),
                &["spec.containers[0].volumeDevices[0].name: Not found: \"v\""],
            ),
        ],
    );
    let mut mounted = pod();
    mounted["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let mounts = "/spec/containers/0/volumeMounts";
    refuses(
        POD,
        &mounted,
        &[
            (
                mounts,
                json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]),
                &[
                    "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/v\": must be unique",
                ],
            ),
            (
                mounts,
                json!([{"name": "v", "mountPath": "/v", "subPath": "/a"}]),
                &[
                    "spec.containers[0].volumeMounts.subPath: Invalid value: \"/a\": must be a relative path",
                ],
            ),
            (
                mounts,
                json!([{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]),
                &[
                    "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
                ],
            ),
            (
                mounts,
                json!([{"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled"}]),
                &[
                    "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
                ],
            ),
        ],
    );
}
