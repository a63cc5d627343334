use super::*;
use rustls::client::ClientConnection;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::server::Acceptor;
use rustls::{ClientConfig, SupportedCipherSuite, SupportedProtocolVersion};

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
    let config = Configs::new(Arc::new(server)).for_client(&accepted.client_hello());
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
