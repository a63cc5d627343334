use super::*;
use proptest::prelude::*;

const RESOURCES: [(&str, &str); 9] = [
    ("", "secrets"),
    ("", "services"),
    ("", "endpoints"),
    ("", "nodes"),
    ("", "replicationcontrollers"),
    ("", "events"),
    ("apps", "deployments"),
    ("networking.k8s.io", "ingresses"),
    ("events.k8s.io", "events"),
];

#[test]
fn prefix_determines_its_resource() {
    let directory = Directory::of(RESOURCES);
    for (group, resource) in RESOURCES {
        let prefix = built_in_prefix(group, resource);
        let group = if resource == "events" { "" } else { group };
        assert_eq!(directory.resource(&prefix), Some((group, resource)), "{prefix}");
    }
    let prefix = custom_prefix("ex.io", "widgets");
    assert_eq!(directory.resource(&prefix), Some(("ex.io", "widgets")));
    let prefix = built_in_prefix("apiextensions.k8s.io", "customresourcedefinitions");
    assert_eq!(prefix, "/registry/apiextensions.k8s.io/customresourcedefinitions/");
    let found = Some(("apiextensions.k8s.io", "customresourcedefinitions"));
    assert_eq!(directory.resource(&prefix), found);
    assert_eq!(prefix, DEFINITIONS);
    assert_eq!(built_in_prefix("", "services"), SERVICES);
    for prefix in ["/registry/ranges/", "/registry/services/odd/", "/registry/", ""] {
        assert_eq!(directory.resource(prefix), None, "{prefix}");
    }
}

#[test]
fn keys_determine_their_resource() {
    for (key, prefix) in [
        ("/registry/configmaps/default/a", Some("/registry/configmaps/")),
        ("/registry/services/specs/default/a", Some("/registry/services/specs/")),
        ("/registry/services/endpoints/default/a", Some("/registry/services/endpoints/")),
        ("/registry/ex.io/foos/a", Some("/registry/ex.io/foos/")),
        ("/registry/namespaces/a.b", Some("/registry/namespaces/")),
        ("/registry/ranges/serviceips", Some("/registry/ranges/")),
        ("/registry/odd", None),
        ("/registry/services/odd", None),
        ("/registry/", None),
        ("compact_rev_key", None),
        ("", None),
    ] {
        assert_eq!(prefix_of(key.as_bytes()), prefix, "{key}");
    }
}

#[test]
fn written_key_is_parsed_back() {
    let prefix = built_in_prefix("", "services");
    let key = key(&prefix, Scope::Namespaced, "n", "a");
    assert_eq!(key, "/registry/services/specs/n/a");
    assert_eq!(names(prefix.len(), Scope::Namespaced, &key), ("n", "a"));
    assert_eq!(collection(&prefix, Scope::Namespaced, "n"), "/registry/services/specs/n/");
    let prefix = built_in_prefix("", "nodes");
    let key = super::key(&prefix, Scope::Cluster, "", "a");
    assert_eq!(key, "/registry/minions/a");
    assert_eq!(names(prefix.len(), Scope::Cluster, &key), ("", "a"));
    assert_eq!(collection(&prefix, Scope::Cluster, "n"), "/registry/minions/");
}

proptest! {
    #[test]
    fn any_key_is_parsed(key in proptest::collection::vec(any::<u8>(), 0..40), under in any::<bool>()) {
        let key = if under { [ROOT.as_bytes(), &key].concat() } else { key };
        if let Some(prefix) = prefix_of(&key) {
            prop_assert!(key.starts_with(prefix.as_bytes()) && prefix.ends_with('/'));
            names(prefix.len(), Scope::Namespaced, &key);
        }
    }
}
