//! Roles, certificates, flow control and aggregation.
use super::{Name, created, refuses, refuses_changes, refuses_status};
use serde_json::{Value, json};

#[test]
fn access() {
    let rbac = "rbac.authorization.k8s.io";
    refuses(
        (rbac, "v1", "Role"),
        &json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        &[
            (
                "/rules/0/verbs",
                json!([]),
                &["rules[0].verbs: Required value: verbs must contain at least one value"],
            ),
            (
                "/rules/0",
                json!({"nonResourceURLs": ["/a"], "verbs": ["get"]}),
                &[
                    "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot apply to non-resource URLs",
                ],
            ),
        ],
    );
    refuses(
        (rbac, "v1", "ClusterRole"),
        &json!({"rules": []}),
        &[(
            "/aggregationRule",
            json!({}),
            &[
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
            ],
        )],
    );
    let binding: Name = (rbac, "v1", "ClusterRoleBinding");
    let sample = json!({"roleRef": {"kind": "ClusterRole", "name": "a"}, "subjects": [{"kind": "User", "name": "u"}]});
    refuses(
        binding,
        &sample,
        &[
            (
                "/roleRef/kind",
                json!("Role"),
                &["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""],
            ),
            (
                "/subjects/0",
                json!({"kind": "ServiceAccount", "name": "s"}),
                &["subjects[0].namespace: Required value"],
            ),
            (
                "/subjects/0/apiGroup",
                json!("x"),
                &[
                    "subjects[0].apiGroup: Unsupported value: \"x\": supported values: \"rbac.authorization.k8s.io\"",
                ],
            ),
            (
                "/subjects/0/kind",
                json!("X"),
                &[
                    "subjects[0].kind: Unsupported value: \"X\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
                ],
            ),
        ],
    );
    refuses_changes(
        binding,
        &sample,
        &[(
            "/roleRef/name",
            json!("b"),
            &[
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"b\"}: cannot change roleRef",
            ],
        )],
    );
}

/// A request for the name `alice` with a key of its own.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIS01ISUNBUUF3RURFT01Bd0dBMVVFQXd3RllXeHBZMlV3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQgpCd05DQUFUbzJGOFVrWU1vVTlsejVRV1NDUkZPNTQ3NHluZGZNQllPMGttQzYrK3lhdmtiR1BRTWd4Qm5PTUN5CmNkSHRjWk53TzRxUkUwS01qV0NMakQ0c0Rja29vQUF3Q2dZSUtvWkl6ajBFQXdJRFNBQXdSUUlnS3FMOHhNOFgKcHhySms0Uzd5OWxGN2NJYVU0Q0lDaTY4UnBzcUF5UkFvTHNDSVFDaCtEbUg1dnpESzZCaUxGR09OZDJqOVpVYwpmaURndEJYR3NrNGxObHA5RWc9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
/// The same with another signature.
const FORGED: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIS01ISUNBUUF3RURFT01Bd0dBMVVFQXd3RllXeHBZMlV3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQgpCd05DQUFUbzJGOFVrWU1vVTlsejVRV1NDUkZPNTQ3NHluZGZNQllPMGttQzYrK3lhdmtiR1BRTWd4Qm5PTUN5CmNkSHRjWk53TzRxUkUwS01qV0NMakQ0c0Rja29vQUF3Q2dZSUtvWkl6ajBFQXdJRFNBQXdSUUlnS3FMOHhNOFgKcHhySms0Uzd5OWxGN2NJYVU0Q0lDaTY4UnBzcUF5UkFvTHNDSVFDaCtEbUg1dnpESzZCaUxGR09OZDJqOVpVYwpmaUFndEJYR3NrNGxObHA5RWc9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
pub(super) const CERTIFICATE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJHVENCd1FJVVBOUTlXTTZ4TjE4cWc0alF4L1VpUVpoUU9va3dDZ1lJS29aSXpqMEVBd0l3RURFT01Bd0cKQTFVRUF3d0ZZV3hwWTJVd0hoY05Nall4TVRJeE1qQXpOek0yV2hjTk16WXhNVEU0TWpBek56TTJXakFRTVE0dwpEQVlEVlFRRERBVmhiR2xqWlRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhBMElBQk9qWVh4U1JneWhUCjJYUGxCWklKRVU3bmp2aktkMTh3Rmc3U1NZTHI3N0pxK1JzWTlBeURFR2M0d0xKeDBlMXhrM0E3aXBFVFFveU4KWUl1TVBpd055U2d3Q2dZSUtvWkl6ajBFQXdJRFJ3QXdSQUlnYU02ZWhzdE9zblRzYkkrRUNSVmd3d3Y1Q09lSApGWm04NklqdlA3bUpJN2NDSUhtWVQ1RFNDUFdTckQ4c0N2Q0k1bVh3Y1FnNi82MFFQa2F6eTkrY296L2oKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

#[test]
fn certificate_requests() {
    let name: Name = ("certificates.k8s.io", "v1", "CertificateSigningRequest");
    let sample =
        json!({"spec": {"request": REQUEST, "signerName": "ex.io/s", "usages": ["client auth"]}});
    let invalid =
        |request: &str, why: &str| format!("spec.request: Invalid value: \"{request}\": {why}");
    refuses(
        name,
        &sample,
        &[
            (
                "/spec/request",
                json!("eA=="),
                &[&invalid("eA==", "PEM block type must be CERTIFICATE REQUEST")],
            ),
            (
                "/spec/request",
                json!(FORGED),
                &[&invalid(FORGED, "x509: ECDSA verification failure")],
            ),
            (
                "/spec/signerName",
                json!("a"),
                &[
                    "spec.signerName: Invalid value: \"a\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
                ],
            ),
            (
                "/spec/signerName",
                json!("kubernetes.io/legacy-unknown"),
                &[
                    "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
                ],
            ),
            ("/spec/usages", json!([]), &["spec.usages: Required value"]),
            ("/spec/usages", json!(["any", "any"]), &["spec.usages[1]: Duplicate value: \"any\""]),
            (
                "/spec/expirationSeconds",
                json!(599),
                &[
                    "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
                ],
            ),
        ],
    );
    refuses_status(
        name,
        &sample,
        &[
            (json!({"certificate": CERTIFICATE}), &[]),
            (
                json!({"certificate": REQUEST}),
                &[
                    "status.certificate: Invalid value: \"<certificate data>\": only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\"",
                ],
            ),
            (
                json!({"conditions": [{"type": "Approved", "status": "False"}]}),
                &[
                    "status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"",
                    "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
                ],
            ),
            (
                json!({"conditions": [{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]}),
                &[
                    "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
                    "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
                    "status.conditions: Forbidden: updates may not add a condition of type \"Denied\"",
                ],
            ),
        ],
    );
}

#[test]
fn flow_control_and_aggregation() {
    let group = "flowcontrol.apiserver.k8s.io";
    refuses(
        (group, "v1", "FlowSchema"),
        &json!({"spec": {"priorityLevelConfiguration": {"name": "a"}, "rules": [{"subjects": [{"kind": "Group", "group": {"name": "g"}}],
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}]}]}}),
        &[
            (
                "/spec/matchingPrecedence",
                json!(1),
                &[
                    "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
                ],
            ),
            (
                "/spec/priorityLevelConfiguration/name",
                json!(""),
                &[
                    "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
                ],
            ),
            (
                "/spec/rules/0/subjects",
                json!([]),
                &[
                    "spec.rules[0].subjects: Required value: subjects must contain at least one value",
                ],
            ),
            (
                "/spec/rules/0/subjects/0",
                json!({"kind": "User"}),
                &[
                    "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
                ],
            ),
            (
                "/spec/rules/0/resourceRules/0/verbs",
                json!(["*", "get"]),
                &[
                    "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
                ],
            ),
            (
                "/spec/rules/0/resourceRules/0/namespaces",
                json!([]),
                &[
                    "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
                ],
            ),
            (
                "/spec/rules/0/nonResourceRules",
                json!([{"verbs": ["get"], "nonResourceURLs": ["/a*"]}]),
                &[
                    "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"/a*\": wildcard can only do suffix matching",
                ],
            ),
        ],
    );
    refuses(
        (group, "v1", "PriorityLevelConfiguration"),
        &json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
        &[
            (
                "/spec/type",
                json!("Exempt"),
                &[
                    "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
                    "spec.limited: Forbidden: must be nil if the type is not Limited",
                ],
            ),
            (
                "/spec/limited/limitResponse/type",
                json!("Reject"),
                &[
                    "spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited",
                ],
            ),
            (
                "/spec/limited/limitResponse/queuing/handSize",
                json!(100),
                &[
                    "spec.limited.limitResponse.queuing.handSize: Invalid value: 100: should not be greater than queues (64)",
                ],
            ),
            (
                "/spec/limited/lendablePercent",
                json!(101),
                &[
                    "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
                ],
            ),
        ],
    );
    refuses(
        ("apiregistration.k8s.io", "v1", "APIService"),
        &json!({"metadata": {"name": "v1.ex.io"}, "spec": {"group": "ex.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}}),
        &[
            (
                "/spec/group",
                json!("other.io"),
                &[
                    "metadata.name: Invalid value: \"v1.ex.io\": must be `spec.version+\".\"+spec.group`: \"v1.other.io\"",
                ],
            ),
            (
                "/spec/versionPriority",
                json!(1001),
                &["spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"],
            ),
            ("/spec/service", json!({"namespace": "n"}), &["spec.service.name: Required value"]),
            (
                "/spec/insecureSkipTLSVerify",
                json!(true),
                &[
                    "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
                ],
            ),
        ],
    );
}

/// The objects of flow control that every server has, as a fresh one creates them.
#[test]
fn mandatory_objects_of_flow_control_have_fixed_specs() {
    let group = "flowcontrol.apiserver.k8s.io";
    let objects = include_str!("../../../bootstrap/objects.txt");
    let of = |prefix: &str, name: &str| -> Value {
        let start = format!("/registry/{prefix}/{name} ");
        let line = objects.lines().find_map(|line| line.strip_prefix(&*start)).unwrap();
        json!({"metadata": {"name": name}, "spec": serde_json::from_str::<Value>(line).unwrap()["spec"]})
    };
    let errors_of = |object: &Value| {
        let kind = match object["spec"].get("matchingPrecedence") {
            Some(_) => "FlowSchema",
            None => "PriorityLevelConfiguration",
        };
        let of_spec = |error: String| {
            let (start, end) = (error.find("{\"")?, error.rfind('}')?);
            Some(format!("{}…{}", &error[..start], &error[end + 1..]))
        };
        let errors = created((group, "v1", kind), object.clone()).into_iter();
        errors.map(|error| of_spec(error.clone()).unwrap_or(error)).collect::<Vec<_>>()
    };
    for name in ["exempt", "catch-all"] {
        let fixed = format!("spec: Invalid value: …: spec of '{name}' must equal the fixed value");
        let mut schema = of("flowschemas", name);
        assert_eq!(errors_of(&schema), [""; 0]);
        schema["spec"]["rules"][0]["subjects"][0]["user"] = Value::Null;
        assert_eq!(errors_of(&schema), [""; 0], "null is like missing");
        schema["spec"]["rules"][0]["resourceRules"][0]["verbs"] = json!(["get"]);
        assert_eq!(errors_of(&schema), [fixed]);
    }
    let mut level = of("prioritylevelconfigurations", "catch-all");
    assert_eq!(errors_of(&level), [""; 0]);
    level["spec"]["limited"]["nominalConcurrencyShares"] = 7.into();
    let fixed = "spec: Invalid value: …: spec of 'catch-all' must equal the fixed value";
    assert_eq!(errors_of(&level), [fixed]);
    let mut level = of("prioritylevelconfigurations", "exempt");
    level["spec"]["exempt"]["nominalConcurrencyShares"] = 7.into();
    assert_eq!(errors_of(&level), [""; 0], "its shares are the user's");
    level["spec"]["limited"] = json!({"limitResponse": {"type": "Reject"}});
    assert_eq!(
        errors_of(&level),
        [
            "spec.limited: Forbidden: must be nil if the type is not Limited",
            "spec: Invalid value: …: spec of 'exempt' except the 'spec.exempt' field must equal the fixed value",
        ]
    );
}
