//! Volumes, claims, classes, drivers and devices.
use super::{Name, changed, fresh, refuses, refuses_changes, refuses_status};
use serde_json::{Value, json};

#[test]
fn volumes_and_claims() {
    let volume: Name = ("", "v1", "PersistentVolume");
    let sample = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "ex.io", "volumeHandle": "h"}}});
    refuses(
        volume,
        &sample,
        &[
            (
                "/spec/capacity",
                json!({}),
                &[
                    "spec.capacity: Required value",
                    "spec.capacity: Unsupported value: null: supported values: \"storage\"",
                ],
            ),
            (
                "/spec/capacity/storage",
                json!("0"),
                &["spec.capacity[storage]: Invalid value: \"0\": must be greater than zero"],
            ),
            (
                "/spec/accessModes",
                json!(["ReadWriteOncePod", "ReadWriteOnce"]),
                &[
                    "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                ],
            ),
            ("/spec/csi", json!(null), &["spec: Required value: must specify a volume type"]),
            (
                "/spec/hostPath",
                json!({"path": "/x"}),
                &["spec.csi: Forbidden: may not specify more than 1 volume type"],
            ),
            ("/spec/csi/volumeHandle", json!(""), &["spec.csi.volumeHandle: Required value"]),
            (
                "/spec/persistentVolumeReclaimPolicy",
                json!("X"),
                &[
                    "spec.persistentVolumeReclaimPolicy: Unsupported value: \"X\": supported values: \"Delete\", \"Recycle\", \"Retain\"",
                ],
            ),
            (
                "/spec/volumeMode",
                json!("X"),
                &[
                    "spec.volumeMode: Unsupported value: \"X\": supported values: \"Block\", \"Filesystem\"",
                ],
            ),
        ],
    );
    refuses_changes(
        volume,
        &sample,
        &[
            ("/spec/capacity/storage", json!("2Gi"), &[]),
            (
                "/spec/csi/volumeHandle",
                json!("other"),
                &[
                    "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n",
                ],
            ),
            ("/spec/csi/controllerExpandSecretRef", json!({"name": "a", "namespace": "b"}), &[]),
            (
                "/spec/volumeMode",
                json!("Block"),
                &["volumeMode: Invalid value: \"Block\": field is immutable"],
            ),
        ],
    );
    let claim: Name = ("", "v1", "PersistentVolumeClaim");
    let sample = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    refuses(
        claim,
        &sample,
        &[
            (
                "/spec/accessModes",
                json!(["X"]),
                &[
                    "spec.accessModes: Unsupported value: \"X\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
                ],
            ),
            ("/spec/resources", json!({}), &["spec.resources[storage]: Required value"]),
            (
                "/spec/resources/requests/storage",
                json!("0"),
                &["spec.resources[storage]: Invalid value: \"0\": must be greater than zero"],
            ),
            (
                "/spec/dataSource",
                json!({"kind": "X", "name": "a"}),
                // Dropped.
                &[],
            ),
            (
                "/spec/dataSourceRef",
                json!({"kind": "X", "name": "a"}),
                &[
                    "spec.dataSource: Invalid value: \"X\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
                    "spec.dataSourceRef: Invalid value: \"X\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
                ],
            ),
        ],
    );
    const FORBIDDEN: &str = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
    refuses_changes(
        claim,
        &sample,
        &[
            ("/spec/volumeName", json!("v"), &[]),
            ("/spec/storageClassName", json!("s"), &[]),
            ("/spec/resources/requests/storage", json!("2Gi"), &[FORBIDDEN]),
            ("/spec/accessModes", json!(["ReadOnlyMany"]), &[FORBIDDEN]),
        ],
    );
    let mut bound = fresh(claim, sample);
    bound["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
    let mut new = bound.clone();
    new["spec"]["resources"]["requests"]["storage"] = "2Gi".into();
    assert_eq!(changed(claim, &bound, &new, false), [""; 0]);
    new["spec"]["resources"]["requests"]["storage"] = "1Mi".into();
    assert_eq!(
        changed(claim, &bound, &new, false),
        ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]
    );
    // A class in the status forbids that it goes, and nothing else.
    bound["status"]["currentVolumeAttributesClassName"] = "fast".into();
    let mut labelled = bound.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(changed(claim, &bound, &labelled, false), [""; 0]);
    let with_class = |class: Value| {
        let mut claim = bound.clone();
        claim["spec"]["volumeAttributesClassName"] = class;
        claim
    };
    let empty = with_class("".into());
    let forbidden = |to: &str| {
        format!(
            "spec.volumeAttributesClassName: Forbidden: update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
        )
    };
    assert_eq!(changed(claim, &empty, &empty, false), [""; 0]);
    assert_eq!(
        changed(claim, &with_class("fast".into()), &empty, false),
        [forbidden("empty string")]
    );
    assert_eq!(changed(claim, &empty, &bound, false), [forbidden("nil")]);
}

#[test]
fn classes_and_drivers() {
    let class: Name = ("storage.k8s.io", "v1", "StorageClass");
    let sample = json!({"provisioner": "ex.io/a", "parameters": {"a": "b"}});
    refuses(
        class,
        &sample,
        &[
            ("/provisioner", json!(""), &["provisioner: Required value"]),
            (
                "/reclaimPolicy",
                json!("X"),
                &[
                    "reclaimPolicy: Unsupported value: \"X\": supported values: \"Delete\", \"Retain\"",
                ],
            ),
            (
                "/volumeBindingMode",
                json!("X"),
                &[
                    "volumeBindingMode: Unsupported value: \"X\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
                ],
            ),
            (
                "/allowedTopologies",
                json!([{"matchLabelExpressions": [{"key": "a", "values": []}]}]),
                &["allowedTopologies[0].matchLabelExpressions[0].values: Required value"],
            ),
            (
                "/allowedTopologies",
                json!([
                    {"matchLabelExpressions": [{"key": "a", "values": ["x", "y"]}]},
                    {"matchLabelExpressions": [{"key": "a", "values": ["y", "x"]}]},
                ]),
                &["allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\""],
            ),
            (
                "/allowedTopologies",
                json!([{}]),
                &["allowedTopologies[0].matchLabelExpressions: Duplicate value: \"\""],
            ),
        ],
    );
    refuses_changes(
        class,
        &sample,
        &[
            ("/allowVolumeExpansion", json!(true), &[]),
            ("/parameters", json!({}), &["parameters: Invalid value: {}: field is immutable"]),
        ],
    );
    let attributes: Name = ("storage.k8s.io", "v1", "VolumeAttributesClass");
    let sample = json!({"driverName": "ex.io", "parameters": {"a": "b"}});
    refuses(
        attributes,
        &sample,
        &[(
            "/parameters",
            json!({}),
            &["parameters: Required value: must contain at least one key/value pair"],
        )],
    );
    refuses_changes(
        attributes,
        &sample,
        &[(
            "/parameters/a",
            json!("c"),
            &["parameters: Forbidden: updates to parameters are forbidden."],
        )],
    );
    let driver: Name = ("storage.k8s.io", "v1", "CSIDriver");
    refuses(
        driver,
        &json!({"spec": {}}),
        &[
            (
                "/spec/fsGroupPolicy",
                json!("X"),
                &[
                    "spec.fsGroupPolicy: Unsupported value: \"X\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
                ],
            ),
            (
                "/spec/tokenRequests",
                json!([{"audience": "a"}, {"audience": "a"}]),
                &["spec.tokenRequests[1].audience: Duplicate value: \"a\""],
            ),
        ],
    );
    refuses_changes(
        driver,
        &json!({"spec": {}}),
        &[(
            "/spec/attachRequired",
            json!(false),
            &["spec.attachedRequired: Invalid value: false: field is immutable"],
        )],
    );
    let node: Name = ("storage.k8s.io", "v1", "CSINode");
    let sample =
        json!({"spec": {"drivers": [{"name": "ex.io", "nodeID": "n", "topologyKeys": ["a"]}]}});
    refuses(
        node,
        &sample,
        &[
            ("/spec/drivers/0/nodeID", json!(""), &["spec.drivers[0].nodeID: Required value"]),
            (
                "/spec/drivers/0/topologyKeys",
                json!(["a", "a"]),
                &["spec.drivers[0]: Duplicate value: \"a\""],
            ),
        ],
    );
    let attachment: Name = ("storage.k8s.io", "v1", "VolumeAttachment");
    let sample = json!({"spec": {"attacher": "ex.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    refuses(
        attachment,
        &sample,
        &[
            (
                "/spec/source",
                json!({}),
                &[
                    "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                ],
            ),
            (
                "/spec/source",
                json!({"inlineVolumeSpec": {
                    "accessModes": ["ReadWriteOnce"],
                    "csi": {"driver": "ex.io", "volumeHandle": "v"},
                }}),
                &[],
            ),
            (
                "/spec/source",
                json!({"inlineVolumeSpec": {
                    "capacity": {"storage": "1Gi"},
                    "hostPath": {"path": "/a"},
                    "nodeAffinity": {},
                    "persistentVolumeReclaimPolicy": "Delete",
                    "storageClassName": "fast",
                    "volumeMode": "Block",
                }}),
                &[
                    "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes",
                    "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
                    "spec.source.inlineVolumeSpec.accessModes: Required value",
                    "spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes",
                    "spec.source.inlineVolumeSpec.nodeAffinity: Forbidden: may not be specified in the context of inline volumes",
                    "spec.source.inlineVolumeSpec.storageClassName: Forbidden: may not be specified in the context of inline volumes",
                    "spec.source.inlineVolumeSpec.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes",
                ],
            ),
        ],
    );
    refuses_changes(
        attachment,
        &sample,
        &[(
            "/spec/nodeName",
            json!("m"),
            &[
                "spec: Invalid value: {\"attacher\":\"ex.io\",\"nodeName\":\"m\",\"source\":{\"persistentVolumeName\":\"v\"}}: field is immutable",
            ],
        )],
    );
}

#[test]
fn devices() {
    let group = "resource.k8s.io";
    let claim: Name = (group, "v1", "ResourceClaim");
    let sample = json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}});
    refuses(
        claim,
        &sample,
        &[
            (
                "/spec/devices/requests/0/exactly",
                json!(null),
                &[
                    "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                ],
            ),
            (
                "/spec/devices/requests/0/exactly/deviceClassName",
                json!(""),
                &["spec.devices.requests[0].exactly.deviceClassName: Required value"],
            ),
            (
                "/spec/devices/requests/0/exactly/allocationMode",
                json!("X"),
                &[
                    "spec.devices.requests[0].exactly.allocationMode: Unsupported value: \"X\": supported values: \"All\", \"ExactCount\"",
                ],
            ),
            (
                "/spec/devices/constraints",
                json!([{"requests": ["other"], "matchAttribute": "ex.io/a"}]),
                &[
                    "spec.devices.constraints[0].requests[0]: Invalid value: \"other\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                ],
            ),
            (
                "/spec/devices/constraints",
                json!([{"matchAttribute": "a"}]),
                &[
                    "spec.devices.constraints[0].matchAttribute: Invalid value: \"a\": a fully qualified name must be a domain and a name separated by a slash",
                ],
            ),
            (
                "/spec/devices/config",
                json!([{"opaque": {"driver": "ex.io", "parameters": {"a": "b"}}}]),
                &[],
            ),
        ],
    );
    refuses_changes(
        claim,
        &sample,
        &[(
            "/spec/devices/requests/0/name",
            json!("s"),
            &[
                "spec: Invalid value: {\"devices\":{\"requests\":[{\"exactly\":{\"allocationMode\":\"ExactCount\",\"count\":1,\"deviceClassName\":\"c\"},\"name\":\"s\"}]}}: field is immutable",
            ],
        )],
    );
    refuses_status(
        claim,
        &sample,
        &[
            (
                json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}),
                &[
                    "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
                ],
            ),
            (
                json!({"allocation": {"devices": {"results": [{"request": "r", "driver": "ex.io", "pool": "p", "device": "d"}]}}}),
                &[],
            ),
        ],
    );
    let slice: Name = (group, "v1", "ResourceSlice");
    let sample = json!({"spec": {"driver": "ex.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d"}]}});
    refuses(
        slice,
        &sample,
        &[
            (
                "/spec/allNodes",
                json!(true),
                &[
                    "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
                ],
            ),
            (
                "/spec/pool/resourceSliceCount",
                json!(0),
                &["spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"],
            ),
            (
                "/spec/devices",
                json!([{"name": "d"}, {"name": "d"}]),
                &["spec.devices[1]: Duplicate value: \"d\""],
            ),
            (
                "/spec/devices",
                json!([{"name": "d", "attributes": {"a": {"int": 1, "string": "x"}}}]),
                &[
                    r#"spec.devices[0].attributes[a]: Invalid value: {"IntValue":1,"BoolValue":null,"StringValue":"x","VersionValue":null,"IntValues":null,"BoolValues":null,"StringValues":null,"VersionValues":null}: exactly one value must be specified"#,
                ],
            ),
            (
                "/spec/devices",
                json!([{"name": "d", "attributes": {"a": {}}}]),
                &[
                    "spec.devices[0].attributes[a]: Invalid value: \"\": exactly one value must be specified",
                ],
            ),
        ],
    );
    refuses_changes(
        slice,
        &sample,
        &[(
            "/spec/driver",
            json!("other.io"),
            &["spec.driver: Invalid value: \"other.io\": field is immutable"],
        )],
    );
}
