//! Answers of kube-apiserver 1.36 beyond what generated objects ask for: limits, endpoints of
//! parts, orders of errors.
use super::{changed, context, created, fresh, refuses, refuses_changes, refuses_status};
use crate::kind::{Context, rows};
use serde_json::{Value, json};

const NETWORKING: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";

#[test]
fn ranges_of_one_family_are_refused_whatever_else_is_wrong() {
    let name = (NETWORKING, "v1", "ServiceCIDR");
    let one = "spec.cidrs: Invalid value: [\"10.0.0.1/8\",\"10.1.0.0/16\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
    let three = json!(["10.0.0.0/8", "fd00::/64", "11.0.0.0/8"]);
    refuses(
        name,
        &json!({"spec": {"cidrs": ["10.0.0.0/8", "fd00::/64"]}}),
        &[
            (
                "/spec/cidrs",
                json!(["10.0.0.1/8", "10.1.0.0/16"]),
                &[
                    "spec.cidrs[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
                    one,
                ],
            ),
            (
                "/spec/cidrs",
                json!(["x", "10.1.0.0/16"]),
                &[
                    "spec.cidrs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                ],
            ),
            (
                "/spec/cidrs",
                three,
                &[
                    "spec.cidrs: Invalid value: {\"CIDRs\":[\"10.0.0.0/8\",\"fd00::/64\",\"11.0.0.0/8\"]}: may only hold up to 2 values",
                ],
            ),
        ],
    );
}

#[test]
fn lists_of_slices_that_are_too_long_are_checked_or_not() {
    let name = ("discovery.k8s.io", "v1", "EndpointSlice");
    let mut addresses = vec![json!("10.0.0.1"); 100];
    addresses.push("x".into());
    let zones = |n: usize| vec![json!({"name": "z"}); n];
    refuses(
        name,
        &json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}),
        &[
            (
                "/endpoints/0/addresses",
                addresses.into(),
                &[
                    "endpoints[0].addresses: Too many: 101: must have at most 100 items",
                    "endpoints[0].addresses[100]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ],
            ),
            (
                "/endpoints/0/hints",
                json!({"forZones": zones(9), "forNodes": [{"name": "-"}]}),
                &["endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"],
            ),
        ],
    );
}

#[test]
fn classes_and_attachments_have_the_limits_of_the_original() {
    let class = json!({"provisioner": "ex.io/p"});
    let parameters: serde_json::Map<String, Value> =
        (0..513).map(|n| (n.to_string(), "x".repeat(600).into())).collect();
    refuses(
        (STORAGE, "v1", "StorageClass"),
        &class,
        &[
            ("/reclaimPolicy", json!(""), &[]),
            (
                "/reclaimPolicy",
                json!("Recycle"),
                &[
                    "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
                ],
            ),
            (
                "/parameters",
                parameters.into(),
                &["parameters: Too long: may not be more than 512 bytes"],
            ),
        ],
    );
    refuses_status(
        (STORAGE, "v1", "VolumeAttachment"),
        &json!({"spec": {"attacher": "ex.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
        &[(
            json!({"attached": false, "attachError": {"message": "x".repeat(1025)}}),
            &["status.attachError.message: Too long: may not be more than 262144 bytes"],
        )],
    );
}

#[test]
fn changed_drivers_are_reported_in_the_order_of_the_stored_ones() {
    let name = (STORAGE, "v1", "CSINode");
    let driver = |name: &str, id: &str| json!({"name": name, "nodeID": id, "topologyKeys": null});
    let old = fresh(name, json!({"spec": {"drivers": [driver("a", "1"), driver("b", "1")]}}));
    let mut new = old.clone();
    new["spec"]["drivers"] = json!([driver("b", "2"), driver("a", "2")]);
    let found = changed(name, &old, &new, false);
    assert_eq!(found.len(), 2);
    assert!(found[0].contains(r#""name":"a""#) && found[1].contains(r#""name":"b""#), "{found:?}");
}

#[test]
fn autoscalers_scale_replication_controllers_of_the_core_group() {
    let name = ("autoscaling", "v2", "HorizontalPodAutoscaler");
    let target = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "name": "x"});
    refuses(
        name,
        &json!({"spec": {"maxReplicas": 1, "scaleTargetRef": target("ReplicationController")}}),
        &[(
            "/spec/scaleTargetRef",
            target("Deployment"),
            &[
                "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
            ],
        )],
    );
}

#[test]
fn mutating_bindings_match_nothing_that_is_deleted() {
    let rule = json!({"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    let matches = |operation: &str| {
        let mut rule = rule.clone();
        rule["operations"][0] = operation.into();
        json!({"resourceRules": [rule]})
    };
    let unsupported = |path: &str| {
        format!(
            "{path}.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\""
        )
    };
    let sample = json!({"spec": {"policyName": "p", "matchResources": matches("CREATE")}});
    refuses(
        (ADMISSION, "v1", "MutatingAdmissionPolicyBinding"),
        &sample,
        &[("/spec/matchResources", matches("DELETE"), &[&unsupported("spec.matchResources")])],
    );
    let mut sample = sample;
    sample["spec"]["validationActions"] = json!(["Deny"]);
    refuses(
        (ADMISSION, "v1", "ValidatingAdmissionPolicyBinding"),
        &sample,
        &[("/spec/matchResources", matches("DELETE"), &[])],
    );
    // Before the conditions, whose expressions are shown without the space around them.
    let policy = json!({"spec": {
        "matchConstraints": matches("CREATE"),
        "matchConditions": [{"name": "a", "expression": "true"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'test'}]"}}],
        "reinvocationPolicy": "Never",
    }});
    let name = (ADMISSION, "v1", "MutatingAdmissionPolicy");
    assert_eq!(created(name, policy.clone()), [""; 0]);
    let mut wrong = policy;
    wrong["spec"]["matchConstraints"] = matches("DELETE");
    wrong["spec"]["matchConditions"][0]["expression"] = "  1 ".into();
    wrong["spec"]["mutations"][0]["jsonPatch"]["expression"] = " 'a' ".into();
    assert_eq!(
        created(name, wrong),
        [
            unsupported("spec.matchConstraints"),
            "spec.matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int".to_owned(),
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"'a'\": must evaluate to list(JSONPatch) but got string".to_owned(),
        ]
    );
}

#[test]
fn the_status_of_a_policy_says_where_its_warnings_are() {
    let rule = json!({"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "true"}],
    });
    let warnings = "status.typeChecking.expressionWarnings";
    let condition = json!({"type": "A", "status": "x", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    refuses_status(
        (ADMISSION, "v1", "ValidatingAdmissionPolicy"),
        &json!({"spec": spec}),
        &[
            (
                json!({"typeChecking": {"expressionWarnings": [
                    {"fieldRef": "spec.validations[0].expression", "warning": "w"},
                    {"fieldRef": " ", "warning": ""},
                ]}}),
                &[
                    &format!("{warnings}[1].warning: Required value"),
                    &format!("{warnings}[1].fieldRef: Required value"),
                ],
            ),
            (
                json!({"conditions": [condition]}),
                &[
                    "status.conditions[0].status: Unsupported value: \"x\": supported values: \"False\", \"True\", \"Unknown\"",
                ],
            ),
        ],
    );
}

#[test]
fn reserved_names_of_admission_cause_warnings() {
    for kind in [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ] {
        let row = rows::of(ADMISSION, kind).unwrap();
        let named = |name: &str| json!({"metadata": {"name": name}});
        let expected = "metadata.name: names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be managed via the API";
        let reserved = named("a.static.k8s.io");
        assert_eq!((row.warnings)(&reserved), [expected], "{kind}");
        assert_eq!((row.update_warnings)(&reserved, &reserved), [expected], "{kind}");
        assert_eq!((row.warnings)(&named("static.k8s.io")), [""; 0], "{kind}");
    }
}

#[test]
fn flow_control_is_refused_in_the_order_of_the_original() {
    let level = json!({
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}},
    });
    let queuing = "spec.limited.limitResponse.queuing";
    refuses(
        (FLOW, "v1", "PriorityLevelConfiguration"),
        &level,
        &[
            (
                "/spec/limited/limitResponse/queuing",
                json!({"queues": 10_000_001, "handSize": -1}),
                &[
                    &format!(
                        "{queuing}.queues: Invalid value: 10000001: must not be greater than 10000000"
                    ),
                    &format!("{queuing}.handSize: Invalid value: -1: must be positive"),
                ],
            ),
            (
                "/metadata/annotations",
                json!({"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}),
                &[
                    "metadata.annotations: Forbidden: annotation 'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden",
                ],
            ),
        ],
    );
    let subject = json!({"kind": "ServiceAccount",
        "serviceAccount": {"namespace": "n", "name": "*"}, "user": {"name": "u"}, "group": {"name": "g"}});
    let rule = json!({"subjects": [subject], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]});
    let spec = json!({"priorityLevelConfiguration": {"name": "x"}, "rules": [rule]});
    assert_eq!(
        created((FLOW, "v1", "FlowSchema"), json!({"spec": spec})),
        [
            "spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
            "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
        ]
    );
}

#[test]
fn statuses_of_apis_and_definitions_are_checked() {
    let service =
        json!({"group": "ex.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1});
    refuses_status(
        ("apiregistration.k8s.io", "v1", "APIService"),
        &json!({"spec": service}),
        &[(
            json!({"conditions": [{"type": "Available", "status": "True"}, {"type": "A", "status": "x"}]}),
            &[
                "status.conditions[1].status: Unsupported value: \"x\": supported values: \"True\", \"False\", \"Unknown\"",
            ],
        )],
    );
    let definition = json!({"spec": {"group": "ex.io", "names": {"plural": "as", "kind": "A"}, "scope": "Cluster", "versions": []}});
    refuses_status(
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        &definition,
        &[
            (json!({"acceptedNames": {"kind": "", "plural": ""}}), &[]),
            (
                json!({"acceptedNames": {"kind": "A", "listKind": "A", "plural": "as"}}),
                &[
                    "status.acceptedNames.listKind: Invalid value: \"A\": kind and listKind may not be the same",
                ],
            ),
        ],
    );
}

const CLAIM: super::Name = ("resource.k8s.io", "v1", "ResourceClaim");

#[test]
fn a_claim_that_ends_gets_no_further_consumers() {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let mut old = fresh(CLAIM, json!({"spec": {"devices": {"requests": [request]}}}));
    let consumer = |name: &str| json!({"resource": "pods", "name": name, "uid": "u"});
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let result = json!({"request": "r", "driver": "ex.io", "pool": "p", "device": "d"});
    old["status"] = json!({
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [consumer("a")],
    });
    let with = |consumers: Value, allocation: Value| {
        let mut new = old.clone();
        new["status"] = json!({"reservedFor": consumers, "allocation": allocation});
        changed(CLAIM, &old, &new, true)
    };
    let allocation = || old["status"]["allocation"].clone();
    assert_eq!(with(json!([consumer("a")]), allocation()), [""; 0]);
    let added = "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
    // The name belongs to an entry, too.
    assert_eq!(with(json!([consumer("b")]), allocation()), [added]);
    let found = with(json!([consumer("b")]), json!({"devices": {"results": []}}));
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], added, "before the allocation");
    assert_eq!(
        with(json!([consumer("b")]), Value::Null),
        ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]
    );
}

#[test]
fn a_count_that_is_taken_away_is_zero() {
    let name = ("events.k8s.io", "v1", "Event");
    let old = json!({
        "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {}, "count": 3,
        "reportingComponent": "", "reportingInstance": "",
    });
    let mut new = old.clone();
    new.as_object_mut().unwrap().remove("count");
    assert_eq!(changed(name, &old, &new, false), ["count: Invalid value: 0: field is immutable"]);
}

const REQUEST: super::Name = ("certificates.k8s.io", "v1", "CertificateSigningRequest");

#[test]
fn a_request_for_a_certificate_says_who_sends_it() {
    let row = rows::of(REQUEST.0, REQUEST.2).unwrap();
    let sent = || json!({"spec": {"username": "root", "uid": "0", "groups": ["system:masters"], "extra": {"a": ["b"]}, "request": "x"}});
    let mut request = sent();
    (row.prepare)(&context(), &mut request, None);
    assert_eq!(request["spec"], json!({"username": "alice", "request": "x"}));
    let extra = [("scopes".to_owned(), vec!["s".to_owned()])].into();
    let mut request = sent();
    let context = Context { uid: "7", extra: &extra, ..context() };
    (row.prepare)(&context, &mut request, None);
    assert_eq!(
        request["spec"],
        json!({"username": "alice", "uid": "7", "extra": {"scopes": ["s"]}, "request": "x"})
    );
}

#[test]
fn a_status_neither_takes_nor_gives_a_decision() {
    let row = rows::of(REQUEST.0, REQUEST.2).unwrap();
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "True", "reason": reason,
            "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let approved = || condition("Approved", "x");
    let write = |stored: Value, sent: Value| {
        let (old, mut new) =
            (json!({"status": {"conditions": stored}}), json!({"status": {"conditions": sent}}));
        (row.prepare_status)(&context(), &mut new, &old);
        let mut errors = changed(REQUEST, &old, &new, true);
        errors.extend(new["status"]["conditions"].as_array().into_iter().flatten().map(|c| {
            format!("{}: {}", c["type"].as_str().unwrap(), c["reason"].as_str().unwrap())
        }));
        errors
    };
    // In its place, as it was.
    assert_eq!(
        write(json!([approved()]), json!([condition("Other", "o"), condition("Approved", "y")])),
        ["Other: o", "Approved: x"]
    );
    assert_eq!(
        write(json!([]), json!([approved()]))[0],
        "status.conditions: Forbidden: updates may not add a condition of type \"Approved\""
    );
    assert_eq!(
        write(json!([approved()]), json!([])),
        ["status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""]
    );
}

#[test]
fn certificates_have_no_headers_and_no_further_bytes() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let der = || {
        let pem = String::from_utf8(STANDARD.decode(super::access::CERTIFICATE).unwrap()).unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        STANDARD.decode(body).unwrap()
    };
    let pem = |headers: &str, der: &[u8]| {
        let body = STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE-----\n{headers}{body}\n-----END CERTIFICATE-----\n")
    };
    let status = |text: String| json!({"certificate": STANDARD.encode(text)});
    let wrong =
        |why: &str| format!("status.certificate: Invalid value: \"<certificate data>\": {why}");
    let (headers, malformed) =
        (wrong("no PEM block headers are permitted"), wrong("x509: malformed certificate"));
    let none = wrong("found CERTIFICATE PEM block containing 0 certificates");
    let twice = [der(), der()].concat();
    let longer = [der(), vec![0]].concat();
    refuses_status(
        REQUEST,
        &json!({"spec": {"request": "", "signerName": "a.b/c", "usages": ["any"]}}),
        &[
            (status(pem("", &der())), &[]),
            (status(pem("", &twice)), &[]),
            (status(pem("", &der()) + &pem("A: b\n\n", &der())), &[&headers]),
            (status(pem("", &longer)), &[&malformed]),
            (status(pem("", &[])), &[&none]),
        ],
    );
}

#[test]
fn immutable_names_of_definitions_are_texts() {
    let name = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let sample = json!({
        "metadata": {"name": "as.ex.io"},
        "spec": {"group": "ex.io", "names": {"plural": "as", "kind": "A"}, "scope": "Cluster", "versions": [version]},
    });
    refuses_changes(
        name,
        &sample,
        &[(
            "/spec/group",
            Value::Null,
            &["spec.group: Required value", "spec.group: Invalid value: \"\": field is immutable"],
        )],
    );
}
