//! PodCertificateRequests, which are served with their feature gate.
use crate::server::{Server, refused};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use serde_json::{Value, json};
use setpoint_object::field_selector::FieldSelector;
use setpoint_registry::{
    AdmissionOptions, AlwaysDeny, Feature, Identity, ListOptions, RegistryBuilder, RuntimeConfig,
    Verb,
};
use setpoint_store::MemoryStore;
use std::sync::Arc;
use std::time::Duration;

const REQUESTS: &str =
    "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
const UID: &str = "1d5ec3b6-9f4e-4a8f-8d44-1f2f8f6c2a11";

async fn server(configure: impl FnOnce(RegistryBuilder) -> RegistryBuilder) -> Server {
    let gates = [Feature::PodCertificateRequest];
    let config = RuntimeConfig::with_gates("api/beta", gates).unwrap();
    let store = Arc::new(MemoryStore::default());
    let configure = |builder: RegistryBuilder| configure(builder.seed(7).runtime_config(config));
    Server::configured(store.clone(), store, configure).await
}

/// A certificate request in DER, in base64.
fn csr(key: &KeyPair) -> String {
    let params = CertificateParams::default();
    STANDARD.encode(params.serialize_request(key).unwrap().der())
}

fn request(name: &str, key: &KeyPair) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "signerName": "example.com/x", "podName": "p", "podUID": UID,
            "serviceAccountName": "a", "serviceAccountUID": "a-uid",
            "nodeName": "n1", "nodeUID": "n-uid", "stubPKCS10Request": csr(key),
        },
    })
}

/// A request with one member of its spec replaced.
fn with(key: &KeyPair, member: &str, value: Value) -> Value {
    let mut request = request("r", key);
    request["spec"][member] = value;
    request
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-11-20T07:00:00Z",
    })
}

#[tokio::test(start_paused = true)]
async fn request_names_a_pod_and_proves_that_it_has_the_key() {
    let server = server(|builder| builder).await;
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let long = "x".repeat(129);
    let mut broken = STANDARD.decode(csr(&key)).unwrap();
    *broken.last_mut().unwrap() ^= 1;
    let data = |name: &str| {
        let path = format!("../jwt/testdata/possession/{name}");
        STANDARD.encode(std::fs::read(path).unwrap())
    };
    for (member, value, why) in [
        (
            "signerName",
            json!("nope"),
            "spec.signerName: Invalid value: \"nope\": must be a fully qualified",
        ),
        (
            "podName",
            json!("P"),
            "spec.podName: Invalid value: \"P\": a lowercase RFC 1123 subdomain",
        ),
        ("podUID", json!(""), "spec.podUID: Invalid value: \"\": must not be empty"),
        ("podUID", json!(long), "spec.podUID: Too long: may not be more than 128 bytes"),
        (
            "serviceAccountUID",
            json!(""),
            "spec.serviceAccountUID: Invalid value: \"\": must not be empty",
        ),
        (
            "nodeName",
            json!("N"),
            "spec.nodeName: Invalid value: \"N\": a lowercase RFC 1123 subdomain",
        ),
        (
            "maxExpirationSeconds",
            json!(3599),
            "spec.maxExpirationSeconds: Invalid value: 3599: must be in the range [3600, 7862400]",
        ),
        (
            "unverifiedUserAnnotations",
            json!({"a": "b"}),
            "spec.unverifiedUserAnnotations: Invalid value: \"a\": must be a domain-prefixed key (such as \"acme.io/foo\")",
        ),
        (
            "stubPKCS10Request",
            json!(null),
            "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        ),
        ("pkixPublicKey", json!("YQ=="), "spec: Invalid value: exactly one of"),
        (
            "stubPKCS10Request",
            json!("YWJj"),
            "spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR",
        ),
        (
            "stubPKCS10Request",
            json!(STANDARD.encode(&broken)),
            "spec.stubPKCS10Request: Invalid value: invalid signature",
        ),
        (
            "stubPKCS10Request",
            json!(STANDARD.encode(vec![0; 10 * 1024 + 1])),
            "spec.stubPKCS10Request: Too long: may not be more than 10240 bytes",
        ),
    ] {
        let error = refused(server.create(REQUESTS, with(&key, member, value)).await);
        assert!(error.starts_with("422 ") && error.contains(why), "{error}");
    }
    let mut own = with(&key, "maxExpirationSeconds", json!(86_401));
    own["spec"]["signerName"] = "kubernetes.io/kube-apiserver-client-pod".into();
    let error = refused(server.create(REQUESTS, own).await);
    assert!(error.contains("86401: must be in the range [3600, 86400]"), "{error}");
    // The older form: a key and a signature of the pod's uid.
    let pair = |name: &str, key: &str, proof: &str| {
        let mut pair = with(&KeyPair::generate().unwrap(), "stubPKCS10Request", Value::Null);
        pair["metadata"]["name"] = name.into();
        pair["spec"]["pkixPublicKey"] = data(key).into();
        pair["spec"]["proofOfPossession"] = data(proof).into();
        pair
    };
    for name in ["ed25519", "p256", "p384", "p521", "rsa3072"] {
        let made = pair(name, &format!("{name}.der"), &format!("{name}.sig"));
        server.create(REQUESTS, made).await.unwrap();
    }
    for (key, proof, why) in [
        (
            "p256.der",
            "p384.sig",
            "spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature",
        ),
        (
            "p224.der",
            "p256.sig",
            "spec.pkixPublicKey: Invalid value: \"curve P-224\": elliptic public keys must use curve P256 or P384",
        ),
        ("p256.sig", "p256.sig", "must be a valid PKIX-serialized public key"),
        ("secp256k1.der", "p256.sig", "must be a valid PKIX-serialized public key"),
        ("x25519.der", "p256.sig", ": unknown public key type; supported types are Ed25519"),
    ] {
        let error = refused(server.create(REQUESTS, pair("x", key, proof)).await);
        assert!(error.contains(why), "{error}");
    }

    let made = server.create(REQUESTS, request("r", &key)).await.unwrap();
    assert_eq!(made["spec"]["maxExpirationSeconds"], 86_400);
    assert_eq!(made["spec"]["pkixPublicKey"], Value::Null);
    assert_eq!(made["status"], json!({}));
    let other = json!({"spec": {"podName": "q"}});
    let error = refused(server.patch(&format!("{REQUESTS}/r"), other).await);
    let start =
        r#"spec: Invalid value: {"SignerName":"example.com/x","PodName":"q","PodUID":"1d5ec3b6"#;
    assert!(error.contains(start) && error.ends_with(": field is immutable"), "{error}");
    server
        .patch(&format!("{REQUESTS}/r"), json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .unwrap();
    for (field, n) in
        [("spec.nodeName=n1", 6), ("spec.podName=q", 0), ("spec.signerName=example.com/x", 6)]
    {
        let fields = FieldSelector::parse(field).unwrap();
        let options = ListOptions { fields, ..ListOptions::default() };
        let list = server.registry.list(&server.request(Verb::List, REQUESTS), &options).await;
        assert_eq!(list.unwrap().items.len(), n, "{field}");
    }
    server.stop().await;
}

/// A certificate for a key, in PEM, that begins and ends so many seconds after seven o'clock.
fn certificate(key: &KeyPair, from: u64, to: u64) -> String {
    let at = |secs: u64| rcgen::date_time_ymd(2026, 11, 20) + Duration::from_secs(7 * 3600 + secs);
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (at(from), at(to));
    params.self_signed(key).unwrap().pem()
}

fn issued(chain: &str, times: [&str; 3]) -> Value {
    let [begin, end, refresh] = times.map(|time| format!("2026-11-20T{time}Z"));
    json!({"status": {
        "conditions": [condition("Issued")], "certificateChain": chain,
        "notBefore": begin, "notAfter": end, "beginRefreshAt": refresh,
    }})
}

#[tokio::test(start_paused = true)]
async fn status_is_set_once_and_agrees_with_the_certificate() {
    let server = server(|builder| builder).await;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    server.create(REQUESTS, request("r", &key)).await.unwrap();
    let path = format!("{REQUESTS}/r/status");
    let check = async |patch: Value, why: &str| {
        let error = refused(server.patch(&path, patch).await);
        assert!(error.starts_with("422 ") && error.contains(why), "{why}: {error}");
    };
    let status = |status: Value| json!({"status": status});
    check(
        status(json!({"certificateChain": "x"})),
        r#"status: Invalid value: status is immutable unless transitioning to "Issued", "Denied", or "Failed""#,
    )
    .await;
    check(
        status(json!({"conditions": [condition("Other")]})),
        r#"status.conditions.[0].type: Unsupported value: "Other": supported values: "Issued", "Denied", "Failed""#,
    )
    .await;
    let mut denied = condition("Denied");
    denied["status"] = "False".into();
    check(
        status(json!({"conditions": [denied]})),
        r#"status.conditions.[0].status: Unsupported value: "False": supported values: "True""#,
    )
    .await;
    check(
        status(json!({"conditions": [condition("Denied"), condition("Failed")]})),
        r#"status.conditions.[1].type: Invalid value: "Failed": There may be at most one condition with type "Issued", "Denied", or "Failed""#,
    )
    .await;
    check(
        status(json!({"conditions": [condition("Denied")], "certificateChain": "x"})),
        "status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest",
    )
    .await;
    let hour = ["07:00:00", "08:00:00", "07:30:00"];
    let good = certificate(&key, 0, 3600);
    let other = certificate(&KeyPair::generate().unwrap(), 0, 3600);
    let short = certificate(&key, 0, 3599);
    let late = certificate(&key, 301, 3901);
    let day = certificate(&key, 0, 86_401);
    for (chain, times, why) in [
        ("", hour, "issued certificate chain must contain at least one certificate"),
        (
            &*good.replace("CERTIFICATE", "THING"),
            hour,
            "issued certificate chain must consist entirely of CERTIFICATE PEM blocks",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n",
            hour,
            "leaf certificate does not parse as valid X.509",
        ),
        (&other, hour, "leaf certificate was not issued to the requested public key"),
        (
            &good,
            ["07:00:01", "08:00:00", "07:30:00"],
            r#"status.notBefore: Invalid value: "2026-11-20T07:00:01Z": must be set to the NotBefore time encoded in the leaf certificate"#,
        ),
        (
            &late,
            ["07:05:01", "08:05:01", "07:30:00"],
            r#"status.notBefore: Invalid value: "2026-11-20T07:05:01Z": must be set to within 5 minutes of kube-apiserver's current time"#,
        ),
        (
            &good,
            ["07:00:00", "08:00:01", "07:30:00"],
            "status.notAfter: Invalid value: \"2026-11-20T08:00:01Z\": must be set to the NotAfter",
        ),
        (
            &short,
            ["07:00:00", "07:59:59", "07:30:00"],
            "status.certificateChain: Invalid value: 3599000000000: leaf certificate lifetime must be >= 1 hour",
        ),
        (
            &good,
            ["07:00:00", "08:00:00", "07:09:59"],
            "status.beginRefreshAt: Invalid value: \"2026-11-20T07:09:59Z\": must be at least 10 minutes after status.notBefore",
        ),
        (
            &good,
            ["07:00:00", "08:00:00", "07:50:01"],
            "must be at least 10 minutes before status.notAfter",
        ),
        (
            &*format!("{good}{}", good.replace("CERTIFICATE", "THING")),
            hour,
            "must consist entirely of CERTFICATE PEM blocks",
        ),
    ] {
        check(issued(chain, times), why).await;
    }
    let mut long = issued(&day, hour);
    long["status"]["notAfter"] = "2026-11-21T07:00:01Z".into();
    check(
        long,
        "86401000000000: leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)",
    )
    .await;
    let mut without = issued(&good, hour);
    without["status"]["notAfter"] = Value::Null;
    check(without, "status.notAfter: Required value: must be present and consistent with the issued certificate").await;

    let done = server.patch(&path, issued(&good, hour)).await.unwrap();
    assert_eq!(done["status"]["certificateChain"], good);
    check(
        status(json!({"beginRefreshAt": "2026-11-20T07:40:00Z"})),
        "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed",
    )
    .await;
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn status_needs_the_right_to_sign() {
    let server = server(|builder| builder.authorizer(Arc::new(AlwaysDeny))).await;
    let key = KeyPair::generate().unwrap();
    server.create(REQUESTS, request("r", &key)).await.unwrap();
    let path = format!("{REQUESTS}/r/status");
    let denied = json!({"status": {"conditions": [condition("Denied")]}});
    assert_eq!(
        refused(server.patch(&path, denied).await),
        r#"422 PodCertificateRequest.certificates.k8s.io "r" is invalid: spec.signerName: Forbidden: User "alice" is not permitted to "sign" for signer "example.com/x""#
    );
    // Nothing changes.
    server.patch(&path, json!({"status": {}})).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn agents_request_certificates_of_pods_on_their_node() {
    let plugins = AdmissionOptions::default().enable("NodeRestriction").disable("ServiceAccount");
    let plugins = plugins.build().unwrap();
    let mut server = server(|builder| builder.admission_plugins(plugins)).await;
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let named = |name: &str| json!({"metadata": {"name": name}});
    let node = uid(&server.create("/api/v1/nodes", named("n1")).await.unwrap());
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = uid(&server.create(accounts, named("a")).await.unwrap());
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": node, "serviceAccountName": "a",
                "containers": [{"name": "c", "image": "i"}],
            },
        })
    };
    let here = uid(&server.create(pods, pod("p", "n1")).await.unwrap());
    let there = uid(&server.create(pods, pod("q", "n2")).await.unwrap());
    server.identity = Identity::new("system:node:n1", ["system:nodes"]);
    let key = KeyPair::generate().unwrap();
    let own = |changes: Value| {
        let mut request = request("r", &key);
        let spec = request["spec"].as_object_mut().unwrap();
        spec.insert("podUID".to_owned(), here.clone());
        spec.insert("nodeUID".to_owned(), node.clone());
        spec.insert("serviceAccountUID".to_owned(), account.clone());
        spec.extend(changes.as_object().unwrap().clone());
        request
    };
    let forbidden = r#"403 podcertificaterequests.certificates.k8s.io "r" is forbidden: "#;
    for (changes, why) in [
        (json!({"nodeName": "n2"}), format!(r#"{forbidden}PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1""#)),
        (json!({"nodeUID": "u"}), format!(r#"500 PodCertificateRequest for pod "default/p" names node UID "u", inconsistent with the running node ({node})"#)),
        (json!({"podName": "x"}), r#"500 while retrieving pod "default/x" named in the PodCertificateRequest: pod "x" not found"#.to_owned()),
        (json!({"podUID": "u"}), format!(r#"500 PodCertificateRequest for pod "default/p" contains pod UID ("u") which differs from running pod {here}"#)),
        (json!({"podName": "q", "podUID": there}), format!(r#"{forbidden}pod "default/q" is not running on node "n1" named in the PodCertificateRequest"#)),
        (json!({"serviceAccountName": "b"}), format!(r#"{forbidden}PodCertificateRequest for pod "default/p" contains serviceAccountName ("b") that differs from running pod ("a")"#)),
        (json!({"serviceAccountUID": "u"}), format!(r#"500 PodCertificateRequest for pod "default/p" names service account UID "u", which differs from the running service account ({account})"#)),
    ] {
        assert_eq!(refused(server.create(REQUESTS, own(changes)).await), why);
    }
    server.create(REQUESTS, own(json!({}))).await.unwrap();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let error = refused(server.patch(&format!("{REQUESTS}/r"), labels).await);
    assert_eq!(error, format!("{forbidden}unexpected operation UPDATE"));
    server.stop().await;
}
