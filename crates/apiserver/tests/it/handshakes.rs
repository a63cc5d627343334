//! What a listener negotiates, and which certificate it presents.

use crate::harness::start;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, RootCertStore, SupportedProtocolVersion};
use setpoint_apiserver::Credentials;
use setpoint_apiserver::listen::{
    Certificate, CurrentCertificate, Listener, NamedCertificate, Tls, TlsPolicy,
};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// A certificate that is its own authority.
fn certificate(host: &str) -> (CurrentCertificate, CertificateDer<'static>) {
    let own = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let der = own.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let pair = Certificate::from_der(vec![der.clone()], key.into()).unwrap();
    (CurrentCertificate::new(pair), der)
}

/// A listener that runs until it is dropped.
struct Served {
    address: SocketAddr,
    roots: RootCertStore,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

impl Served {
    async fn start(tls: Tls, roots: &[CertificateDer<'static>]) -> Self {
        let (api, mut tasks, stop) = start(Credentials::none()).await;
        let listener = Listener::secure(api, SocketAddr::from(([127, 0, 0, 1], 0)), tls).await;
        let listener = listener.unwrap();
        let address = listener.address();
        tasks.spawn(listener.run(stop.clone()));
        let mut store = RootCertStore::empty();
        roots.iter().for_each(|root| store.add(root.clone()).unwrap());
        Self { address, roots: store, stop, _tasks: tasks }
    }

    /// A handshake by which a client asks for a host.
    async fn connect(
        &self,
        host: &str,
        version: &'static SupportedProtocolVersion,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider);
        let client = client.with_protocol_versions(&[version]).unwrap();
        let mut client = client.with_root_certificates(self.roots.clone()).with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let socket = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(host.to_owned()).unwrap();
        TlsConnector::from(Arc::new(client)).connect(name, socket).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test]
async fn policy_decides_about_versions_suites_and_protocols() {
    const AES_256: &str = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let (current, root) = certificate("here");
    let start = async |policy: TlsPolicy| {
        Served::start(Tls::new(current.clone()).policy(policy), std::slice::from_ref(&root)).await
    };
    let suite = |stream: &TlsStream<TcpStream>| {
        stream.get_ref().1.negotiated_cipher_suite().unwrap().suite()
    };
    let newest = start(TlsPolicy::default().min_version("VersionTLS13").unwrap()).await;
    assert!(newest.connect("here", &TLS12).await.is_err());
    assert!(newest.connect("here", &TLS13).await.is_ok());
    let served = start(TlsPolicy::default().cipher_suites([AES_256]).unwrap().http2(false)).await;
    let stream = served.connect("here", &TLS12).await.unwrap();
    assert_eq!(suite(&stream), CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let stream = served.connect("here", &TLS13).await.unwrap();
    assert_eq!(suite(&stream), CipherSuite::TLS13_AES_128_GCM_SHA256);
    let without = start(TlsPolicy::default().cipher_suites(["TLS_AES_128_GCM_SHA256"]).unwrap());
    assert!(without.await.connect("here", &TLS12).await.is_err());
}

#[tokio::test]
async fn clients_get_the_certificate_of_the_host_that_they_ask_for() {
    let (default, of_default) = certificate("localhost");
    let (named, of_named) = certificate("named.example.com");
    let (given, of_given) = certificate("*.example.org");
    let (address, of_address) = certificate("127.0.0.1");
    let tls = Tls::new(default)
        .named(NamedCertificate::new(named.clone(), [] as [&str; 0]))
        .named(NamedCertificate::new(given, ["*.example.org"]))
        .named(NamedCertificate::new(address, ["127.0.0.1"]));
    let (next, of_next) = certificate("named.example.com");
    let roots = [&of_default, &of_named, &of_given, &of_address, &of_next].map(Clone::clone);
    let served = Served::start(tls, &roots).await;
    let of = async |host: &str| {
        let stream = served.connect(host, &TLS13).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    };
    assert_eq!(of("localhost").await, of_default);
    assert_eq!(of("named.example.com").await, of_named);
    assert_eq!(of("a.example.org").await, of_given);
    assert_eq!(of("127.0.0.1").await, of_address);
    named.set(next.get());
    assert_eq!(of("named.example.com").await, of_next);
}
