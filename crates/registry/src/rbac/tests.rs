use super::*;
use crate::features::Feature;
use crate::testing::Bench;

#[test]
fn a_role_is_completed_and_extra_rights_stay() {
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let one = |verb: &str, resource: &str| json!({"verbs": [verb], "apiGroups": [""], "resources": [resource]});
    let all = json!({"verbs": ["*"], "apiGroups": ["x"], "resources": ["*"]});
    let mut role = json!({"rules": [pods, all]});
    let more = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "nodes"]});
    let wanted = json!({"rules": [pods, more]});
    assert!(complete(&mut role, &wanted));
    // Right by right, as in the reference.
    let lacking = [one("list", "pods"), one("get", "nodes"), one("list", "nodes")];
    assert_eq!(role["rules"], json!([pods, all, lacking[0], lacking[1], lacking[2]]));
    assert!(!complete(&mut role, &wanted));
    let own = |value: &str| json!({"metadata": {"annotations": {AUTO_UPDATE: value}}});
    assert!(is_protected(&own("false")) && !is_protected(&own("true")));
}

#[test]
fn a_role_gets_the_labels_and_selectors_that_it_lacks() {
    let selector = |label: &str| json!({"matchLabels": {label: "true"}});
    let aggregated = |selectors: Value| json!({"clusterRoleSelectors": selectors});
    let mut role = json!({
        "metadata": {"labels": {"own": "1", "a": "changed"}},
        "aggregationRule": aggregated(json!([selector("own")])),
    });
    let wanted = json!({
        "metadata": {"labels": {"a": "1", "b": "1"}, "annotations": {AUTO_UPDATE: "true"}},
        "aggregationRule": aggregated(json!([selector("x")])),
    });
    assert!(complete(&mut role, &wanted));
    assert_eq!(
        role,
        json!({
            "metadata": {
                "labels": {"own": "1", "a": "changed", "b": "1"},
                "annotations": {AUTO_UPDATE: "true"},
            },
            "aggregationRule": aggregated(json!([selector("own"), selector("x")])),
        })
    );
    assert!(!complete(&mut role, &wanted));
    // One that should have rules of its own.
    let wanted = json!({"rules": []});
    assert!(complete(&mut role, &wanted) && role.get("aggregationRule").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_binding_of_another_role_is_replaced() {
    let bench = Bench::new().await;
    bench.settle().await;
    let path = "rbac.authorization.k8s.io:v1/clusterrolebindings/system:basic-user";
    let Target { resource: row, .. } = bench.target(path);
    let subject = |name: &str| json!({"kind": "Group", "name": name, "apiGroup": GROUP});
    let binding = |role: &str, group: &str| {
        json!({
            "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1",
            "metadata": {"name": "system:basic-user", "uid": "u"},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [subject(group)],
        })
    };
    let key = "clusterrolebindings/system:basic-user";
    let wanted = binding("system:basic-user", "system:authenticated");
    for (protected, role) in [(false, "system:basic-user"), (true, "cluster-admin")] {
        let mut own = binding("cluster-admin", "admins");
        if protected {
            own["metadata"]["annotations"] = json!({AUTO_UPDATE: "false"});
        }
        bench.put(key, &own).await;
        bench.settle().await;
        ensure_one(&bench.registry, &row, &wanted).await.unwrap();
        let stored = bench.inner().live(&row.key("", "system:basic-user")).await.unwrap();
        let stored = tree(&stored.unwrap().value).unwrap();
        assert_eq!(stored["roleRef"]["name"], role);
        let groups = if protected { "admins" } else { "system:authenticated" };
        assert_eq!(stored["subjects"], json!([subject(groups)]));
    }
}

#[test]
fn a_binding_gets_the_subjects_that_it_lacks() {
    let user = |name: &str| json!({"kind": "User", "name": name, "apiGroup": GROUP});
    let mut binding = json!({"subjects": [user("a")]});
    assert!(complete(&mut binding, &json!({"subjects": [user("a"), user("b")]})));
    assert_eq!(binding["subjects"], json!([user("a"), user("b")]));
}

#[test]
fn control_planes_with_the_roles_of_the_start_share_one_index() {
    let start = StartRoles::get();
    let fill = |except: Option<usize>| {
        let mut filling = Filling::new();
        let exist = objects::roles().iter().enumerate().filter(|(at, _)| Some(*at) != except);
        for (_, role) in exist {
            let object =
                StoredObject::new(role.key.as_bytes().into(), 1, role.text.as_bytes().into());
            assert!(filling.confirm(&object), "{}", role.key);
        }
        filling.end()
    };
    assert!(Arc::ptr_eq(&fill(None), &start.index));
    // What does not exist grants nothing.
    for (at, (row, namespace, name)) in start.objects.iter().enumerate() {
        let index = fill(Some(at));
        let is_cluster = namespace.is_empty();
        assert!(start.index.role(namespace, is_cluster, name).is_some() || *row == Row::Binding);
        if *row == Row::Role {
            assert!(index.role(namespace, is_cluster, name).is_none(), "{name}");
        }
    }
    let masters: Arc<str> = "system:masters".into();
    let subject = Subject { user: "x", groups: &[masters] };
    let question = Request { verb: "get", resource: "pods", ..Request::default() };
    let admins = start.places[&b"/registry/clusterrolebindings/cluster-admin"[..]];
    assert!(fill(None).decide(&subject, "", &question).allowed.is_some());
    assert!(fill(Some(admins)).decide(&subject, "", &question).allowed.is_none());
    // An object of another name is none of the start.
    let key = b"/registry/clusterroles/x"[..].into();
    assert!(!Filling::new().confirm(&StoredObject::new(key, 1, b"{}"[..].into())));
}

#[test]
fn the_bootstrap_roles_can_be_read() {
    let objects: BTreeMap<String, Vec<Value>> = serde_json::from_str(BOOTSTRAP).unwrap();
    let number = |resource: &str| objects[resource].len();
    assert_eq!(
        ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(number),
        [69, 50, 7, 7]
    );
    let of_gates: BTreeMap<String, Objects> = serde_json::from_str(OF_GATES).unwrap();
    let of_gates = of_gates.values().flat_map(|objects| &objects["clusterroles"]);
    for role in objects["clusterroles"].iter().chain(&objects["roles"]).chain(of_gates) {
        let rules = role.get("rules").and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!(rules_of(role).len(), rules, "{}", role.name());
    }
}

#[test]
fn each_part_is_there_and_goes_with_its_feature() {
    let all: Objects = serde_json::from_str(BOOTSTRAP).unwrap();
    assert!(absent_roles::has_all(FeatureGates::default()));
    for (feature, role, part) in absent_roles::PARTS {
        let off = FeatureGates::switching(feature).with(feature, false);
        assert!(!absent_roles::has_all(off));
        let mut left = all.clone();
        for roles in left.values_mut() {
            roles.retain(|object| object["metadata"]["name"] == role);
        }
        let before = left.clone();
        absent_roles::drop_from(&mut left, off);
        assert_ne!(left, before, "{feature:?} {role} {part:?}");
    }
}

#[test]
fn a_role_keeps_its_other_rules() {
    let mut objects: Objects = serde_json::from_str(BOOTSTRAP).unwrap();
    absent_roles::drop_from(
        &mut objects,
        FeatureGates::default().with(Feature::ComponentFlagz, false),
    );
    let monitoring =
        objects["clusterroles"].iter().find(|role| role["metadata"]["name"] == "system:monitoring");
    let paths = &monitoring.unwrap()["rules"][0]["nonResourceURLs"];
    let has = |path: &str| paths.as_array().unwrap().iter().any(|known| known == path);
    assert!(has("/statusz") && has("/livez") && !has("/flagz"));
}
