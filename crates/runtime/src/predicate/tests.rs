use super::*;
use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use setpoint_informer::{CachePolicy, Record, ResourceType, Tombstone};

/// An object with this metadata, as in a cache.
fn object(metadata: Value, policy: CachePolicy) -> Object<ConfigMap> {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
    object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    let record =
        Record::from_item(object.to_string().as_bytes(), &ResourceType::of::<ConfigMap>(&()))
            .unwrap();
    Object::new(record, policy)
}

/// The events that pass: each kind of event, between states that differ in one field.
#[track_caller]
fn check(predicate: Predicate<ConfigMap>, expect: Expect) {
    for policy in [CachePolicy::Compact, CachePolicy::Decoded] {
        let base = json!({"resourceVersion": "1", "generation": 1, "labels": {"app": "web"}, "annotations": {"a": "1"}});
        let old = object(base.clone(), policy);
        let mut passed = Vec::new();
        let mut ask = |name: &str, event: Event<ConfigMap>| {
            if predicate.admits(&event) {
                passed.push(name.to_owned());
            }
        };
        ask("added", Event::Added { object: old.clone(), in_initial_list: false });
        ask("resync", Event::Updated { old: old.clone(), new: old.clone() });
        for (name, change) in [
            ("version", json!({})),
            ("generation", json!({"generation": 2})),
            ("labels", json!({"labels": {"app": "db"}})),
            ("annotations", json!({"annotations": {}})),
        ] {
            let mut new = base.clone();
            new["resourceVersion"] = "2".into();
            new.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            ask(name, Event::Updated { old: old.clone(), new: object(new, policy) });
        }
        ask("deleted", Event::Deleted { tombstone: Tombstone::Final(old.clone()) });
        let key = old.key().clone();
        ask("missed", Event::Deleted { tombstone: Tombstone::Missed { key, last_known: None } });
        expect.assert_eq(&passed.join(" "));
    }
}

fn web() -> Predicate<ConfigMap> {
    Predicate::labels(Selector::parse("app=web").unwrap())
}

/// Deleted and created again between two looks: an update with two uids.
#[test]
fn evt_8_another_object_of_the_name_is_no_update_without_a_change() {
    let of = |uid: &str| {
        object(json!({"uid": uid, "resourceVersion": "1", "generation": 1}), CachePolicy::Compact)
    };
    let again = Event::Updated { old: of("1"), new: of("2") };
    let same = Event::Updated { old: of("1"), new: of("1") };
    for predicate in [
        Predicate::resource_version_changed(),
        Predicate::generation_changed(),
        Predicate::labels_changed(),
        Predicate::annotations_changed(),
    ] {
        assert!(predicate.admits(&again) && !predicate.admits(&same));
    }
}

#[test]
fn changes_of_objects_without_a_generation_pass() {
    let of = |version: &str| object(json!({"resourceVersion": version}), CachePolicy::Compact);
    let changed = Event::Updated { old: of("1"), new: of("2") };
    let same = Event::Updated { old: of("1"), new: of("1") };
    let predicate = Predicate::generation_changed();
    assert!(predicate.admits(&changed) && !predicate.admits(&same));
}

#[test]
fn predicates_agree_with_their_table() {
    check(
        Predicate::resource_version_changed(),
        expect!["added version generation labels annotations deleted missed"],
    );
    check(Predicate::generation_changed(), expect!["added generation deleted missed"]);
    check(Predicate::labels_changed(), expect!["added labels deleted missed"]);
    check(Predicate::annotations_changed(), expect!["added annotations deleted missed"]);
    check(web(), expect!["added resync version generation annotations deleted missed"]);
    check(Predicate::object(|_| false), expect!["missed"]);
}

#[test]
fn predicates_combine_and_prd_2_a_negation_drops_additions() {
    check(
        Predicate::generation_changed().or(Predicate::labels_changed()),
        expect!["added generation labels deleted missed"],
    );
    check(
        Predicate::generation_changed().and(Predicate::labels_changed()),
        expect!["added deleted missed"],
    );
    // The classic mistake: events that always pass are always dropped.
    check(Predicate::generation_changed().not(), expect!["resync version labels annotations"]);
}

#[test]
fn second_predicate_is_evaluated_only_if_needed() {
    let never = || Predicate::new(|_: &Event<ConfigMap>| panic!("evaluated"));
    check(
        Predicate::new(|_| true).or(never()),
        expect!["added resync version generation labels annotations deleted missed"],
    );
    check(Predicate::new(|_| false).and(never()), expect![""]);
}

#[test]
fn functions_of_one_kind_of_event_do_not_affect_the_others() {
    check(
        Predicate::added(|_, _| false),
        expect!["resync version generation labels annotations deleted missed"],
    );
    check(Predicate::updated(|_, _| false), expect!["added deleted missed"]);
    check(
        Predicate::deleted(|tombstone| tombstone.object().is_none()),
        expect!["added resync version generation labels annotations missed"],
    );
    let initial = object(json!({}), CachePolicy::Compact);
    let not_initial = Predicate::<ConfigMap>::added(|_, in_initial_list| !in_initial_list);
    for in_initial_list in [false, true] {
        let event = Event::Added { object: initial.clone(), in_initial_list };
        assert_eq!(not_initial.admits(&event), !in_initial_list);
    }
}

#[test]
fn all_without_predicates_passes_everything_and_any_passes_nothing() {
    check(
        Predicate::all([]),
        expect!["added resync version generation labels annotations deleted missed"],
    );
    check(Predicate::any([]), expect![""]);
    check(
        Predicate::all([Predicate::generation_changed(), web()]),
        expect!["added generation deleted missed"],
    );
    check(
        Predicate::any([Predicate::generation_changed(), Predicate::annotations_changed()]),
        expect!["added generation annotations deleted missed"],
    );
    let never = || Predicate::new(|_: &Event<ConfigMap>| panic!("evaluated"));
    check(Predicate::all([Predicate::new(|_| false), never()]), expect![""]);
    check(
        Predicate::any([Predicate::new(|_| true), never()]),
        expect!["added resync version generation labels annotations deleted missed"],
    );
}

#[test]
fn prd_2_negations_drop_events_that_always_pass() {
    for always in [
        Predicate::resource_version_changed(),
        Predicate::labels_changed(),
        Predicate::annotations_changed(),
        Predicate::generation_changed(),
    ] {
        let object = object(json!({"resourceVersion": "1"}), CachePolicy::Compact);
        let added = Event::Added { object: object.clone(), in_initial_list: true };
        let deleted = Event::Deleted { tombstone: Tombstone::Final(object) };
        let negated = always.clone().not();
        assert!(always.admits(&added) && always.admits(&deleted));
        assert!(!negated.admits(&added) && !negated.admits(&deleted));
    }
}

/// An untyped predicate agrees with the typed one of the same name.
#[test]
fn filters_of_all_watches_agree_with_predicates() {
    let of = Predicate::<ConfigMap>::of;
    check(
        of(Predicate::resource_version_changed()),
        expect!["added version generation labels annotations deleted missed"],
    );
    check(
        of(Predicate::generation_changed().or(Predicate::labels_changed())),
        expect!["added generation labels deleted missed"],
    );
    check(
        of(Predicate::annotations_changed().and(Predicate::labels_changed())),
        expect!["added deleted missed"],
    );
    check(of(Predicate::generation_changed().not()), expect!["resync version labels annotations"]);
    check(of(Predicate::any_object(|object| !object.uid().is_empty())), expect!["missed"]);
    check(
        of(Predicate::any_event(|event| match event {
            AnyEvent::Added { in_initial_list, .. } => !in_initial_list,
            AnyEvent::Updated { old, new } => old.resource_version() < new.resource_version(),
            AnyEvent::Deleted { key, last_known } => {
                last_known.is_none_or(|object| object.key() == *key)
            }
        })),
        expect!["added version generation labels annotations deleted missed"],
    );
}
