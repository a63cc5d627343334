//! Conditions and owner references in an object's metadata and status.

use std::time::Duration;

use expect_test::expect;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use setpoint_object::time::Timestamp;
use setpoint_runtime::{
    owner::{
        OwnerError, controller_of, has_owner_reference, remove_owner_reference,
        set_controller_reference, set_owner_reference,
    },
    set_condition,
};

#[test]
fn condition_moves_its_transition_time_only_with_its_status() {
    let mut conditions = Vec::new();
    let at = |seconds: u64| Timestamp(Duration::from_millis(seconds * 1000 + 7));
    assert!(set_condition(&mut conditions, "Ready", true, "Made", "it is there", Some(1), at(10)));
    assert!(
        !set_condition(&mut conditions, "Ready", true, "Made", "it is there", Some(1), at(20)),
        "nothing changes"
    );
    assert!(
        set_condition(&mut conditions, "Ready", true, "Made", "it is there", Some(2), at(30)),
        "a newer generation"
    );
    assert_eq!(conditions[0].last_transition_time.0.as_second(), 10);
    assert_eq!(conditions[0].observed_generation, Some(2));
    assert!(set_condition(&mut conditions, "Ready", false, "Gone", "it is not", Some(2), at(40)));
    assert!(set_condition(&mut conditions, "Other", true, "Made", "", None, at(50)));
    let text: Vec<_> = conditions
        .iter()
        .map(|c| format!("{} {} {} {}", c.type_, c.status, c.reason, c.last_transition_time.0))
        .collect();
    expect!["Ready False Gone 1970-01-01T00:00:40Z · Other True Made 1970-01-01T00:00:50Z"]
        .assert_eq(&text.join(" · "));
}

fn owner(namespace: &str, name: &str) -> ConfigMap {
    let mut owner = ConfigMap::default();
    owner.metadata.name = Some(name.into());
    owner.metadata.namespace = Some(namespace.into());
    owner.metadata.uid = Some(format!("uid-of-{name}"));
    owner
}

#[test]
fn owner_reference_respects_scopes_and_other_controllers() {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("default".into());
    set_controller_reference(&owner("default", "a"), &(), &mut pod).unwrap();
    set_controller_reference(&owner("default", "a"), &(), &mut pod).unwrap();
    assert_eq!(pod.metadata.owner_references.as_ref().unwrap().len(), 1, "replaced in place");
    let reference = controller_of(&pod).unwrap();
    assert_eq!(
        (reference.kind.as_str(), reference.uid.as_str(), reference.block_owner_deletion),
        ("ConfigMap", "uid-of-a", Some(true))
    );

    let before = pod.clone();
    assert_eq!(
        set_controller_reference(&owner("default", "b"), &(), &mut pod),
        Err(OwnerError::AlreadyOwned { kind: "ConfigMap".into(), name: "a".into() })
    );
    assert_eq!(pod, before);
    let other = set_controller_reference(&owner("other", "a"), &(), &mut pod);
    assert_eq!(
        other,
        Err(OwnerError::Namespaces { owner: "other".into(), child: "default".into() })
    );
    let mut namespace = Namespace::default();
    let scope = set_controller_reference(&owner("default", "a"), &(), &mut namespace);
    assert_eq!(scope, Err(OwnerError::Scope { namespace: "default".into() }));
    let unborn = set_controller_reference(&ConfigMap::default(), &(), &mut namespace);
    assert_eq!(unborn, Err(OwnerError::NotCreated { kind: "ConfigMap".into() }));
}

#[test]
fn utl_5_owners_are_set_found_and_removed_by_group_kind_and_name() {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("default".into());
    let (a, b) = (owner("default", "a"), owner("default", "b"));
    set_controller_reference(&a, &(), &mut pod).unwrap();
    set_owner_reference(&b, &(), &mut pod).unwrap();
    set_owner_reference(&b, &(), &mut pod).unwrap();
    let names = |pod: &Pod| {
        let references = pod.metadata.owner_references.as_deref().unwrap_or_default();
        references.iter().map(|reference| reference.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&pod), "a b");
    assert_eq!(controller_of(&pod).unwrap().name, "a", "an owner beside the controller");
    // It was recreated: it is matched by its name, and its uid is updated.
    let mut recreated = b.clone();
    recreated.metadata.uid = Some("uid-of-another".into());
    assert!(has_owner_reference(&recreated, &(), &pod));
    set_owner_reference(&recreated, &(), &mut pod).unwrap();
    assert_eq!(pod.metadata.owner_references.as_ref().unwrap()[1].uid, "uid-of-another");
    // The same name in another group is another owner.
    let mut other = pod.clone();
    other.metadata.owner_references.as_mut().unwrap()[1].api_version = "apps/v1".into();
    assert!(!has_owner_reference(&b, &(), &other));

    remove_owner_reference(&a, &(), &mut pod).unwrap();
    let absent = remove_owner_reference(&a, &(), &mut pod);
    assert_eq!(absent, Err(OwnerError::NotOwned { kind: "ConfigMap".into(), name: "a".into() }));
    remove_owner_reference(&b, &(), &mut pod).unwrap();
    assert_eq!(pod.metadata.owner_references, None);
    let abroad = set_owner_reference(&owner("other", "a"), &(), &mut pod);
    assert!(matches!(abroad, Err(OwnerError::Namespaces { .. })));
}
