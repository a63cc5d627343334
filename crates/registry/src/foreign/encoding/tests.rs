use super::*;
use crate::bootstrap;
use crate::features::{Emulation, Release};
use crate::foreign::ForeignStore;
use serde_json::{Value, json};
use setpoint_store::{At, Committed, MemoryStore, Op, Store, Txn};
use std::sync::Arc;

const OLDEST: Release = Emulation::PRESENT.min_compatibility();

const PROTOBUF: Encoding = Encoding { built_in: StorageMediaType::Protobuf, is_cbor: false };
const JSON: Encoding = Encoding { built_in: StorageMediaType::Json, is_cbor: false };
const CBOR: Encoding = Encoding { built_in: StorageMediaType::Protobuf, is_cbor: true };

const CONFIG_MAP: &str = "/registry/configmaps/default/a";
const POLICY: &str = "/registry/mutatingadmissionpolicies/a";
const DEFINITION: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/as.ex.io";
const API_SERVICE: &str = "/registry/apiregistration.k8s.io/apiservices/v1.ex.io";
const CUSTOM: &str = "/registry/ex.io/as/default/a";

fn object(key: &str) -> Value {
    let (api_version, kind) = match key {
        CONFIG_MAP => ("v1", "ConfigMap"),
        POLICY => ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
        DEFINITION => ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        API_SERVICE => ("apiregistration.k8s.io/v1", "APIService"),
        _ => ("ex.io/v1", "A"),
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}})
}
async fn put(store: &dyn Store, key: &str, value: impl Into<Bytes>) {
    let ops = vec![Op::Put(key.to_owned().into(), value.into())];
    let done = store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    assert!(matches!(done, Committed::Done(_)));
}
async fn got(store: &dyn Store, key: &str) -> Bytes {
    store.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap().value
}
fn over(inner: &Arc<MemoryStore>, encoding: Encoding) -> ForeignStore {
    ForeignStore::new(inner.clone(), bootstrap::catalog().formers(OLDEST), encoding)
}

#[tokio::test]
async fn each_kind_is_written_as_a_kube_apiserver_does() {
    let v1beta1 = "admissionregistration.k8s.io/v1beta1";
    let definition = ("JSON", Some("apiextensions.k8s.io/v1beta1"));
    let api_service = ("JSON", Some("apiregistration.k8s.io/v1"));
    let cases = [
        (PROTOBUF, CONFIG_MAP, ("protobuf", Some("v1"))),
        (PROTOBUF, POLICY, ("protobuf", Some(v1beta1))),
        (PROTOBUF, DEFINITION, definition),
        (PROTOBUF, API_SERVICE, api_service),
        (PROTOBUF, CUSTOM, ("JSON", Some("ex.io/v1"))),
        (JSON, CONFIG_MAP, ("JSON", Some("v1"))),
        (JSON, POLICY, ("JSON", Some(v1beta1))),
        (JSON, DEFINITION, definition),
        (CBOR, CONFIG_MAP, ("protobuf", Some("v1"))),
        (CBOR, DEFINITION, definition),
        (CBOR, CUSTOM, ("CBOR", None)),
    ];
    for (encoding, key, (name, version)) in cases {
        let inner = Arc::new(MemoryStore::default());
        let store = over(&inner, encoding);
        let json = to_bytes(&object(key));
        put(&store, key, json.clone()).await;
        let stored = got(&*inner, key).await;
        let found = match name {
            "protobuf" => protobuf_version(&stored).map(str::to_owned),
            "JSON" => names_of(key.as_bytes(), &stored).map(|(version, _)| version.into_owned()),
            _ => None,
        };
        let expected = (name, version.map(str::to_owned));
        assert_eq!((super::name(&stored), found), expected, "{encoding:?} {key}");
        // The other encodings are read, too.
        let read = got(&over(&inner, JSON), key).await;
        let of = |value: &[u8]| serde_json::from_slice::<Value>(value).unwrap();
        for member in ["apiVersion", "kind", "metadata/name"] {
            let pointer = format!("/{member}");
            assert_eq!(of(&read).pointer(&pointer), of(&json).pointer(&pointer), "{key}");
        }
    }
}

#[tokio::test]
async fn what_is_no_object_is_written_as_it_is() {
    let inner = Arc::new(MemoryStore::default());
    let store = over(&inner, CBOR);
    let values = [
        ("/registry/ranges/servicenodeports", r#"{"apiVersion":"v1","kind":"RangeAllocation"}"#),
        ("/registry/some/other", "no JSON"),
        (CUSTOM, "k8s:enc:aescbc:v1:key:sealed"),
    ];
    for (key, value) in values {
        put(&store, key, value).await;
        assert_eq!(got(&*inner, key).await, value);
    }
}

#[tokio::test]
async fn a_value_in_another_encoding_or_version_is_due_to_be_written_again() {
    let inner = Arc::new(MemoryStore::default());
    let store = over(&inner, PROTOBUF);
    let due = async |key: &str| store.rewrite_due(key.as_bytes()).await.unwrap();
    assert!(!due(CONFIG_MAP).await, "there is none");
    for key in [CONFIG_MAP, POLICY, DEFINITION] {
        let json = to_bytes(&object(key));
        put(&*inner, key, json.clone()).await;
        assert!(due(key).await, "{key}");
        put(&store, key, json).await;
        assert!(!due(key).await, "{key}");
    }
    // Definitions, APIServices and custom objects stay in JSON.
    put(&*inner, API_SERVICE, to_bytes(&object(API_SERVICE))).await;
    assert!(!due(API_SERVICE).await);
    // What a kube-apiserver wrote, with a line break.
    put(&*inner, CUSTOM, [&to_bytes(&object(CUSTOM))[..], b"\n"].concat()).await;
    assert!(!due(CUSTOM).await);
    let due_with = async |encoding: Encoding, key: &str| {
        over(&inner, encoding).rewrite_due(key.as_bytes()).await.unwrap()
    };
    assert!(due_with(CBOR, CUSTOM).await);
    put(&over(&inner, CBOR), CUSTOM, to_bytes(&object(CUSTOM))).await;
    assert!(due(CUSTOM).await && !due_with(CBOR, CUSTOM).await);
    assert!(due_with(JSON, CONFIG_MAP).await);
    // A retired version.
    let role = "/registry/roles/default/a";
    let mut retired = json!({"kind": "Role", "metadata": {"name": "a"}});
    retired["apiVersion"] = "rbac.authorization.k8s.io/v1beta1".into();
    put(&*inner, role, to_bytes(&retired)).await;
    assert!(due(role).await && due_with(JSON, role).await);
}
