//! Services and what belongs to networks.
use super::{Name, refuses, refuses_changes, refuses_status};
use serde_json::{Value, json};

const SERVICE: Name = ("", "v1", "Service");

fn service() -> Value {
    json!({"spec": {"ports": [{"port": 80}], "clusterIP": "10.0.0.5"}})
}

#[test]
fn services() {
    refuses(
        SERVICE,
        &service(),
        &[
            ("/spec/ports", json!([]), &["spec.ports: Required value"]),
            (
                "/spec/ports",
                json!([{"port": 80}, {"port": 81}]),
                &["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
            ),
            (
                "/spec/ports/0/port",
                json!(0),
                &[
                    "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                    "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                "/spec/ports/0/targetPort",
                json!("Bad"),
                &[
                    "spec.ports[0].targetPort: Invalid value: \"Bad\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                ],
            ),
            (
                "/spec/ports/0/nodePort",
                json!(30000),
                &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
            ),
            (
                "/spec/type",
                json!("X"),
                &[
                    "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
                ],
            ),
            (
                "/spec/sessionAffinity",
                json!("X"),
                &[
                    "spec.sessionAffinity: Unsupported value: \"X\": supported values: \"ClientIP\", \"None\"",
                ],
            ),
            (
                "/spec/clusterIPs",
                json!(["10.0.0.6"]),
                &[
                    "spec.clusterIPs: Invalid value: [\"10.0.0.6\"]: first value must match `clusterIP`",
                ],
            ),
            (
                "/spec/clusterIP",
                json!("10.0.0.05"),
                &["spec.clusterIPs[0]: Invalid value: \"10.0.0.05\": must not have leading 0s"],
            ),
            (
                "/spec/ipFamilies",
                json!(["IPv6"]),
                &[
                    "spec.clusterIPs[0]: Invalid value: \"10.0.0.5\": expected an IPv6 value as indicated by `ipFamilies[0]`",
                ],
            ),
            (
                "/spec/externalIPs",
                json!(["127.0.0.1"]),
                &[
                    "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                ],
            ),
            (
                "/spec/externalTrafficPolicy",
                json!("Local"),
                &[
                    "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
                ],
            ),
            (
                "/spec/internalTrafficPolicy",
                json!("X"),
                &[
                    "spec.internalTrafficPolicy: Unsupported value: \"X\": supported values: \"Cluster\", \"Local\"",
                ],
            ),
            (
                "/spec/loadBalancerClass",
                json!("ex.io/a"),
                &[
                    "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ],
            ),
            (
                "/spec/loadBalancerSourceRanges",
                json!(["10.0.0.0/8"]),
                &[
                    "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ],
            ),
            (
                "/spec/trafficDistribution",
                json!("X"),
                &[
                    "spec.trafficDistribution: Unsupported value: \"X\": supported values: \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\"",
                ],
            ),
        ],
    );
    refuses(
        SERVICE,
        &json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}),
        &[
            ("/spec/externalName", json!(""), &["spec.externalName: Required value"]),
            (
                "/spec/clusterIP",
                json!("10.0.0.1"),
                &["spec.clusterIPs: Forbidden: may not be set for ExternalName services"],
            ),
        ],
    );
    refuses_changes(
        SERVICE,
        &service(),
        &[
            ("/spec/ports/0/port", json!(81), &[]),
            (
                "/spec/ipFamilies",
                json!(["IPv6"]),
                &[
                    "spec.clusterIPs[0]: Invalid value: \"10.0.0.5\": expected an IPv6 value as indicated by `ipFamilies[0]`",
                ],
            ),
        ],
    );
    refuses_status(
        SERVICE,
        &service(),
        &[(
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}}),
            &[
                "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
            ],
        )],
    );
}

#[test]
fn endpoints() {
    refuses(
        ("", "v1", "Endpoints"),
        &json!({"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]}),
        &[
            (
                "/subsets/0/addresses",
                json!([]),
                &["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
            ),
            (
                "/subsets/0/addresses/0/ip",
                json!("169.254.1.1"),
                &[
                    "subsets[0].addresses[0].ip: Invalid value: \"169.254.1.1\": may not be in the link-local range (169.254.0.0/16, fe80::/10)",
                ],
            ),
            (
                "/subsets/0/ports/0/port",
                json!(0),
                &[
                    "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                ],
            ),
        ],
    );
    let name: Name = ("discovery.k8s.io", "v1", "EndpointSlice");
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"port": 80}]});
    refuses(
        name,
        &slice,
        &[
            (
                "/addressType",
                json!("X"),
                &[
                    "addressType: Unsupported value: \"X\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
                ],
            ),
            (
                "/endpoints/0/addresses",
                json!([]),
                &["endpoints[0].addresses: Required value: must contain at least 1 address"],
            ),
            (
                "/endpoints/0/addresses",
                json!(["::2"]),
                &["endpoints[0].addresses: Invalid value: \"::2\": must be an IPv4 address"],
            ),
            (
                "/ports",
                json!([{"name": "a"}, {"name": "a"}]),
                &["ports[1].name: Duplicate value: \"a\""],
            ),
            (
                "/endpoints/0/hints",
                json!({"forZones": [{"name": "z"}, {"name": "z"}]}),
                &["endpoints[0].hints.forZones[1].name: Duplicate value: \"z\""],
            ),
        ],
    );
    refuses_changes(
        name,
        &slice,
        &[(
            "/addressType",
            json!("IPv6"),
            // Endpoints that do not change are not checked again.
            &["addressType: Invalid value: \"IPv6\": field is immutable"],
        )],
    );
}

#[test]
fn ingresses() {
    let ingress = json!({"spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}});
    let path = "/spec/rules/0/http/paths/0";
    let at = |member: &str| format!("{path}/{member}");
    refuses(
        ("networking.k8s.io", "v1", "Ingress"),
        &ingress,
        &[
            (
                "/spec/rules",
                json!(null),
                &[
                    "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
                ],
            ),
            (
                "/spec/rules/0/host",
                json!("1.2.3.4"),
                &[
                    "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
                ],
            ),
            ("/spec/rules/0/host", json!("*.ex.io"), &[]),
            (
                "/spec/rules/0/host",
                json!("a.*.ex.io"),
                &[
                    r#"spec.rules[0].host: Invalid value: "a.*.ex.io": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
                ],
            ),
            (
                &at("path"),
                json!("/a//b"),
                &[
                    "spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain '//'",
                ],
            ),
            (
                &at("pathType"),
                json!("X"),
                &[
                    "spec.rules[0].http.paths[0].pathType: Unsupported value: \"X\": supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\"",
                ],
            ),
            (
                &at("backend"),
                json!({}),
                &[
                    "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
                ],
            ),
            (
                &at("backend"),
                json!({"service": {"name": "s"}}),
                &[
                    "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
                ],
            ),
            (
                &at("backend"),
                json!({"resource": {"kind": "", "name": "n"}}),
                &["spec.rules[0].http.paths[0].backend.resource.kind: Required value"],
            ),
        ],
    );
    let class: Name = ("networking.k8s.io", "v1", "IngressClass");
    let sample = json!({"spec": {"controller": "ex.io/a"}});
    refuses(
        class,
        &sample,
        &[
            (
                "/spec/controller",
                json!("a"),
                &[
                    "spec.controller: Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")",
                ],
            ),
            (
                "/spec/parameters",
                json!({"kind": "K", "name": "n", "scope": "Namespace"}),
                &[
                    "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
                ],
            ),
        ],
    );
    refuses_changes(
        class,
        &sample,
        &[(
            "/spec/controller",
            json!("ex.io/b"),
            &["spec.controller: Invalid value: \"ex.io/b\": field is immutable"],
        )],
    );
}

#[test]
fn policies_and_addresses() {
    refuses(
        ("networking.k8s.io", "v1", "NetworkPolicy"),
        &json!({"spec": {"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 80}]}]}}),
        &[
            (
                "/spec/egress/0/to/0",
                json!({}),
                &["spec.egress[0].to[0]: Required value: must specify a peer"],
            ),
            (
                "/spec/egress/0/to/0/ipBlock/except",
                json!(["11.0.0.0/16"]),
                &[
                    "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
                ],
            ),
            (
                "/spec/egress/0/to/0/podSelector",
                json!({}),
                &["spec.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer"],
            ),
            (
                "/spec/egress/0/ports/0/endPort",
                json!(79),
                &[
                    "spec.egress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`",
                ],
            ),
            (
                "/spec/policyTypes",
                json!(["X"]),
                &[
                    "spec.policyTypes[0]: Unsupported value: \"X\": supported values: \"Ingress\", \"Egress\"",
                ],
            ),
        ],
    );
    let address: Name = ("networking.k8s.io", "v1", "IPAddress");
    let sample = json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "services", "name": "a"}}});
    refuses(
        address,
        &sample,
        &[("/spec/parentRef", json!(null), &["spec.parentRef: Required value"])],
    );
    refuses_changes(
        address,
        &sample,
        &[(
            "/spec/parentRef/name",
            json!("b"),
            &[
                "spec.parentRef: Invalid value: {\"name\":\"b\",\"resource\":\"services\"}: field is immutable",
            ],
        )],
    );
    let ranges: Name = ("networking.k8s.io", "v1", "ServiceCIDR");
    let sample = json!({"spec": {"cidrs": ["10.0.0.0/24"]}});
    refuses(
        ranges,
        &sample,
        &[
            ("/spec/cidrs", json!([]), &["spec.cidrs: Required value: at least one CIDR required"]),
            (
                "/spec/cidrs",
                json!(["10.0.0.1/24"]),
                &[
                    "spec.cidrs[0]: Invalid value: \"10.0.0.1/24\": must not have bits set beyond the prefix length",
                ],
            ),
            (
                "/spec/cidrs",
                json!(["10.0.0.0/24", "10.1.0.0/24"]),
                &[
                    "spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
                ],
            ),
        ],
    );
    refuses_changes(
        ranges,
        &sample,
        &[
            ("/spec/cidrs", json!(["10.0.0.0/24", "2001:db8::/112"]), &[]),
            (
                "/spec/cidrs",
                json!(["10.1.0.0/24"]),
                &["spec.cidrs[0]: Invalid value: \"10.1.0.0/24\": field is immutable"],
            ),
        ],
    );
}
