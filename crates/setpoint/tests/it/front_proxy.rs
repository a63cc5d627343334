//! Users in the headers of a front proxy, over TLS.

use crate::serve::{Served, local};
use http::{HeaderName, HeaderValue};
use kube_client::{Client, Config};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use serde_json::{Value, json};
use setpoint::apiserver::RequestHeaderNames;
use setpoint::{ControlPlane, Selection};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn ca() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn file(dir: &Path, name: &str, content: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// The credentials of a kubeconfig: a certificate with this name.
fn client(dir: &Path, name: &str, ca: &CertifiedIssuer<'_, KeyPair>) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, ca).unwrap().pem();
    let certificate = file(dir, &format!("{name}.crt"), &certificate);
    let key = file(dir, &format!("{name}.key"), &key.serialize_pem());
    format!("{{client-certificate: {}, client-key: {}}}", certificate.display(), key.display())
}

fn names() -> RequestHeaderNames {
    let list = |name: &str| vec![name.to_owned()];
    RequestHeaderNames {
        allowed_names: list("proxy"),
        username_headers: list("X-Remote-User"),
        uid_headers: list("X-Remote-Uid"),
        group_headers: list("X-Remote-Group"),
        extra_headers_prefix: list("X-Remote-Extra-"),
    }
}

/// The user of a request with headers of a proxy; `401` if there is none.
async fn who(mut config: Config) -> Value {
    for (name, value) in [
        ("x-remote-user", "jane"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "devs"),
        ("x-remote-extra-scopes", "read"),
    ] {
        let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
        config.headers.push(header);
    }
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())
        .unwrap();
    match Client::try_from(config).unwrap().request::<Value>(request).await {
        Ok(answer) => answer["status"]["userInfo"].clone(),
        Err(kube_client::Error::Api(status)) => json!(status.code),
        Err(error) => panic!("{error:?}"),
    }
}

/// What extension servers read about authentication.
async fn published(admin: &Client) -> Value {
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    for _ in 0..1000 {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        if let Ok(map) = admin.request::<Value>(request).await {
            return map["data"].clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no ConfigMap");
}

#[tokio::test]
async fn headers_name_users_only_behind_a_certificate_of_the_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let (users, proxies) = (ca(), ca());
    let options = local()
        .client_ca_file(file(dir.path(), "users.crt", &users.pem()))
        .front_proxy(file(dir.path(), "proxies.crt", &proxies.pem()), names());
    let served = Served::start(dir.path(), "s", ControlPlane::builder().build(), options).await;
    let ask = async |credentials: &str| who(served.config_of(credentials).await).await;
    let proxy = client(dir.path(), "proxy", &proxies);
    assert_eq!(
        ask(&proxy).await,
        json!({
            "username": "jane", "uid": "7", "groups": ["devs", "system:authenticated"],
            "extra": {"scopes": ["read"]},
        })
    );
    // A certificate of a user with the name of the proxy is a user.
    let bob = client(dir.path(), "bob", &users);
    assert_eq!(ask(&bob).await["username"], "bob");
    assert_eq!(ask(&client(dir.path(), "mallory", &proxies)).await, 401);
    assert_eq!(ask(&client(dir.path(), "proxy-of-nobody", &ca())).await, 401);
    assert_eq!(ask("{}").await, 401);

    let admin = Client::try_from(served.config().await).unwrap();
    let found = published(&admin).await;
    // The server's own proxy is there too.
    assert_eq!(found["requestheader-allowed-names"], r#"["proxy","front-proxy-client"]"#);
    assert_eq!(found["requestheader-username-headers"], r#"["X-Remote-User"]"#);
    assert_eq!(found["requestheader-uid-headers"], r#"["X-Remote-Uid"]"#);
    assert_eq!(found["requestheader-group-headers"], r#"["X-Remote-Group"]"#);
    assert_eq!(found["requestheader-extra-headers-prefix"], r#"["X-Remote-Extra-"]"#);
    let has = |key: &str, pem: String| found[key].as_str().unwrap().contains(pem.trim());
    assert!(has("requestheader-client-ca-file", proxies.pem()), "{found}");
    assert!(has("client-ca-file", users.pem()), "{found}");
    served.stop().await;
}

#[tokio::test]
async fn authorities_in_files_may_be_the_only_ones_and_others_follow_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let ([users, other], [proxies, other_proxies]) = ([ca(), ca()], [ca(), ca()]);
    let options = local()
        .client_ca_file(file(dir.path(), "users.crt", &users.pem()))
        .front_proxy(file(dir.path(), "proxies.crt", &proxies.pem()), names())
        .exclusive_authorities(true);
    let served = Served::start(dir.path(), "s", ControlPlane::builder().build(), options).await;
    let admin = Client::try_from(served.config().await).unwrap();
    let data = published(&admin).await;
    assert_eq!(data["requestheader-allowed-names"], r#"["proxy"]"#);
    let same = |key: &str, ca: &CertifiedIssuer<'_, KeyPair>| {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(data[key].as_str().unwrap()), lines(&ca.pem()), "{key}");
    };
    same("client-ca-file", &users);
    same("requestheader-client-ca-file", &proxies);

    file(dir.path(), "users.crt", &other.pem());
    file(dir.path(), "proxies.crt", &other_proxies.pem());
    let (bob, proxy) =
        (client(dir.path(), "bob", &other), client(dir.path(), "proxy", &other_proxies));
    let ask = async |credentials: &str| who(served.config_of(credentials).await).await;
    for (credentials, user) in [(&bob, "bob"), (&proxy, "jane")] {
        let known = tokio::time::timeout(Duration::from_secs(60), async {
            while ask(credentials).await["username"] != user {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        known.await.unwrap();
    }
    served.stop().await;
}

/// Its certificates are for this server.
#[tokio::test]
async fn an_authority_that_signs_requests_is_trusted_beside_the_only_ones() {
    let dir = tempfile::tempdir().unwrap();
    let users = ca();
    let controllers: Selection = "csrsigning".parse().unwrap();
    let plane = ControlPlane::builder().controllers(controllers);
    let options = local()
        .client_ca_file(file(dir.path(), "users.crt", &users.pem()))
        .exclusive_authorities(true);
    let served = Served::start(dir.path(), "s", plane.build(), options).await;
    let data = published(&Client::try_from(served.config().await).unwrap()).await;
    let trusted = data["client-ca-file"].as_str().unwrap();
    assert!(trusted.contains(users.pem().trim()));
    assert_eq!(trusted.matches("BEGIN CERTIFICATE").count(), 2);
    served.stop().await;
}

#[tokio::test]
async fn proxies_that_users_could_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let shared = file(dir.path(), "ca.crt", &ca().pem());
    let serve = async |names: RequestHeaderNames| {
        let options = local().client_ca_file(&shared).front_proxy(&shared, names);
        let served = ControlPlane::builder().build().serve(options).await;
        served.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(serve(names()).await, Ok(()));
    let error = serve(RequestHeaderNames { allowed_names: Vec::new(), ..names() }).await;
    assert!(error.unwrap_err().contains("contain overlapping certificates"));
    let empty = vec![" ".to_owned()];
    let error = serve(RequestHeaderNames { group_headers: empty, ..names() }).await.unwrap_err();
    assert_eq!(error, r#"empty value in "requestheader-group-headers""#);
    let other = vec!["X-Uid".to_owned()];
    let error = serve(RequestHeaderNames { uid_headers: other, ..names() }).await.unwrap_err();
    assert!(error.contains("without specifying the standard X-Remote-Uid header"), "{error}");
}
