//! TLS, and etcd's own authentication.

use crate::{patient, put, take_until};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use setpoint_store::*;
use setpoint_store_etcd::{
    EtcdError, EtcdOptions, EtcdStore, EtcdTls, Pem,
    testing::{self, Cluster, ClusterOptions},
};
use std::{fs, path::Path, time::Duration};
use tokio::time::Instant;

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate for loopback and its key.
fn write_pair(ca: &CertifiedIssuer<'static, KeyPair>, folder: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let mut params =
        CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.signed_by(&key, ca).unwrap();
    fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn tls_with_client_certificates() {
    if !testing::available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let ca = authority("etcd CA");
    fs::write(path("ca.pem"), ca.pem()).unwrap();
    for name in ["server", "client"] {
        write_pair(&ca, folder.path(), name);
    }
    let mut server = ClusterOptions::default();
    server.tls = Some((path("server.pem"), path("server-key.pem"), path("ca.pem")));
    let mut cluster = Cluster::start_with(server).await;
    let file = |name: &str| Pem::File(path(name));
    let options = |tls: Option<EtcdTls>| {
        let mut options = EtcdOptions::new(cluster.endpoints());
        options.tls = tls;
        options.request_timeout = Duration::from_secs(2);
        options
    };
    let client = Some((file("client.pem"), file("client-key.pem")));
    let right = EtcdTls { ca: file("ca.pem"), client: client.clone() };

    let connected = EtcdStore::connect(options(None)).await;
    assert!(matches!(connected, Err(EtcdError::NoCa { .. })), "{connected:?}");
    let without_certificate = EtcdTls { ca: file("ca.pem"), client: None };
    let connected = EtcdStore::connect(options(Some(without_certificate))).await;
    assert!(matches!(connected, Err(EtcdError::Unreachable { .. })), "{connected:?}");
    let other = Pem::Text(authority("another CA").pem().into());
    let of_another = EtcdTls { ca: other, client };
    let started = Instant::now();
    loop {
        let connected = EtcdStore::connect(options(Some(of_another.clone()))).await;
        let Err(EtcdError::Unreachable { problem, .. }) = connected else {
            panic!("{connected:?}")
        };
        if problem.contains("certificate") {
            break;
        }
        // A busy machine may not have checked the certificate in time.
        assert!(started.elapsed() < testing::PATIENCE, "{problem}");
    }
    let missing = EtcdTls { ca: file("no.pem"), client: None };
    let connected = EtcdStore::connect(options(Some(missing))).await;
    assert!(matches!(connected, Err(EtcdError::File { .. })), "{connected:?}");
    let endless = EtcdTls { ca: Pem::File("/dev/zero".into()), client: None };
    let connected = EtcdStore::connect(options(Some(endless))).await;
    assert!(matches!(connected, Err(EtcdError::LongFile { .. })), "{connected:?}");
    let empty = EtcdTls { ca: Pem::Text("nothing".into()), client: None };
    let connected = EtcdStore::connect(options(Some(empty))).await;
    assert!(matches!(connected, Err(EtcdError::Certificate { .. })), "{connected:?}");

    let mut options = patient(cluster.endpoints());
    options.tls = Some(right);
    let store = EtcdStore::connect(options).await.unwrap();
    let start = store.revision().await.unwrap();
    let mut feed = store.changes("/".into(), start).await.unwrap();
    let first = put(&store, "/a", "1").await;
    assert_eq!(take_until(&mut *feed, first).await.len(), 1);
    // A new connection does a new handshake.
    cluster.kill(0);
    cluster.restart(0);
    cluster.wait_healthy().await;
    let second = put(&store, "/a", "2").await;
    assert_eq!(take_until(&mut *feed, second).await.len(), 1);
    let status = store.status().await;
    assert!(status.is_serving() && status.leader().is_some(), "{status:?}");
}

#[tokio::test]
async fn users_with_passwords() {
    if !testing::available() {
        return;
    }
    let mut cluster = Cluster::start(1).await;
    if cluster.etcdctl().is_none() {
        return;
    }
    let etcdctl = |args: &str| {
        let output = cluster.etcdctl().unwrap().args(args.split(' ')).output().unwrap();
        assert!(output.status.success(), "{args}: {output:?}");
    };
    etcdctl("user add root:secret");
    etcdctl("user grant-role root root");
    etcdctl("role add app");
    etcdctl("role grant-permission app --prefix=true readwrite app");
    etcdctl("user add app:password");
    etcdctl("user grant-role app app");
    etcdctl("auth enable");
    let options = |user: Option<(&str, &str)>| {
        let mut options = patient(cluster.endpoints());
        options.user = user.map(|(name, password)| (name.into(), password.into()));
        options.namespace = "app/".into();
        options
    };
    for wrong in [None, Some(("root", "wrong")), Some(("nobody", "secret"))] {
        let connected = EtcdStore::connect(options(wrong)).await;
        assert!(matches!(connected, Err(EtcdError::Refused { .. })), "{connected:?}");
    }
    // A user with only the permissions that the namespace needs.
    let app = EtcdStore::connect(options(Some(("app", "password")))).await.unwrap();
    let before = put(&app, "/a", "1").await;
    // It follows its own keys. Old members send progress too early, so their feeds watch all keys
    // instead.
    let state = app.status().await.members[0].state.clone();
    let is_old = state.is_ok_and(|state| state.version == "3.4.23");
    let mut own = app.changes("/".into(), before).await.unwrap();
    let after = put(&app, "/b", "1").await;
    if is_old {
        let refused = own.next().await;
        assert!(
            matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("all keys")),
            "{refused:?}"
        );
    } else {
        assert_eq!(take_until(&mut *own, after).await.len(), 1);
    }
    let root = EtcdStore::connect(options(Some(("root", "secret")))).await.unwrap();
    let start = root.revision().await.unwrap();
    let mut feed = root.changes("/".into(), start).await.unwrap();
    let first = put(&app, "/a", "2").await;
    assert_eq!(take_until(&mut *feed, first).await.len(), 1);
    // A restarted member has forgotten every token.
    cluster.kill(0);
    cluster.restart(0);
    cluster.wait_healthy().await;
    let second = put(&app, "/a", "3").await;
    assert_eq!(root.get(b"/a", At::Latest).await.unwrap().value.unwrap().modified, second);
    assert_eq!(take_until(&mut *feed, second).await.len(), 1);
    let mut elsewhere = patient(cluster.endpoints());
    elsewhere.user = Some(("app".into(), "password".into()));
    let connected = EtcdStore::connect(elsewhere).await;
    assert!(matches!(connected, Err(EtcdError::Refused { .. })), "{connected:?}");
}
