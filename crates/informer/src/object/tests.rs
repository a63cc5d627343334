use super::*;
use crate::resource_type::ResourceType;
use crate::testing::record;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};

#[test]
fn every_policy_gives_the_same_answers() {
    let json = br#"{"metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"3","generation":2,
        "labels":{"app":"x"},"finalizers":["f"],"deletionTimestamp":"2026-01-01T00:00:00Z",
        "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"pu","controller":true}]},"data":{"k":"v"}}"#;
    let record = Record::from_item(json, &ResourceType::of::<ConfigMap>(&())).unwrap();
    let compact: Object<ConfigMap> = Object::new(record.clone(), CachePolicy::Compact);
    let decoded: Object<ConfigMap> = Object::new(record, CachePolicy::Decoded);
    assert_eq!(compact.get().unwrap(), decoded.get().unwrap());
    assert_eq!(compact.label("app"), decoded.label("app"));
    let (a, b) = (compact.skim(), decoded.skim());
    assert_eq!(a.owner_references, b.owner_references);
    assert_eq!((a.generation, &a.finalizers, &a.labels), (b.generation, &b.finalizers, &b.labels));
    assert_eq!(a.deletion_timestamp, b.deletion_timestamp);
    assert!(compact.bytes().is_some() && decoded.bytes().is_none());
    assert!(Arc::ptr_eq(&decoded.get().unwrap(), &decoded.get().unwrap()));
}

#[test]
fn error_of_an_undecodable_object_names_it_and_the_cause() {
    let json = br#"{"metadata":{"namespace":"ns","name":"a","resourceVersion":"3"},"spec":7}"#;
    let record = Record::from_item(json, &ResourceType::of::<Pod>(&())).unwrap();
    for policy in [CachePolicy::Compact, CachePolicy::Compressed, CachePolicy::Decoded] {
        let object: Object<Pod> = Object::new(record.clone(), policy);
        let error = object.get().unwrap_err();
        assert!(error.to_string().ends_with("Pod ns/a at resourceVersion 3"), "{error}");
        assert_eq!(object.bytes(), Some(&record.bytes));
    }
}

#[test]
fn debug_output_has_the_version() {
    let object: Object<ConfigMap> = Object::new(record("a", 7), CachePolicy::Compact);
    assert_eq!(format!("{object:?}"), "ns/a@7");
}

#[test]
fn identity_that_json_does_not_spell_plainly_reads_the_same() {
    let json = br#"{"metadata":{"name":"a","uid":"u\u002d1","resourceVersion":"\u0033"}}"#;
    let record = Record::from_item(json, &ResourceType::of::<ConfigMap>(&())).unwrap();
    for policy in
        [CachePolicy::Compact, CachePolicy::Compressed, CachePolicy::Metadata, CachePolicy::Decoded]
    {
        let object: Object<ConfigMap> = Object::new(record.clone(), policy);
        assert_eq!((object.uid(), object.resource_version()), ("u-1", "3"), "{policy:?}");
        assert_eq!(object.skim().uid, "u-1");
    }
}

#[test]
fn metadata_of_an_object_has_the_requested_type_and_nothing_else() {
    let of_type = ("v1", "Pod");
    let cut = |json: &str| {
        let (text, head) = metadata_of(json.as_bytes(), of_type).unwrap();
        assert_eq!(head, Head::of(&text).unwrap());
        String::from_utf8(text).unwrap()
    };
    let left = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#;
    assert_eq!(
        cut(r#"{"spec":{"x":1},"metadata":{"name":"a","managedFields":[]},"status":{}}"#),
        left
    );
    assert_eq!(
        cut(
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#
        ),
        left
    );
    assert_eq!(
        cut(r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}"#),
        left.replace("Pod", "Node"),
        "REF-10: items are not checked"
    );
    assert!(metadata_of(b"{}", of_type).is_none());
    assert!(metadata_of(b"[", of_type).is_none());
}

#[test]
fn a_handle_takes_little_memory() {
    // Every object has one. Its size is part of the figures of `CachePolicy`.
    let inner = std::mem::size_of::<Inner>();
    assert!(inner <= 120, "{inner}");
}

#[test]
fn decoded_object_has_its_identity_from_its_metadata_or_beside_the_value() {
    fn ids_of(value: &(dyn Any + Send + Sync)) -> (&str, &str) {
        let meta = &value.downcast_ref::<ConfigMap>().unwrap().metadata;
        (meta.uid.as_deref().unwrap_or(""), meta.resource_version.as_deref().unwrap_or(""))
    }
    let pool = Pool::new(CachePolicy::Decoded, 0, Some(ids_of));
    let mut whole = ConfigMap::default();
    whole.metadata.uid = Some("u".to_owned());
    whole.metadata.resource_version = Some("3".to_owned());
    // As of a type that declares neither.
    for (value, is_beside) in [(whole, false), (ConfigMap::default(), true)] {
        let (key, value) = (Key::cluster("a"), Arc::new(value));
        let object: Object<ConfigMap> = Object::decoded(key, value, ("u", "3"), pool.clone());
        assert_eq!((object.uid(), object.resource_version()), ("u", "3"));
        let Body::Decoded(_, beside) = &object.inner().body else { panic!("it is decoded") };
        assert_eq!(!beside.is_empty(), is_beside);
    }
}
