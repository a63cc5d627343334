mod merge;

use crate::*;

fn field(definition_name: &str, name: &str) -> &'static Field {
    let at = definition(definition_name).unwrap_or_else(|| panic!("no {definition_name}"));
    DEFINITIONS[usize::from(at)]
        .field(name)
        .unwrap_or_else(|| panic!("no {definition_name}.{name}"))
}

#[test]
fn tables_are_sorted_and_references_point_into_them() {
    assert!(DEFINITIONS.is_sorted_by(|a, b| a.name < b.name));
    fn check(ty: &Type) {
        match ty {
            Type::Ref(at) => assert!(usize::from(*at) < DEFINITIONS.len()),
            Type::List(inner) | Type::Map(inner) => check(inner),
            _ => {}
        }
    }
    for definition in DEFINITIONS {
        assert!(definition.fields.is_sorted_by(|a, b| a.name < b.name), "{}", definition.name);
        definition.fields.iter().for_each(|field| check(&field.ty));
        let mut orders: Vec<u8> = definition.fields.iter().map(|field| field.order).collect();
        orders.sort_unstable();
        if orders.last() != Some(&u8::MAX) {
            orders.dedup();
            assert_eq!(orders.len(), definition.fields.len(), "{}", definition.name);
        }
    }
}

#[test]
fn every_served_kind_has_a_definition() {
    for row in RESOURCES {
        assert!(kind(row.group, row.version, row.kind).is_some(), "{}", row.kind);
        assert!(row.verbs.is_sorted(), "{}", row.kind);
        if row.serves("list") {
            let list = format!("{}List", row.kind);
            assert!(kind(row.group, row.version, &list).is_some(), "{list}");
            assert!(!row.columns.is_empty(), "{}", row.kind);
        }
    }
}

#[test]
fn lists_know_how_they_merge() {
    let ports = field("io.k8s.api.core.v1.Container", "ports");
    assert_eq!((ports.list_type, ports.list_map_keys), ("map", &["containerPort", "protocol"][..]));
    assert_eq!((ports.patch_strategy, ports.merge_key), ("merge", "containerPort"));
    let volumes = field("io.k8s.api.core.v1.PodSpec", "volumes");
    assert_eq!(volumes.patch_strategy, "merge,retainKeys");
    assert!(field("io.k8s.api.core.v1.PodSpec", "nodeSelector").atomic);
    assert_eq!(field("io.k8s.api.batch.v1.JobStatus", "conditions").list_type, "atomic");
    assert!(field("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef").granular);
    let selector = definition("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").unwrap();
    assert!(DEFINITIONS[usize::from(selector)].atomic);
}

#[test]
fn fields_know_what_is_written_when_absent() {
    let pod = "io.k8s.api.core.v1.PodSpec";
    assert_eq!(field(pod, "containers").presence, Presence::Null);
    assert_eq!(field(pod, "hostNetwork").presence, Presence::Omitted);
    assert_eq!(field(pod, "securityContext").presence, Presence::Pointer);
    assert_eq!(field("io.k8s.api.core.v1.Container", "resources").presence, Presence::Always);
    assert_eq!(field("io.k8s.api.apps.v1.Deployment", "status").presence, Presence::Always);
    assert_eq!(field("io.k8s.api.apps.v1.DeploymentSpec", "replicas").presence, Presence::Pointer);
    assert_eq!(field("io.k8s.api.core.v1.Event", "eventTime").presence, Presence::Null);
    assert_eq!(field("io.k8s.api.core.v1.Event", "reportingComponent").presence, Presence::Always);
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(field(meta, "creationTimestamp").presence, Presence::Omitted);
    let service = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIServiceSpec";
    assert_eq!(field(service, "groupPriorityMinimum").presence, Presence::Always);
}

#[test]
fn declared_defaults_are_json() {
    assert_eq!(field("io.k8s.api.core.v1.ContainerPort", "protocol").default, "\"TCP\"");
    assert_eq!(field("io.k8s.api.core.v1.ServicePort", "protocol").default, "\"TCP\"");
}

#[test]
fn recursive_types_refer_to_themselves() {
    let props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let at = definition(props).unwrap();
    assert!(matches!(field(props, "properties").ty, Type::Map(Type::Ref(to)) if *to == at));
    assert_eq!(field(props, "not").ty, Type::Ref(at));
}

#[test]
fn resources_are_in_discovery_order() {
    let mut groups: Vec<(&str, &str)> = RESOURCES.iter().map(|r| (r.group, r.version)).collect();
    groups.dedup();
    assert_eq!(groups[..3], [("", "v1"), ("apiregistration.k8s.io", "v1"), ("apps", "v1")]);
    let autoscaling: Vec<&str> =
        groups.iter().filter(|(group, _)| *group == "autoscaling").map(|(_, v)| *v).collect();
    assert_eq!(autoscaling, ["v2", "v1"]);
    let deployments = resource("apps", "v1", "deployments").unwrap();
    assert_eq!((deployments.short_names, deployments.categories), (&["deploy"][..], &["all"][..]));
    assert!(deployments.generation);
    assert_eq!(deployments.subresources[0].kind, ("autoscaling", "v1", "Scale"));
    assert!(!resource("", "v1", "configmaps").unwrap().generation);
    assert_eq!(resource_of_kind("", "v1", "Endpoints").unwrap().resource, "endpoints");
}

#[test]
fn protobuf_numbers_lead_to_one_field_each() {
    for definition in DEFINITIONS {
        let mut ways: Vec<_> = definition
            .fields
            .iter()
            .map(|field| field.protobuf)
            .filter(|way| !way.is_empty())
            .collect();
        ways.sort_unstable();
        for pair in ways.windows(2) {
            // A number denotes a field or an inlined message, never both.
            assert!(!pair[1].starts_with(pair[0]), "{}: {pair:?}", definition.name);
        }
    }
    for definition in DEFINITIONS {
        let ways: Vec<_> = definition
            .protobuf
            .iter()
            .map(|at| definition.fields[usize::from(*at)].protobuf)
            .collect();
        assert!(ways.is_sorted(), "{}: {ways:?}", definition.name);
        let numbered = definition.fields.iter().filter(|field| !field.protobuf.is_empty()).count();
        assert_eq!(ways.len(), numbered, "{}", definition.name);
    }
    let volume = &DEFINITIONS[usize::from(definition("io.k8s.api.core.v1.Volume").unwrap())];
    assert_eq!(volume.field("name").unwrap().protobuf, [1]);
    assert_eq!(volume.field("hostPath").unwrap().protobuf, [2, 1]);
    let pod = &DEFINITIONS[usize::from(definition("io.k8s.api.core.v1.Pod").unwrap())];
    assert_eq!(pod.field("kind").unwrap().protobuf, [0_u8; 0], "the envelope says it");
}

#[test]
fn each_field_is_found_by_its_name_and_no_other_is() {
    for definition in DEFINITIONS {
        for (at, field) in definition.fields.iter().enumerate() {
            assert_eq!(definition.position(field.name), Some(at), "{}", definition.name);
            let longer = format!("{}x", field.name);
            let known = definition.fields.iter().position(|field| field.name == longer);
            assert_eq!(definition.position(&longer), known, "{longer} of {}", definition.name);
        }
        assert_eq!(definition.position(""), None, "{}", definition.name);
    }
}
