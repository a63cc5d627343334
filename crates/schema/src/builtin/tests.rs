use super::*;
use crate::node::{ListType, Node, Scalar, Shape, View};

fn check(group: &str, version: &str, kind: &str, path: &str, test: impl FnOnce(&Node)) {
    let schema = type_schema(group, version, kind).unwrap_or_else(|| panic!("no {kind}"));
    let mut view: View<'_> = schema.view();
    for segment in path.split('.') {
        let next = if segment == "[]" { view.items() } else { view.member(segment) };
        view = next.unwrap_or_else(|| panic!("{kind} {path}: no {segment}"));
    }
    test(view.node());
}

#[test]
fn every_definition_is_the_node_of_its_index() {
    for (at, definition) in setpoint_facts::DEFINITIONS.iter().enumerate() {
        let node = &document().nodes[at];
        assert_eq!(node.type_name.as_deref(), Some(definition.name));
        assert!(node.properties.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(node.properties.len(), definition.fields.len());
    }
    assert_eq!(
        object_meta().view().type_name.as_deref(),
        Some("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    );
}

#[test]
fn fields_that_are_alike_have_one_node() {
    let definitions = setpoint_facts::DEFINITIONS;
    let n_fields: usize = definitions.iter().map(|definition| definition.fields.len()).sum();
    let n_more = document().nodes.len() - definitions.len();
    assert!(n_more < n_fields / 2, "{n_more} nodes for {n_fields} fields");
}

#[test]
fn every_declared_default_is_json() {
    for definition in setpoint_facts::DEFINITIONS {
        for field in definition.fields.iter().filter(|field| !field.default.is_empty()) {
            let parsed = serde_json::from_str::<serde_json::Value>(field.default);
            assert!(parsed.is_ok(), "{}.{}", definition.name, field.name);
        }
    }
}

#[test]
fn lists_merge_by_their_keys_and_the_keys_have_defaults() {
    check("", "v1", "Pod", "spec.containers.[].ports", |ports| {
        assert_eq!(ports.list_type, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
        assert!(ports.patch.merge);
        assert_eq!(ports.patch.merge_key.as_deref(), Some("containerPort"));
    });
    check("apps", "v1", "Deployment", "spec.template.spec.containers.[].ports.[].protocol", |p| {
        assert_eq!(p.default, Some("TCP".into()));
    });
    check("", "v1", "Service", "spec.ports.[].protocol", |protocol| {
        assert_eq!(protocol.default, Some("TCP".into()));
    });
    check("", "v1", "Pod", "spec.tolerations", |tolerations| {
        assert_eq!(tolerations.list_type, ListType::Atomic);
        assert!(!tolerations.patch.merge);
    });
    check("", "v1", "ConfigMap", "metadata.finalizers", |finalizers| {
        assert_eq!(finalizers.list_type, ListType::Set);
        assert!(finalizers.patch.merge);
    });
    check("", "v1", "Pod", "spec.volumes", |volumes| {
        assert!(volumes.patch.merge && volumes.patch.retain_keys);
    });
    check("apps", "v1", "Deployment", "spec.strategy", |strategy| {
        assert!(strategy.patch.retain_keys && !strategy.patch.merge);
        assert!(!strategy.atomic_map);
    });
}

#[test]
fn structs_and_maps_are_atomic_where_the_field_or_its_type_says_so() {
    check("apps", "v1", "Deployment", "spec.selector", |selector| assert!(selector.atomic_map));
    check("", "v1", "Pod", "spec.nodeSelector", |selector| assert!(selector.atomic_map));
    check("", "v1", "Service", "spec.selector", |selector| assert!(selector.atomic_map));
    check("", "v1", "PersistentVolume", "spec.claimRef", |claim| assert!(!claim.atomic_map));
    check("", "v1", "Event", "involvedObject", |object| assert!(object.atomic_map));
    check("", "v1", "ConfigMap", "data", |data| assert!(!data.atomic_map));
    check("policy", "v1", "PodDisruptionBudget", "spec.selector", |selector| {
        assert!(selector.atomic_map && selector.patch.replace);
    });
}

#[test]
fn scalars_know_what_they_stand_for() {
    let scalar = |kind, path: &str, shape, scalar| {
        check("", "v1", kind, path, |node| assert_eq!((node.shape, node.scalar), (shape, scalar)));
    };
    scalar("Pod", "metadata.creationTimestamp", Shape::String, Scalar::Time);
    scalar("Pod", "spec.containers.[].resources.limits.cpu", Shape::String, Scalar::Quantity);
    scalar("Pod", "spec.priority", Shape::Integer, Scalar::Int32);
    scalar("Pod", "spec.terminationGracePeriodSeconds", Shape::Integer, Scalar::Int64);
    scalar("Secret", "data.key", Shape::String, Scalar::Bytes);
    scalar("Event", "eventTime", Shape::String, Scalar::MicroTime);
    scalar("Service", "spec.ports.[].targetPort", Shape::IntOrString, Scalar::Plain);
    check("apps", "v1", "ControllerRevision", "data", |data| {
        assert_eq!(data.shape, Shape::Any);
        assert!(data.preserve_unknown);
    });
}

#[test]
fn fields_know_what_is_written_when_absent() {
    check("apps", "v1", "Deployment", "status", |status| {
        assert!(status.always_present && !status.zero_null);
    });
    check("", "v1", "Pod", "spec.containers", |list| {
        assert!(list.always_present && list.zero_null)
    });
    check("", "v1", "Event", "eventTime", |time| assert!(time.always_present && time.zero_null));
    check("", "v1", "Pod", "spec.hostNetwork", |flag| assert!(flag.omit_empty));
    check("apps", "v1", "Deployment", "spec.replicas", |replicas| {
        assert!(!replicas.omit_empty && !replicas.always_present);
    });
    check("", "v1", "Pod", "spec", |spec| assert_eq!(spec.order, 3));
}

#[test]
fn recursive_types_are_ordinary() {
    let root = "spec.versions.[].schema.openAPIV3Schema";
    let deep = format!("{root}.properties.spec.properties.x.additionalProperties");
    for path in
        [root.to_owned(), format!("{root}.properties.a.properties.b.not.properties.c"), deep]
    {
        check("apiextensions.k8s.io", "v1", "CustomResourceDefinition", &path, |_| {});
    }
}

#[test]
fn lists_subresource_bodies_and_meta_types_are_found() {
    for (group, kind) in [
        ("", "PodList"),
        ("autoscaling", "Scale"),
        ("policy", "Eviction"),
        ("meta.k8s.io", "DeleteOptions"),
    ] {
        assert!(type_schema(group, "v1", kind).is_some(), "{kind}");
    }
    assert!(type_schema("", "v1", "Foo").is_none());
    assert!(definition("io.k8s.Foo").is_none());
}
