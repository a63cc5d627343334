//! TLS of servers.

mod key_holder;
mod policy;
mod sessions;

pub use key_holder::KeyHolder;
pub use policy::{TlsPolicy, TlsPolicyError};
pub use sessions::Sessions;

use crate::certificate::CurrentCertificate;
use crate::connection::Protocol;
use parking_lot::Mutex;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ClientHello, ServerConnection, VerifierBuilderError, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{CipherSuite, RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Why TLS cannot be set up. Exhaustive, so that servers can map it to their errors.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// rustls refused the settings.
    #[error("set up TLS")]
    Use(#[from] rustls::Error),
    /// The roots cannot verify clients.
    #[error("use the CA of client certificates")]
    Verifier(#[from] VerifierBuilderError),
}

/// The certificates of a connection's peer, in the extensions of its requests. The peer has the key
/// of its own. Whether an authority has signed it was checked if the server's configuration says
/// so. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate(Arc<Peer>);

#[derive(Debug, PartialEq, Eq)]
struct Peer {
    chain: Vec<CertificateDer<'static>>,
    digest: [u8; 32],
}

impl PeerCertificate {
    /// This chain, the peer's own certificate first.
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Self {
        let mut digest = Sha256::new();
        for certificate in &chain {
            digest.update((certificate.len() as u64).to_be_bytes());
            digest.update(certificate);
        }
        Self(Arc::new(Peer { digest: digest.finalize().into(), chain }))
    }

    /// The certificates, the peer's own first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.chain
    }

    /// A SHA-256 digest of the chain, made once for a connection.
    pub fn digest(&self) -> &[u8; 32] {
        &self.0.digest
    }
}

/// The algorithms of servers: ring's, with AES-128 before AES-256, which is slower.
///
/// The order of Go's servers, kube-apiserver among them. A server uses it for clients that prefer
/// AES, as [`Server::tls`](crate::Server::tls) says.
pub fn crypto_provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    // Stable: the others stay in ring's order.
    provider.cipher_suites.sort_by_key(|suite| !name(suite.suite()).contains("_AES_128_"));
    provider
}

/// The name of a cipher suite; empty for an unknown one.
fn name(suite: CipherSuite) -> &'static str {
    suite.as_str().unwrap_or_default()
}

/// The configuration of a server's TLS, asked for at each handshake: it may change while the server
/// runs. A constant one is its own source.
pub trait TlsSource: fmt::Debug + Send + Sync {
    /// The present one: the same `Arc` while it does not change.
    fn current(&self) -> Arc<ServerConfig>;
}

impl TlsSource for Arc<ServerConfig> {
    fn current(&self) -> Arc<ServerConfig> {
        self.clone()
    }
}

/// A configuration in two orders of cipher suites.
#[derive(Debug, Clone)]
pub(crate) struct Configs {
    source: Arc<dyn TlsSource>,
    made: Arc<Mutex<Orders>>,
    /// The certificates of some of the server's addresses.
    of_addresses: Arc<BTreeMap<IpAddr, CurrentCertificate>>,
}

#[derive(Debug, Clone)]
struct Orders {
    /// The client's order: the source's configuration.
    of_client: Arc<ServerConfig>,
    /// The server's order.
    of_server: Arc<ServerConfig>,
}

impl Orders {
    fn of(config: Arc<ServerConfig>) -> Self {
        let mut of_server = ServerConfig::clone(&config);
        of_server.ignore_client_order = true;
        Self { of_client: config, of_server: Arc::new(of_server) }
    }
}

impl Configs {
    pub(crate) fn new(
        source: Arc<dyn TlsSource>,
        of_addresses: Arc<BTreeMap<IpAddr, CurrentCertificate>>,
    ) -> Self {
        let made = Arc::new(Mutex::new(Orders::of(source.current())));
        Self { source, made, of_addresses }
    }

    fn orders(&self) -> Orders {
        let current = self.source.current();
        let mut made = self.made.lock();
        if !Arc::ptr_eq(&made.of_client, &current) {
            *made = Orders::of(current);
        }
        made.clone()
    }

    /// The one for a client of an address of this server. The server's order is for clients whose
    /// first suite is AES. A client without instructions for AES has ChaCha20 first, and gets it.
    pub(crate) fn for_client(&self, hello: &ClientHello<'_>, local: IpAddr) -> Arc<ServerConfig> {
        // Some clients send a reserved value first, so that servers ignore unknown ones.
        let first = hello.cipher_suites().iter().find_map(|suite| suite.as_str());
        let orders = self.orders();
        let config = match first.is_some_and(|first| first.contains("_AES_")) {
            true => orders.of_server,
            false => orders.of_client,
        };
        // A client that connects to an address sends no name.
        let of_address = self.of_addresses.get(&local.to_canonical());
        match of_address.filter(|_| hello.server_name().is_none()) {
            None => config,
            Some(certificate) => {
                let mut config = ServerConfig::clone(&config);
                config.cert_resolver = Arc::new(certificate.clone());
                Arc::new(config)
            }
        }
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, with the certificate that is current at each handshake.
/// With `roots`, a client certificate is required.
///
/// # Errors
///
/// The roots are not CA certificates.
pub fn server_config(
    current: CurrentCertificate,
    roots: Option<Vec<CertificateDer<'static>>>,
    clock: Arc<dyn TimeProvider>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(crypto_provider());
    let builder = ServerConfig::builder_with_details(provider.clone(), clock)
        .with_safe_default_protocol_versions()?;
    let builder = match roots {
        None => builder.with_no_client_auth(),
        Some(certificates) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates {
                roots.add(certificate)?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(current));
    config.session_storage = Arc::new(Sessions::default());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The result of a handshake: the protocol, and the peer.
pub(crate) fn agreed(session: &ServerConnection) -> (Protocol, Option<PeerCertificate>) {
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let peer = session.peer_certificates().filter(|chain| !chain.is_empty());
    let owned = |chain: &[CertificateDer<'_>]| {
        chain.iter().map(|certificate| certificate.clone().into_owned()).collect()
    };
    (protocol, peer.map(|chain| PeerCertificate::new(owned(chain))))
}

/// A clock for TLS: a function that returns the time since 1970.
pub struct TlsClock<F>(pub F);

impl<F: Fn() -> Duration + Send + Sync> TimeProvider for TlsClock<F> {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch((self.0)()))
    }
}

impl<F> fmt::Debug for TlsClock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClock")
    }
}

#[cfg(test)]
mod tests;
