//! Partial objects as JSON.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

use expect_test::expect;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use setpoint_apply as apply;
use setpoint_apply::{Members, Partial};

fn json(partial: impl Partial) -> String {
    let (members, error) = partial.into_members().into_json();
    assert_eq!(error, None);
    Value::Object(members).to_string()
}

/// A partial over members that were set otherwise.
fn over<P: Partial>(members: Value) -> P {
    let Value::Object(members) = members else { panic!("{members}") };
    P::from_members(Members::from_json(members))
}

#[test]
fn nothing_that_is_unset_is_there() {
    assert_eq!(json(apply::apps::v1::DeploymentSpec::default()), "{}");
    let volume = apply::core::v1::Volume::default().name("a").empty_dir(|empty| empty);
    assert_eq!(json(volume), r#"{"emptyDir":{},"name":"a"}"#);
    let spec = apply::apps::v1::DeploymentSpec::default()
        .if_some(None::<i32>, apply::apps::v1::DeploymentSpec::replicas)
        .if_some(Some(true), apply::apps::v1::DeploymentSpec::paused);
    assert_eq!(json(spec), r#"{"paused":true}"#);
}

#[test]
fn values_have_their_form_on_the_wire() {
    let container = apply::core::v1::Container::default()
        .args(["a", "b"])
        .resources(|resources| {
            resources.limits([("cpu", "500m")]).requests([("cpu", Quantity("1".to_owned()))])
        })
        .liveness_probe(|probe| probe.http_get(|get| get.port(80).scheme("HTTPS")))
        .readiness_probe(|probe| probe.tcp_socket(|socket| socket.port("web")))
        .startup_probe(|probe| {
            probe.tcp_socket(|socket| socket.port(IntOrString::Int(7))).period_seconds(2)
        });
    expect![[r#"{"args":["a","b"],"livenessProbe":{"httpGet":{"port":80,"scheme":"HTTPS"}},"readinessProbe":{"tcpSocket":{"port":"web"}},"resources":{"limits":{"cpu":"500m"},"requests":{"cpu":"1"}},"startupProbe":{"periodSeconds":2,"tcpSocket":{"port":7}}}"#]]
        .assert_eq(&json(container));
    let secret =
        apply::core::v1::Secret::default().data([("a", b"\x00\xff")]).string_data([("b", "c")]);
    assert_eq!(json(secret), r#"{"data":{"a":"AP8="},"stringData":{"b":"c"}}"#);
    let lease = apply::coordination::v1::LeaseSpec::default().renew_time(
        k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(
            k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
        ),
    );
    assert_eq!(json(lease), r#"{"renewTime":"1970-01-01T00:00:00.000000Z"}"#);
}

#[test]
fn lists_of_objects_have_items_by_key_or_by_position() {
    let pod = apply::core::v1::PodSpec::default()
        .container("a", |container| container.image("1"))
        .container("b", |container| container.port(80, "TCP", |port| port.name("http")))
        .container("a", |container| container.command(["run"]))
        .toleration(|toleration| toleration.key("x"))
        .toleration(|toleration| toleration.key("x"));
    expect![[r#"{"containers":[{"command":["run"],"image":"1","name":"a"},{"name":"b","ports":[{"containerPort":80,"name":"http","protocol":"TCP"}]}],"tolerations":[{"key":"x"},{"key":"x"}]}"#]]
        .assert_eq(&json(pod));
    // A key that the closure changes is found under its new value.
    let pod = apply::core::v1::PodSpec::default()
        .container("a", |container| container.name("b"))
        .container("b", |container| container.image("1"))
        .container("a", |container| container);
    expect![[r#"{"containers":[{"image":"1","name":"b"},{"name":"a"}]}"#]].assert_eq(&json(pod));
}

#[test]
fn setters_continue_what_was_set_otherwise() {
    let pod: apply::core::v1::PodSpec =
        over(json!({"containers": [{"name": "a", "image": "1"}, {}]}));
    let pod = pod.container("a", |container| container.tty(true));
    assert_eq!(json(pod), r#"{"containers":[{"image":"1","name":"a","tty":true},{}]}"#);
    let meta: apply::meta::v1::ObjectMeta = over(json!({"labels": {"a": "1", "b": "2"}}));
    assert_eq!(json(meta.labels([("b", "3")])), r#"{"labels":{"a":"1","b":"3"}}"#);
}

#[test]
fn first_error_has_the_path_of_its_member() {
    let error = |pod: apply::core::v1::PodSpec| {
        pod.into_members().into_json().1.map(|error| error.to_string()).unwrap_or_default()
    };
    let pod = |members| over::<apply::core::v1::PodSpec>(members);
    let containers = pod(json!({"containers": 3}));
    assert_eq!(error(containers.container("a", |a| a)), "/containers: expected a list");
    let tolerations = pod(json!({"tolerations": {}}));
    assert_eq!(error(tolerations.toleration(|a| a)), "/tolerations: expected a list");
    let nested = pod(json!({"containers": [{"name": "a", "resources": {"limits": []}}]}));
    let nested = nested
        .container("a", |a| a.resources(|resources| resources.limits([("cpu", "1")])))
        .security_context(|context| context);
    assert_eq!(error(nested), "/containers/0/resources/limits: expected an object");
}

proptest! {
    /// A list with keys has one item per key, in the order of their first use.
    #[test]
    fn items_are_a_map_in_order_of_first_use(
        sets in prop::collection::vec(("[a-c]", 0..3_i32, any::<bool>()), 0..12),
    ) {
        let mut service = apply::core::v1::ServiceSpec::default();
        let mut model: Vec<(i32, String, Map<String, Value>)> = Vec::new();
        for (name, port, is_udp) in sets {
            let protocol = if is_udp { "UDP" } else { "TCP" };
            service = service.port(port, protocol, |port| port.name(name.as_str()));
            let known = model.iter().position(|(n, p, _)| (*n, p.as_str()) == (port, protocol));
            let at = known.unwrap_or_else(|| {
                let new = Map::from_iter([
                    ("port".to_owned(), port.into()),
                    ("protocol".to_owned(), protocol.into()),
                ]);
                model.push((port, protocol.to_owned(), new));
                model.len() - 1
            });
            model[at].2.insert("name".to_owned(), name.into());
        }
        let items: Vec<Value> = model.into_iter().map(|(_, _, item)| item.into()).collect();
        let expected = if items.is_empty() { json!({}) } else { json!({"ports": items}) };
        prop_assert_eq!(json(service), expected.to_string());
    }
}
