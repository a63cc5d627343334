use super::*;
use crate::{ConnectionSlot, Limits, Received, Server};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use rustls::client::ClientConnection;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::server::Acceptor;
use rustls::{ClientConfig, SupportedCipherSuite, SupportedProtocolVersion};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

type Order = fn(&SupportedCipherSuite) -> bool;

/// The suite that a server picks for a client that sorts its suites by `order`.
fn negotiated(version: &'static SupportedProtocolVersion, order: Order) -> CipherSuite {
    let own = rcgen::generate_simple_self_signed(["here".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| !order(suite));
    let client = ClientConfig::builder_with_provider(Arc::new(provider));
    let client = client.with_protocol_versions(&[version]).unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()).into();
    let server = ServerConfig::builder_with_provider(Arc::new(crypto_provider()));
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let server = server.with_single_cert(vec![own.cert.der().clone()], key).unwrap();

    let name = ServerName::try_from("here").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let (mut acceptor, mut sent) = (Acceptor::default(), Vec::new());
    client.write_tls(&mut sent).unwrap();
    acceptor.read_tls(&mut &*sent).unwrap();
    let accepted = acceptor.accept().ok().flatten().unwrap();
    let local = Ipv4Addr::LOCALHOST.into();
    let configs = Configs::new(Arc::new(Arc::new(server)), Arc::default());
    let config = configs.for_client(&accepted.client_hello(), local);
    let server = accepted.into_connection(config).ok().unwrap();
    server.negotiated_cipher_suite().unwrap().suite()
}

#[test]
fn a_client_that_prefers_aes_gets_the_faster_one() {
    use CipherSuite as Suite;
    let aes_256: Order = |suite| name(suite.suite()).contains("_AES_256_");
    let cha_cha: Order = |suite| name(suite.suite()).contains("_CHACHA20_");
    let (tls13, tls12) = (&rustls::version::TLS13, &rustls::version::TLS12);
    let ecdsa_128 = Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let ecdsa_cha_cha = Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    assert_eq!(negotiated(tls13, aes_256), Suite::TLS13_AES_128_GCM_SHA256);
    assert_eq!(negotiated(tls12, aes_256), ecdsa_128);
    // A client without instructions for AES.
    assert_eq!(negotiated(tls13, cha_cha), Suite::TLS13_CHACHA20_POLY1305_SHA256);
    assert_eq!(negotiated(tls12, cha_cha), ecdsa_cha_cha);
}

/// A handshake with a self-signed certificate counted as authentication, so that anonymous peers
/// could fill the slots of authenticated connections.
#[tokio::test]
async fn a_client_certificate_alone_does_not_authenticate_a_connection() {
    let own = rcgen::generate_simple_self_signed(["here".to_owned()]).unwrap();
    let key = || PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()).into();
    let verifier = Arc::new(KeyHolder::new(Arc::new(crypto_provider()), Vec::new()));
    let server = ServerConfig::builder_with_provider(Arc::new(crypto_provider()));
    let server = server.with_safe_default_protocol_versions().unwrap();
    let server = server.with_client_cert_verifier(verifier);
    let server = server.with_single_cert(vec![own.cert.der().clone()], key()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(crypto_provider()));
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots);
    let client = client.with_client_auth_cert(vec![own.cert.der().clone()], key()).unwrap();

    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let limits = Limits { connections_max: 4, unauthenticated_max: Some(2), ..Limits::default() };
    let answer = async |request: Request<Received>| {
        let has_certificate = request.extensions().get::<PeerCertificate>().is_some();
        let slot = request.extensions().get::<ConnectionSlot>();
        let was_authenticated = slot.is_none();
        if let Some(slot) = slot {
            slot.authenticated();
        }
        let text = format!("certificate {has_certificate}, authenticated {was_authenticated}\n");
        Response::new(Full::new(Bytes::from(text)))
    };
    let mut tasks = JoinSet::new();
    let server = Server::new(socket, limits).tls(Arc::new(server));
    tasks.spawn(server.run(answer, CancellationToken::new()));
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("here").unwrap();
    let mut peer = TlsConnector::from(Arc::new(client)).connect(name, tcp).await.unwrap();
    for expected in
        ["certificate true, authenticated false", "certificate true, authenticated true"]
    {
        peer.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"e\n") {
            seen.push(peer.read_u8().await.unwrap());
        }
        let seen = String::from_utf8(seen).unwrap();
        assert!(seen.ends_with(&format!("{expected}\n")), "{seen}");
    }
}

/// It got an alert of TLS, which clients show as an unreadable answer.
#[tokio::test]
async fn http_without_tls_is_answered_with_a_text() {
    let own = rcgen::generate_simple_self_signed(["here".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()).into();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let failed = Arc::new(AtomicU64::new(0));
    let server = Server::new(socket, Limits::default()).tls(Arc::new(config));
    let server = server.count_failed_handshakes(failed.clone());
    let answer = async |_: Request<Received>| Response::new(Full::<Bytes>::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(server.run(answer, CancellationToken::new()));
    for line in ["GET / HTTP/1.1", "POST /api HTTP/1.1", "OPTIONS * HTTP/1.1"] {
        let mut peer = TcpStream::connect(address).await.unwrap();
        peer.write_all(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        let mut seen = String::new();
        peer.read_to_string(&mut seen).await.unwrap();
        let text = "Client sent an HTTP request to an HTTPS server.\n";
        assert_eq!(seen, format!("HTTP/1.0 400 Bad Request\r\n\r\n{text}"));
    }
    while failed.load(Ordering::Relaxed) < 3 {
        tokio::task::yield_now().await;
    }
}
