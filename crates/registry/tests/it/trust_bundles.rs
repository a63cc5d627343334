//! ClusterTrustBundles, which are served with their feature gate.
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_object::field_selector::FieldSelector;
use setpoint_registry::{AlwaysDeny, Feature, ListOptions, RegistryBuilder, RuntimeConfig, Verb};
use setpoint_store::{At, MemoryStore, Store as _};
use std::sync::Arc;

const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const ALPHA: &str = "/apis/certificates.k8s.io/v1alpha1/clustertrustbundles";
const AUTHORITY: &str = include_str!("../data/authority.pem");
const LEAF: &str = include_str!("../data/leaf.pem");

async fn server(configure: impl FnOnce(RegistryBuilder) -> RegistryBuilder) -> Server {
    let gates = [Feature::ClusterTrustBundle];
    let config = RuntimeConfig::with_gates("api/all", gates).unwrap();
    let store = Arc::new(MemoryStore::default());
    let configure = |builder: RegistryBuilder| configure(builder.seed(7).runtime_config(config));
    Server::configured(store.clone(), store, configure).await
}
fn bundle(name: &str, signer: &str, anchors: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": anchors}})
}

#[tokio::test(start_paused = true)]
async fn bundle_is_named_after_its_signer() {
    let server = server(|builder| builder).await;
    let create = |name: &str, signer: &str| server.create(BUNDLES, bundle(name, signer, AUTHORITY));
    create("a.b", "").await.unwrap();
    create("example.com:x:a", "example.com/x").await.unwrap();
    for (name, signer, why) in [
        (
            "a:b",
            "",
            r#"metadata.name: Invalid value: "a:b": ClusterTrustBundle without signer name must not have ":" in its name"#,
        ),
        (
            "a",
            "example.com/x",
            r#"metadata.name: Invalid value: "a": ClusterTrustBundle for signerName example.com/x must be named with prefix example.com:x:"#,
        ),
        ("example.com:x:A", "example.com/x", "a lowercase RFC 1123 subdomain must consist of"),
        ("nope:a", "nope", "spec.signerName: Invalid value: \"nope\": must be a fully qualified"),
    ] {
        let error = refused(create(name, signer).await);
        assert!(error.starts_with("422 ") && error.contains(why), "{error}");
    }
    let mut generated = bundle("", "example.com/x", AUTHORITY);
    generated["metadata"] = json!({"generateName": "example.com:x:a-"});
    let made = server.create(BUNDLES, generated).await.unwrap();
    assert!(made["metadata"]["name"].as_str().unwrap().starts_with("example.com:x:a-"));
    let other = json!({"spec": {"signerName": "example.com/y"}});
    let error = refused(server.patch(&format!("{BUNDLES}/example.com:x:a"), other).await);
    assert!(
        error.contains("spec.signerName: Invalid value: \"example.com/y\": field is immutable"),
        "{error}"
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn trust_anchors_are_certificates_of_authorities() {
    let server = server(|builder| builder).await;
    let headers = AUTHORITY.replacen("-----\n", "-----\nA: b\n\n", 1);
    let garbage = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
    let other = AUTHORITY.replace("CERTIFICATE", "THING");
    for (anchors, why) in [
        (String::new(), "at least one trust anchor must be provided"),
        ("no block".to_owned(), "at least one trust anchor must be provided"),
        (format!("{AUTHORITY}{LEAF}"), "entry 1 does not have the CA bit set"),
        (format!("{garbage}{AUTHORITY}"), "entry 0 does not parse as X.509"),
        (headers, "entry 0 has PEM block headers"),
        (other, "entry 0 has bad block type: THING"),
        (format!("{AUTHORITY}{AUTHORITY}"), "duplicate trust anchor (indices [0 1])"),
    ] {
        let error = refused(server.create(BUNDLES, bundle("a", "", &anchors)).await);
        assert_eq!(
            error,
            format!(
                "422 ClusterTrustBundle.certificates.k8s.io \"a\" is invalid: spec.trustBundle: Invalid value: \"<value omitted>\": {why}"
            )
        );
    }
    let long = " ".repeat(1024 * 1024 + 1);
    let error = refused(server.create(BUNDLES, bundle("a", "", &long)).await);
    assert!(
        error.contains("spec.trustBundle: Too long: may not be more than 1048576 bytes"),
        "{error}"
    );
    server.create(BUNDLES, bundle("a", "", &format!("text\n{AUTHORITY}"))).await.unwrap();
    let empty = json!({"spec": {"trustBundle": ""}});
    let error = refused(server.patch(&format!("{BUNDLES}/a"), empty).await);
    assert!(error.contains("at least one trust anchor"), "{error}");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn both_versions_are_stored_in_v1beta1_and_selected_by_signer() {
    let server = server(|builder| builder).await;
    server.create(ALPHA, bundle("a", "", AUTHORITY)).await.unwrap();
    server.create(BUNDLES, bundle("s.io:x:b", "s.io/x", AUTHORITY)).await.unwrap();
    let key = b"/registry/clustertrustbundles/a";
    let stored = server.store.get(key, At::Latest).await.unwrap().value.unwrap();
    let start = br#"{"kind":"ClusterTrustBundle","apiVersion":"certificates.k8s.io/v1beta1","#;
    assert!(stored.value.starts_with(start));
    let found = server.get(&format!("{ALPHA}/s.io:x:b")).await.unwrap();
    assert_eq!(found["apiVersion"], "certificates.k8s.io/v1alpha1");
    let list = async |fields: &str| {
        let fields = FieldSelector::parse(fields).unwrap();
        let options = ListOptions { fields, ..ListOptions::default() };
        let list = server.registry.list(&server.request(Verb::List, ALPHA), &options).await;
        list.map(|list| list.items.len())
    };
    assert_eq!(list("spec.signerName=s.io/x").await.unwrap(), 1);
    assert_eq!(list("spec.signerName=").await.unwrap(), 1);
    assert!(refused(list("spec.other=x").await).contains("field label not supported: spec.other"));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn anchors_of_a_signer_need_the_right_to_attest() {
    let server = server(|builder| builder.authorizer(Arc::new(AlwaysDeny))).await;
    server.create(BUNDLES, bundle("a", "", AUTHORITY)).await.unwrap();
    assert_eq!(
        refused(server.create(BUNDLES, bundle("s.io:x:b", "s.io/x", AUTHORITY)).await),
        r#"403 clustertrustbundles.certificates.k8s.io "s.io:x:b" is forbidden: user not permitted to attest for signerName "s.io/x""#
    );
    server.stop().await;
    // Who may do everything may attest.
    let open = self::server(|builder| builder).await;
    open.create(BUNDLES, bundle("s.io:x:b", "s.io/x", AUTHORITY)).await.unwrap();
    open.stop().await;
}
