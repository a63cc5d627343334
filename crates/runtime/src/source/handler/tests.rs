use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use setpoint_informer::{CachePolicy, Record, ResourceType, Tombstone};
use setpoint_object::GroupKind;
use setpoint_workqueue::{Priorities, WorkQueue};

use super::*;
use crate::{
    explain::Cause,
    source::{HandlerFns, handler::priority_of},
};

/// A Pod with these owners: (apiVersion, kind, name, controller).
fn pod(version: &str, owners: &[(&str, &str, &str, bool)], policy: CachePolicy) -> Object<Pod> {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(api_version, kind, name, controller)| {
            json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": controller})
        })
        .collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "p", "namespace": "ns", "resourceVersion": version, "ownerReferences": owners,
    }});
    let record =
        Record::from_item(pod.to_string().as_bytes(), &ResourceType::of::<Pod>(&())).unwrap();
    Object::new(record, policy)
}

/// The keys that a handler adds for each kind of event, with their priorities.
#[track_caller]
fn check(handler: impl EventHandler<Pod, Request>, expect: Expect) {
    for policy in [CachePolicy::Compact, CachePolicy::Decoded] {
        let set = |name| ("apps/v1", "ReplicaSet", name, true);
        let old = pod("1", &[set("a"), ("apps/v2", "ReplicaSet", "side", false), set("a")], policy);
        let new = pod("2", &[set("b"), ("v1", "ReplicaSet", "core", true), set("a")], policy);
        let key = old.key().clone();
        let missed = |last_known| Tombstone::Missed { key: key.clone(), last_known };
        let events = [
            ("initial", Event::Added { object: old.clone(), in_initial_list: true }),
            ("added", Event::Added { object: old.clone(), in_initial_list: false }),
            ("updated", Event::Updated { old: old.clone(), new: new.clone() }),
            ("resync", Event::Updated { old: old.clone(), new: old.clone() }),
            ("deleted", Event::Deleted { tombstone: Tombstone::Final(old.clone()) }),
            ("missed", Event::Deleted { tombstone: missed(Some(old.clone())) }),
            ("unknown", Event::Deleted { tombstone: missed(None) }),
        ];
        let mut output = String::new();
        for (name, event) in events {
            let queue = WorkQueue::builder().priorities(Priorities::Strict).build();
            let priority = priority_of(&event, -100);
            let cause = Cause::of_event(3, &event);
            handler.handle(&event, &Enqueue::new(&queue, priority, cause, None));
            let mut keys = Vec::new();
            while let Some(item) = queue.try_get() {
                assert_eq!(Cause::of_tag(item.tag()), cause);
                assert_eq!(item.n_adds(), 1, "each key once");
                keys.push(format!("{}@{}", item.key(), item.priority()));
            }
            output += &format!("{name}: {}\n", keys.join(" "));
        }
        expect.assert_eq(&output);
    }
}

#[test]
fn hnd_3_and_pq_40_to_43_object_handler_adds_every_key() {
    check(
        ForObject,
        expect![[r"
            initial: ns/p@-100
            added: ns/p@0
            updated: ns/p@0
            resync: ns/p@-100
            deleted: ns/p@0
            missed: ns/p@0
            unknown: ns/p@0
        "]],
    );
}

fn owner(is_cluster_scoped: bool, any_owner: bool) -> ForOwner {
    let kind = GroupKind { group: "apps".into(), kind: "ReplicaSet".into() };
    ForOwner { owner: Owner { kind, is_cluster_scoped }, any_owner }
}

#[test]
fn hnd_1_owner_handler_adds_controlling_owners_of_both_sides_in_any_version() {
    check(
        owner(false, false),
        expect![[r"
            initial: ns/a@-100
            added: ns/a@0
            updated: ns/b@0 ns/a@0
            resync: ns/a@-100
            deleted: ns/a@0
            missed: ns/a@0
            unknown: 
        "]],
    );
    // Every owner, including cluster-scoped ones.
    check(
        owner(true, true),
        expect![[r"
            initial: a@-100 side@-100
            added: a@0 side@0
            updated: b@0 a@0 side@0
            resync: a@-100 side@-100
            deleted: a@0 side@0
            missed: a@0 side@0
            unknown: 
        "]],
    );
}

#[test]
fn hnd_1_unparsable_reference_ends_the_mapping_of_its_object() {
    let owners = [("apps/v1", "ReplicaSet", "a", true), ("a/b/c", "ReplicaSet", "b", true)];
    let object = pod("1", &owners, CachePolicy::Compact);
    let queue = WorkQueue::builder().build();
    let event = Event::Added { object, in_initial_list: false };
    let keys = Enqueue::new(&queue, 0, Cause::External, None);
    owner(false, true).handle(&event, &keys);
    assert!(queue.is_empty());
}

#[test]
fn map_of_objects_adds_the_keys_of_both_sides_once() {
    check(
        MappedObjects(|pod: &Object<Pod>| {
            let owners = &pod.skim().owner_references;
            owners.iter().map(|owner| Request::cluster(&*owner.name)).take(2).collect()
        }),
        expect![[r"
            initial: a@-100 side@-100
            added: a@0 side@0
            updated: b@0 core@0 a@0 side@0
            resync: a@-100 side@-100
            deleted: a@0 side@0
            missed: a@0 side@0
            unknown: 
        "]],
    );
}

#[test]
fn map_of_events_gets_the_key_of_a_tombstone_without_an_object() {
    check(
        Mapped(|event: &Event<Pod>| vec![Request::new("of", event.key().name.clone())]),
        expect![[r"
            initial: of/p@-100
            added: of/p@0
            updated: of/p@0
            resync: of/p@-100
            deleted: of/p@0
            missed: of/p@0
            unknown: of/p@0
        "]],
    );
}

#[test]
fn functions_are_optional_and_pq_45_their_priority_applies() {
    check(
        HandlerFns::new(),
        expect![[r"
            initial: 
            added: 
            updated: 
            resync: 
            deleted: 
            missed: 
            unknown: 
        "]],
    );
    check(
        HandlerFns::<Pod, Request>::new()
            .added(|pod, keys| {
                let urgent = setpoint_workqueue::AddOptions::default().priority(7);
                keys.add_with(pod.key().clone(), urgent);
            })
            .updated(|old, new, keys| {
                let (old, new) = (old.resource_version(), new.resource_version());
                keys.add(Request::new(old, new));
            })
            .deleted(|tombstone, keys| {
                let known = if tombstone.object().is_some() { "known" } else { "unknown" };
                keys.add(Request::new(known, tombstone.key().name.clone()));
            }),
        expect![[r"
            initial: ns/p@7
            added: ns/p@7
            updated: 1/2@0
            resync: 1/1@-100
            deleted: known/p@0
            missed: known/p@0
            unknown: unknown/p@0
        "]],
    );
}

#[test]
fn unmatched_keys_are_skipped() {
    let queue = WorkQueue::builder().build();
    let only = |key: &Request| &*key.name == "p";
    let keys = Enqueue::new(&queue, 0, Cause::HandOver, Some(&only));
    keys.add(Request::cluster("q"));
    keys.add(Request::cluster("p"));
    assert_eq!(queue.try_get().map(|item| item.key().to_string()).as_deref(), Some("p"));
    assert!(queue.is_empty());
}
