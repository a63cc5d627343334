use super::*;
use bytes::Bytes;
use serde_json::json;
use setpoint_registry::{Requested, ResourcePath, Verb};

#[test]
fn seats_are_divided_exactly_and_nobody_with_shares_has_none() {
    // The suggested levels of a server with 600 seats.
    let shares = [5, 0, 20, 10, 40, 30, 40, 100];
    let parts = divide(600, &shares);
    assert_eq!(parts, [12, 0, 49, 25, 98, 73, 98, 245]);
    assert_eq!(parts.iter().sum::<u32>(), 600);
    assert_eq!(divide(2, &[1, 1, 1000]), [1, 1, 2]);
    assert_eq!(divide(10, &[0, 0]), [0, 0]);
    assert_eq!(divide(3, &[u64::MAX, u64::MAX]), [2, 1]);
}

#[test]
fn the_seats_of_a_request_are_bounded_by_its_level() {
    let level = |nominal, hand| {
        let response = Response::Queue { queues: 64, hand, length: 50 };
        width_max(&Limits { nominal, min: 0, max: nominal, response })
    };
    // The level's number, ten, 15 %, and the number divided by the hand.
    assert_eq!([level(0, 8), level(245, 8), level(49, 4), level(49, 8)], [1, 10, 8, 6]);
    let reject = Limits { nominal: 20, min: 20, max: 20, response: Response::Reject };
    assert_eq!(width_max(&reject), 3);
}

fn object(value: &Value) -> StoredObject {
    StoredObject::new(Bytes::new(), 1, Bytes::from(value.to_string()))
}

fn config(schemas: &[Value], levels: &[Value]) -> Config {
    let schemas: Vec<_> = schemas.iter().map(object).collect();
    let levels: Vec<_> = levels.iter().map(object).collect();
    let mut n = 0;
    let position = |_: &Arc<str>| {
        n += 1;
        n - 1
    };
    Config::compile(None, &schemas, &levels, 100, position, |_, _| Arc::default())
}

#[test]
fn the_first_schema_that_matches_classifies() {
    let schema = |name: &str, precedence: i64, rule: Value| {
        json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {
            "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": "low"},
            "rules": [rule]}})
    };
    let account = json!({"kind": "ServiceAccount",
        "serviceAccount": {"namespace": "kube-system", "name": "*"}});
    let anybody = json!({"kind": "Group", "group": {"name": "system:authenticated"}});
    let schemas = [
        schema(
            "b",
            50,
            json!({"subjects": [anybody], "resourceRules": [
            {"verbs": ["*"], "apiGroups": [""], "resources": ["pods/status"], "namespaces": ["a"]}]}),
        ),
        schema(
            "c",
            40,
            json!({"subjects": [account], "resourceRules": [
            {"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]}),
        ),
        schema(
            "a",
            50,
            json!({"subjects": [anybody], "nonResourceRules": [
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/x/*"]}]}),
        ),
        json!({"metadata": {"name": "dangling"}, "spec": {"matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": "none"},
            "rules": [{"subjects": [anybody], "nonResourceRules": [
                {"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}}),
    ];
    let low = json!({"metadata": {"name": "low", "uid": "uid-low"}, "spec": {"type": "Limited",
        "limited": {"nominalConcurrencyShares": 10}}});
    let config = config(&schemas, &[low]);
    let names: Vec<&str> = config.schemas.iter().map(|schema| &*schema.name).collect();
    assert_eq!(names, ["exempt", "c", "a", "b", "catch-all"]);
    let bob = Identity::new("bob", ["system:authenticated"]);
    let robot = Identity::new("system:serviceaccount:kube-system:x", ["system:authenticated"]);
    let of = |identity: &Identity, verb: Verb, requested: Requested| {
        let request = Attributes::new(identity.clone(), verb, requested);
        config.classify(&request).unwrap().name.to_string()
    };
    let path = |path: &str| Requested::Path(path.to_owned());
    let pod = |namespace: &str, subresource: Option<Subresource>| {
        Requested::Unrouted(ResourcePath {
            version: "v1".into(),
            resource: "pods".into(),
            namespace: namespace.into(),
            name: "p".into(),
            subresource,
            ..ResourcePath::default()
        })
    };
    let status = || Some(Subresource::Status);
    assert_eq!(of(&bob, Verb::Get, path("/healthz")), "a");
    assert_eq!(of(&bob, Verb::Get, path("/x/y")), "a");
    // What is below a path counts, with a star or without.
    assert_eq!(of(&bob, Verb::Get, path("/healthz/y")), "a");
    for other in ["/healthzy", "/x", "/xy"] {
        assert_eq!(of(&bob, Verb::Get, path(other)), "catch-all", "{other}");
    }
    assert_eq!(of(&bob, Verb::Patch, pod("a", status())), "b");
    assert_eq!(of(&bob, Verb::Patch, pod("b", status())), "catch-all");
    assert_eq!(of(&bob, Verb::Patch, pod("a", None)), "catch-all");
    assert_eq!(of(&robot, Verb::Get, pod("", None)), "c");
    assert_eq!(of(&robot, Verb::Get, pod("a", None)), "catch-all");
    assert_eq!(of(&Identity::admin(), Verb::Get, pod("a", None)), "exempt");
    let low = config.levels.iter().find(|level| &*level.name == "low").unwrap();
    assert_eq!((low.limits.nominal, low.limits.min, low.limits.max), (67, 67, 100));
}
