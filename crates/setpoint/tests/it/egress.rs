//! Which way connections take, and proxies on the way.

use crate::admission_webhooks::{MAPS, PODS, VALIDATING, configuration, hook, map};
use crate::https::{Ca, User, tls_config, with_user};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::egress::{Dial, DialError, Dialer, EgressConfig, EgressSelector, EgressType, Socket};
use setpoint::object::time::Clock;
use setpoint::oidc::{AuthenticationConfig, Oidc, OidcOptions};
use setpoint::runtime::metrics::Metrics;
use setpoint::{ControlPlane, EgressMetrics};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Leads nowhere, and says so.
#[derive(Debug)]
struct Nowhere(EgressType);

impl Dial for Nowhere {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Socket, DialError>> {
        let failed = DialError(format!("{host}:{port} is not reached as {}", self.0));
        async { Err(failed) }.boxed()
    }
}

fn nowhere() -> EgressSelector {
    let way = |traffic| (traffic, Dialer::of(Arc::new(Nowhere(traffic))));
    EgressSelector::new(EgressType::ALL.map(way))
}

/// A config map that a webhook refuses because it is not reached.
async fn unreached(user: &User, config: Value, why: &str) {
    let webhook = hook("far", config, &["configmaps"]);
    user.create(VALIDATING, &configuration(VALIDATING, "far", &[webhook])).await;
    user.until("POST", MAPS, &map("a"), |answer| answer.shown().contains(why)).await;
    user.send("DELETE", &format!("{VALIDATING}/far"), &Value::Null).await.ok();
    let dry = format!("{MAPS}?dryRun=All");
    user.until("POST", &dry, &map("a"), |answer| answer.code < 300).await;
}

#[tokio::test]
async fn each_kind_of_traffic_takes_its_own_way() {
    let plane = ControlPlane::builder().egress(nowhere());
    with_user(plane, async |user, _| {
        let url = json!({"url": "https://hook.internal/x"});
        unreached(&user, url, "hook.internal:443 is not reached as controlplane").await;
        let external = json!({"type": "ExternalName", "externalName": "far.internal"});
        let services = "/api/v1/namespaces/default/services";
        let service = json!({"metadata": {"name": "hook"}, "spec": external});
        user.create(services, &service).await;
        let service = json!({"service": {"name": "hook", "namespace": "default"}});
        unreached(&user, service, "far.internal:443 is not reached as cluster").await;

        user.create("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
        let status = json!({"status": {
            "addresses": [{"type": "Hostname", "address": "node.internal"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        }});
        user.send("PATCH", "/api/v1/nodes/n/status", &status).await.ok();
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
        user.create(PODS, &json!({"metadata": {"name": "p"}, "spec": spec})).await;
        let status = json!({"status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}});
        user.send("PATCH", &format!("{PODS}/p/status"), &status).await.ok();
        for (path, why) in [
            (format!("{PODS}/p/log"), "node.internal:10250 is not reached as cluster"),
            (format!("{PODS}/p:80/proxy/"), "10.1.2.3:80 is not reached as cluster"),
        ] {
            let answer = user.send("GET", &path, &Value::Null).await;
            assert!(answer.shown().ends_with(why), "{path}: {answer:?}");
        }

        let port = json!({"port": 443});
        let spec = json!({"type": "ExternalName", "externalName": "api.internal", "ports": [port]});
        user.create(services, &json!({"metadata": {"name": "api"}, "spec": spec})).await;
        let spec = json!({
            "group": "far.io", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 1,
            "insecureSkipTLSVerify": true, "service": {"name": "api", "namespace": "default"},
        });
        let services = "/apis/apiregistration.k8s.io/v1/apiservices";
        user.create(services, &json!({"metadata": {"name": "v1.far.io"}, "spec": spec})).await;
        let why = "api.internal:443 is not reached as cluster";
        let path = format!("{services}/v1.far.io");
        user.until("GET", &path, &Value::Null, |answer| answer.body.to_string().contains(why))
            .await;
    })
    .await;
}

#[tokio::test]
async fn an_issuer_may_name_its_way() {
    let entry = |way: &str| {
        let issuer =
            json!({"url": "https://idp.internal", "audiences": ["a"], "egressSelectorType": way});
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{"issuer": issuer, "claimMappings": {"username": {"claim": "sub", "prefix": ""}}}],
        });
        AuthenticationConfig::parse(config.to_string().as_bytes()).unwrap()
    };
    let made = |way: &str, options: OidcOptions| {
        Oidc::new(&entry(way), options).map(drop).map_err(|error| error.to_string())
    };
    let options = || OidcOptions::new(Clock::wall());
    assert_eq!(
        made("cluster", options()).unwrap_err(),
        "jwt[0].issuer.egressSelectorType: Invalid value: \"cluster\": egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled"
    );
    assert_eq!(
        made("cluster", options().egress(EgressSelector::default())).unwrap_err(),
        "oidc: egress lookup required with egress selector type \"cluster\""
    );
    assert_eq!(
        made("controlplane", options().egress(EgressSelector::new([]))).unwrap_err(),
        "oidc: egress lookup for \"controlplane\" is not configured"
    );
    assert_eq!(made("", options().egress(EgressSelector::default())), Ok(()));
    assert_eq!(made("controlplane", options().egress(nowhere())), Ok(()));
}

/// A proxy that knows one name, over TLS, for clients with a certificate.
struct Proxy {
    address: SocketAddr,
    dialed: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    async fn start(ca: &Ca, clients: &Ca, (name, target): (&'static str, SocketAddr)) -> Self {
        let (certificate, key) = ca.sign_for(&["proxy.internal"]);
        let tls = TlsAcceptor::from(Arc::new(tls_config(&certificate, &key, Some(clients))));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dialed = Arc::new(Mutex::new(Vec::new()));
        let (mut tasks, noted) = (JoinSet::new(), dialed.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (tls, noted) = (tls.clone(), noted.clone());
                connections.spawn(async move {
                    let Ok(mut client) = tls.accept(tcp).await else { return };
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = client.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let wanted = head.split(' ').nth(1).unwrap().to_owned();
                    noted.lock().push(wanted.clone());
                    if wanted != name {
                        let refusal = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
                        return client.write_all(refusal).await.unwrap();
                    }
                    let mut server = TcpStream::connect(target).await.unwrap();
                    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                });
            }
        });
        Self { address, dialed, _tasks: tasks }
    }
}

#[tokio::test]
async fn webhooks_are_reached_through_a_proxy_that_knows_their_names() {
    let ca = Ca::new();
    let (certificate, key) = ca.sign_for(&["hook.internal", "other.internal"]);
    let refused = json!({"allowed": false, "status": {"message": "from afar"}});
    let hooks = ca
        .serve_raw_as(&certificate, &key, move |_, review| {
            crate::admission_webhooks::review(&review, refused.clone())
        })
        .await;
    let (of_proxy, of_clients) = (Ca::new(), Ca::new());
    let proxy = Proxy::start(&of_proxy, &of_clients, ("hook.internal:443", hooks.address)).await;

    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = of_clients.sign_for(&["client"]);
    let config = json!({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "controlplane", "connection": {
            "proxyProtocol": "HTTPConnect",
            "transport": {"tcp": {"url": format!("https://{}", proxy.address), "tlsConfig": {
                "caBundle": file("ca", &of_proxy.pem()), "clientCert": file("crt", &certificate),
                "clientKey": file("key", &key), "tlsServerName": "proxy.internal",
            }}},
        }}],
    });
    let metrics = Metrics::new();
    let observer = Arc::new(EgressMetrics::register(&metrics));
    let config = EgressConfig::parse(config.to_string().as_bytes()).unwrap();
    let selector = config.selector(&Clock::wall(), 1, observer).await.unwrap();
    with_user(ControlPlane::builder().egress(selector), async |user, _| {
        let client_config =
            |host: &str| json!({"url": format!("https://{host}/x"), "caBundle": hooks.bundle});
        unreached(&user, client_config("hook.internal"), "from afar").await;
        let why = "code 502: 502 Bad Gateway";
        unreached(&user, client_config("other.internal"), why).await;
    })
    .await;
    let mut dialed = proxy.dialed.lock().clone();
    dialed.sort();
    dialed.dedup();
    assert_eq!(dialed, ["hook.internal:443", "other.internal:443"]);
    let text = metrics.prometheus();
    for line in [
        r#"_dial_duration_seconds_count{protocol="http_connect",transport="tcp"} 1"#,
        r#"_dial_failure_count{protocol="http_connect",transport="tcp",stage="proxy"} "#,
    ] {
        assert!(text.contains(&format!("apiserver_egress_dialer{line}")), "{text}");
    }
}
