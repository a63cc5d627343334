use super::*;
use proptest::prelude::*;
use serde_json::json;

const GET: Request<'_> =
    Request { verb: "get", group: "", resource: "pods", subresource: "", name: "a", path: None };

fn role(verb: &str) -> Value {
    json!({"rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]})
}

fn binding(kind: &str, role: &str, subjects: Value) -> Value {
    json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects})
}

fn decide(index: &Index, user: &str, groups: &[&str], namespace: &str) -> Verdict {
    index.decide(&Subject { user, groups }, namespace, &GET)
}

#[test]
fn a_role_of_the_cluster_is_bound_everywhere_or_in_one_namespace() {
    let mut index = Index::default();
    index.put_role("", "reader", &role("get"));
    let jane = json!([{"kind": "User", "name": "jane"}]);
    index.put_binding("", "all", &binding("ClusterRole", "reader", jane));
    let bot = json!([{"kind": "ServiceAccount", "name": "bot"}]);
    index.put_binding("shop", "bots", &binding("ClusterRole", "reader", bot));
    assert_eq!(
        decide(&index, "jane", &[], "any").allowed.unwrap(),
        r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to User "jane""#
    );
    let bot = "system:serviceaccount:shop:bot";
    assert_eq!(
        decide(&index, bot, &[], "shop").allowed.unwrap(),
        r#"RBAC: allowed by RoleBinding "bots/shop" of ClusterRole "reader" to ServiceAccount "bot/shop""#
    );
    assert_eq!(decide(&index, bot, &[], "other"), Verdict::default());
    assert_eq!(decide(&index, bot, &[], ""), Verdict::default());
    assert_eq!(index.rules(&Subject::<&str> { user: bot, groups: &[] }, "shop").len(), 1);
}

#[test]
fn a_missing_role_is_named_and_does_not_hide_another_binding() {
    let mut index = Index::default();
    let team = json!([{"kind": "Group", "name": "team"}]);
    index.put_binding("shop", "a", &binding("Role", "gone", team.clone()));
    index.put_binding("shop", "b", &binding("Role", "reader", team));
    let verdict = decide(&index, "x", &["team"], "shop");
    assert_eq!(
        verdict.refusal(),
        r#"RBAC: [role.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "reader" not found]"#
    );
    index.put_role("shop", "reader", &role("get"));
    assert!(decide(&index, "x", &["team"], "shop").allowed.is_some());
    index.put_role("shop", "reader", &role("list"));
    let refused = decide(&index, "x", &["team"], "shop");
    assert_eq!(refused.refusal(), r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#);
    index.delete_binding("shop", "a");
    assert_eq!(decide(&index, "x", &["team"], "shop"), Verdict::default());
}

#[test]
fn a_binding_counts_once_for_a_user_and_names_its_first_subject() {
    let mut index = Index::default();
    index.put_role("", "reader", &role("get"));
    let both = json!([
        {"kind": "Group", "name": "team"}, {"kind": "User", "name": "x"}, {"kind": "Group", "name": "other"},
    ]);
    index.put_binding("", "b", &binding("ClusterRole", "reader", both.clone()));
    index.put_binding("", "gone", &binding("ClusterRole", "gone", both));
    let of = Subject { user: "x", groups: &["other", "team"] };
    assert_eq!(index.rules(&of, "").len(), 1);
    let missing = index.missing_roles(&of, "");
    let missing: Vec<String> = missing.iter().map(MissingRole::to_string).collect();
    assert_eq!(missing, [r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#]);
    let allowed = decide(&index, "x", &["other", "team"], "").allowed.unwrap();
    assert!(allowed.ends_with(r#"to Group "team""#), "{allowed}");
    let allowed = decide(&index, "x", &["other"], "").allowed.unwrap();
    assert!(allowed.ends_with(r#"to User "x""#), "{allowed}");
}

#[test]
fn deleting_everything_leaves_nothing() {
    let mut index = Index::default();
    index.put_role("", "r", &role("get"));
    index.put_role("shop", "r", &role("get"));
    let jane = json!([{"kind": "User", "name": "jane"}, {"kind": "User", "name": "jane"}]);
    index.put_binding("", "b", &binding("ClusterRole", "r", jane.clone()));
    index.put_binding("shop", "b", &binding("Role", "r", jane));
    for namespace in ["", "shop"] {
        index.delete_role(namespace, "r");
        index.delete_binding(namespace, "b");
    }
    assert!(index.cluster_roles.is_empty() && index.roles.is_empty() && index.bindings.is_empty());
    let Bindings { by_name, by_user, by_group } = index.cluster_bindings;
    assert!(by_name.is_empty() && by_user.is_empty() && by_group.is_empty());
}

/// What is stored, for the slow and obvious evaluation.
#[derive(Debug, Default)]
struct Objects {
    roles: BTreeMap<(String, String), Value>,
    bindings: BTreeMap<(String, String), Value>,
}

impl Objects {
    fn allows(&self, user: &str, groups: &[&str], namespace: &str, request: &Request<'_>) -> bool {
        self.bindings.iter().any(|((scope, _), binding)| {
            let applies = scope.is_empty() || scope == namespace;
            let is_bound = binding["subjects"].as_array().unwrap().iter().any(|subject| {
                let name = subject["name"].as_str().unwrap();
                match subject["kind"].as_str().unwrap() {
                    "User" => name == user,
                    "Group" => groups.contains(&name),
                    _ => {
                        let own = subject["namespace"].as_str().unwrap_or(scope);
                        user == format!("system:serviceaccount:{own}:{name}") && !own.is_empty()
                    }
                }
            });
            let is_cluster = scope.is_empty() || binding["roleRef"]["kind"] == "ClusterRole";
            let of = if is_cluster { "" } else { scope };
            let role = binding["roleRef"]["name"].as_str().unwrap().to_owned();
            applies
                && is_bound
                && self
                    .roles
                    .get(&(of.to_owned(), role))
                    .is_some_and(|role| rules_of(role).iter().any(|rule| rule.allows(request)))
        })
    }
}

fn scope() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "a", "b"]).prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["x", "y", "z"]).prop_map(str::to_owned)
}

fn any_binding() -> impl Strategy<Value = Value> {
    let subject = (prop::sample::select(vec!["User", "Group", "ServiceAccount"]), name(), scope())
        .prop_map(|(kind, name, namespace)| match &*namespace {
            "" => json!({"kind": kind, "name": name}),
            namespace => json!({"kind": kind, "name": name, "namespace": namespace}),
        });
    let role = (prop::sample::select(vec!["Role", "ClusterRole"]), name());
    (role, prop::collection::vec(subject, 0..3)).prop_map(|((kind, role), subjects)| {
        json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects})
    })
}

fn any_role() -> impl Strategy<Value = Value> {
    let words =
        |words: &'static [&'static str]| prop::collection::vec(prop::sample::select(words), 0..3);
    let rule = (
        words(&["get", "list", "*"]),
        words(&["", "apps", "*"]),
        words(&["pods", "pods/log", "*/log", "*"]),
        words(&["a", "b"]),
    )
        .prop_map(|(verbs, groups, resources, names)| {
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
        });
    prop::collection::vec(rule, 0..3).prop_map(|rules| json!({"rules": rules}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The index decides as a walk over all objects does, after any changes of them.
    #[test]
    fn the_index_decides_as_a_walk_over_everything(
        changes in prop::collection::vec((scope(), name(), prop::option::of(prop_oneof![
            any_role().prop_map(|role| (true, role)),
            any_binding().prop_map(|binding| (false, binding)),
        ]), any::<bool>()), 1..30),
    ) {
        let (mut index, mut objects) = (Index::default(), Objects::default());
        for (scope, name, change, is_role) in changes {
            let key = (scope.clone(), name.clone());
            match change {
                Some((true, role)) => {
                    index.put_role(&scope, &name, &role);
                    objects.roles.insert(key, role);
                }
                Some((false, binding)) => {
                    index.put_binding(&scope, &name, &binding);
                    objects.bindings.insert(key, binding);
                }
                None if is_role => {
                    index.delete_role(&scope, &name);
                    objects.roles.remove(&key);
                }
                None => {
                    index.delete_binding(&scope, &name);
                    objects.bindings.remove(&key);
                }
            }
        }
        for user in ["x", "system:serviceaccount:a:y", "system:serviceaccount:b:z"] {
            for groups in [&[][..], &["x", "y"]] {
                for namespace in ["", "a", "b", "c"] {
                    for (verb, group, subresource, name) in
                        [("get", "", "", "a"), ("list", "apps", "", ""), ("get", "", "log", "b")]
                    {
                        let request =
                            Request { verb, group, resource: "pods", subresource, name, path: None };
                        let found = index.decide(&Subject { user, groups }, namespace, &request);
                        prop_assert_eq!(
                            found.allowed.is_some(),
                            objects.allows(user, groups, namespace, &request)
                        );
                    }
                }
            }
        }
    }
}
