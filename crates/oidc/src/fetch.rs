//! Reads a document over HTTPS.

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use setpoint_object::time::Clock;
use setpoint_serve::tls::TlsClock;
use setpoint_webhook_client::Roots;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Timeout of reading one document, redirects included: 30 s, as kube-apiserver's.
pub const FETCH_MAX: Duration = Duration::from_secs(30);

/// Maximum number of redirects: ten, as Go's client.
const REDIRECTS_MAX: usize = 10;

/// How much of an error's answer is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 512;

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The CA is not PEM, or has no certificate.
    #[error("data does not contain any valid RSA or ECDSA certificates")]
    Authority,
    /// The system has no certificates of authorities.
    #[error("the system has no certificates of authorities")]
    NoRoots,
    /// TLS cannot be set up.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
    /// Not a URL with `https` and a host.
    #[error("unsupported URL {0:?}")]
    Url(String),
    /// The server cannot be reached.
    #[error("connect to {0}: {1}")]
    Connect(String, #[source] std::io::Error),
    /// The connection broke.
    #[error("read {0}: {1}")]
    Broken(String, String),
    /// The server answers with an error.
    #[error("{0}: {1}")]
    Status(StatusCode, String),
    /// The server redirects too often, or to nowhere.
    #[error("stopped after {REDIRECTS_MAX} redirects")]
    Redirects,
    /// No answer within [`FETCH_MAX`].
    #[error("no answer within {} s", FETCH_MAX.as_secs())]
    Timeout,
}

/// The authorities in a PEM text.
///
/// # Errors
///
/// There is none.
pub(crate) fn roots(pem: &str) -> Result<Roots, FetchError> {
    Roots::parse(pem.as_bytes()).map_err(|_| FetchError::Authority)
}

/// The authorities of the system.
fn system_roots() -> Result<RootCertStore, FetchError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(FetchError::NoRoots) } else { Ok(roots) }
}

/// Reads documents of servers that certain authorities have signed for.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher(Arc<ClientConfig>);

impl Fetcher {
    /// `authority`: PEM; `None`: those of the system. As in Go, a server's certificate may itself
    /// be the authority.
    ///
    /// # Errors
    ///
    /// The authority has no certificate, or TLS cannot be set up.
    pub(crate) fn new(authority: Option<&str>, clock: &Clock) -> Result<Self, FetchError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clock = clock.clone();
        let time = Arc::new(TlsClock(move || clock.now().0));
        let builder = ClientConfig::builder_with_details(provider.clone(), time)
            .with_safe_default_protocol_versions()
            .map_err(FetchError::Tls)?;
        let builder = match authority {
            None => builder.with_root_certificates(system_roots()?),
            Some(authority) => {
                let verifier = roots(authority)?.verifier(provider);
                let verifier = verifier
                    .map_err(|error| FetchError::Tls(rustls::Error::General(error.to_string())))?;
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Reads a document of at most so many bytes. Follows redirects. Dropping the future closes the
    /// connection.
    ///
    /// # Errors
    ///
    /// The server cannot be reached or verified, or answers with an error, or too late.
    pub(crate) async fn get(&self, url: &str, bytes_max: usize) -> Result<Bytes, FetchError> {
        match tokio::time::timeout(FETCH_MAX, self.follow(url, bytes_max)).await {
            Ok(read) => read,
            Err(_) => Err(FetchError::Timeout),
        }
    }

    async fn follow(&self, url: &str, bytes_max: usize) -> Result<Bytes, FetchError> {
        let mut target = url.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            match self.read(&target, bytes_max).await? {
                Answer::Document(document) => return Ok(document),
                Answer::Elsewhere(next) => target = next,
            }
        }
        Err(FetchError::Redirects)
    }

    async fn read(&self, url: &str, bytes_max: usize) -> Result<Answer, FetchError> {
        let unusable = || FetchError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| unusable())?;
        let host = uri.host().ok_or_else(unusable)?;
        if uri.scheme_str() != Some("https") {
            return Err(unusable());
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        let connect = |error| FetchError::Connect(format!("{host}:{port}"), error);
        let broken =
            |error: &dyn std::fmt::Display| FetchError::Broken(url.to_owned(), error.to_string());
        let name = ServerName::try_from(bare.clone()).map_err(|_| unusable())?;
        let tcp = TcpStream::connect((&*bare, port)).await.map_err(connect)?;
        let tls = TlsConnector::from(self.0.clone()).connect(name, tcp).await.map_err(connect)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await;
        let (mut sender, connection) = handshake.map_err(|error| broken(&error))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, authority)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "setpoint")
            .body(Empty::<Bytes>::new())
            .map_err(|_| unusable())?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
            let (head, body) = response.into_parts();
            if head.status.is_redirection()
                && let Some(next) = head.headers.get(header::LOCATION)
            {
                let next = next.to_str().map_err(|error| broken(&error))?;
                return Ok(Answer::Elsewhere(resolve(&uri, next)));
            }
            let body = Limited::new(body, bytes_max).collect().await;
            let body = body.map_err(|error| broken(&error))?.to_bytes();
            if head.status == StatusCode::OK {
                return Ok(Answer::Document(body));
            }
            let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
            Err(FetchError::Status(head.status, String::from_utf8_lossy(shown).into_owned()))
        };
        tokio::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // Cancel safe: the answer is not read further without the connection.
            ended = connection => match ended {
                // The rest of the answer has been received already.
                Ok(()) => answer.await,
                Err(error) => Err(broken(&error)),
            },
        }
    }
}

enum Answer {
    Document(Bytes),
    Elsewhere(String),
}

/// The target of a redirect: a URL, or a path at the same server.
fn resolve(from: &Uri, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let authority = from.authority().map_or("", |authority| authority.as_str());
    if let Some(rest) = location.strip_prefix("//") {
        return format!("https://{rest}");
    }
    if location.starts_with('/') {
        return format!("https://{authority}{location}");
    }
    let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("https://{authority}{folder}/{location}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_urls() {
        let from: Uri = "https://a.b:8/c/d".parse().unwrap();
        for (location, target) in [
            ("https://x/y", "https://x/y"),
            ("//x/y", "https://x/y"),
            ("/y", "https://a.b:8/y"),
            ("y", "https://a.b:8/c/y"),
        ] {
            assert_eq!(resolve(&from, location), target);
        }
    }

    #[tokio::test]
    async fn only_https_is_read() {
        let fetcher = Fetcher(Arc::new(
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth(),
        ));
        for url in ["http://a.b/c", "a", "https://", "ftp://x"] {
            let error = fetcher.get(url, 10).await.unwrap_err();
            assert!(matches!(error, FetchError::Url(_)), "{url}: {error}");
        }
        assert!(matches!(roots("no PEM"), Err(FetchError::Authority)));
    }
}
