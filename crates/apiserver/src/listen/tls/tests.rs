//! What a client is told before it sends its certificate.

use super::*;
use crate::listen::Pki;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use rustls::client::{ClientConnection, ResolvesClientCert};
use rustls::pki_types::ServerName;
use rustls::server::ServerConnection;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use setpoint_object::time::Timestamp;

/// 2026-06-01.
const NOW: Timestamp = Timestamp::from_secs(1_780_272_000);

/// Keeps the names that the server tells, and has no certificate.
#[derive(Debug, Default)]
struct Listening(Mutex<Option<Vec<Vec<u8>>>>);

impl ResolvesClientCert for Listening {
    fn resolve(&self, hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock() = Some(hints.iter().map(|name| name.to_vec()).collect());
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The names that a client is told; `None` if it is not asked for a certificate.
fn told(pki: &Pki, source: &AuthoritiesSource) -> Option<Vec<Vec<u8>>> {
    let mut roots = RootCertStore::empty();
    roots.add(pki.ca_certificate().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let listening = Arc::new(Listening::default());
    let clock = Arc::new(TlsClock(Clock::starting_at(NOW)));
    let config = ClientConfig::builder_with_details(provider, clock)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(listening.clone());
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = ServerConnection::new(source.current()).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut sent = Vec::new();
        client.write_tls(&mut sent).unwrap();
        server.read_tls(&mut &*sent).unwrap();
        server.process_new_packets().unwrap();
        sent.clear();
        server.write_tls(&mut sent).unwrap();
        client.read_tls(&mut &*sent).unwrap();
        client.process_new_packets().unwrap();
    }
    listening.0.lock().take()
}

fn ca(name: &str) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

fn has(names: &[Vec<u8>], word: &str) -> bool {
    names.iter().any(|name| name.windows(word.len()).any(|part| part == word.as_bytes()))
}

#[test]
fn clients_are_told_the_names_of_the_present_authorities() {
    let pki = Pki::generate(NOW, &[]).unwrap();
    let users = ClientAuthorities::new(vec![ca("of-users")]).unwrap();
    let proxies = ClientAuthorities::new(vec![ca("of-proxies")]).unwrap();
    let tls = Tls::new(pki.current());
    let both = vec![users.clone(), proxies];
    let source = tls.clone().source(Clock::starting_at(NOW), both).unwrap();
    let names = told(&pki, &source).unwrap();
    assert_eq!(names.len(), 2);
    assert!(has(&names, "of-users") && has(&names, "of-proxies"));
    assert!(Arc::ptr_eq(&source.current(), &source.current()), "made once");

    users.set(vec![ca("of-others")]).unwrap();
    let names = told(&pki, &source).unwrap();
    assert!(has(&names, "of-others") && !has(&names, "of-users"));

    let source = tls.source(Clock::starting_at(NOW), Vec::new()).unwrap();
    assert_eq!(told(&pki, &source), None, "no certificate is requested");
}

#[test]
fn too_many_names_are_not_told() {
    let pki = Pki::generate(NOW, &[]).unwrap();
    let many = (0..40).map(|i| ca(&format!("{i}{}", "x".repeat(1000)))).collect();
    let authorities = vec![ClientAuthorities::new(many).unwrap()];
    let source = Tls::new(pki.current()).source(Clock::starting_at(NOW), authorities).unwrap();
    assert_eq!(told(&pki, &source), Some(Vec::new()));
}
