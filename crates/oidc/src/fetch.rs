//! Reads a document over HTTPS.

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::Empty;
use rustls::{ClientConfig, RootCertStore};
use setpoint_object::time::Clock;
use setpoint_serve::tls::TlsClock;
use setpoint_webhook_client::{Address, Answer, Lane, Roots, Transport, TransportError};
use std::sync::Arc;
use std::time::Duration;

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
    /// The server cannot be reached, or the connection broke.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The document has more bytes than this.
    #[error("the document is larger than {0} bytes")]
    TooLong(usize),
    /// The target of a redirect is not text.
    #[error("a redirect of {0} has no readable target")]
    Location(String),
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
pub(crate) struct Fetcher(Arc<Transport<Empty<Bytes>>>);

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
        Ok(Self(Arc::new(Transport::with_tls(builder.with_no_client_auth(), None))))
    }

    /// Reads a document of at most so many bytes. Follows redirects. Dropping the future ends the
    /// request.
    ///
    /// # Errors
    ///
    /// The server cannot be reached or verified, or answers with an error, too long or too late.
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
                Found::Document(document) => return Ok(document),
                Found::Elsewhere(next) => target = next,
            }
        }
        Err(FetchError::Redirects)
    }

    async fn read(&self, url: &str, bytes_max: usize) -> Result<Found, FetchError> {
        let unusable = || FetchError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| unusable())?;
        if uri.host().is_none() || uri.scheme_str() != Some("https") {
            return Err(unusable());
        }
        let address = Address::of(&uri);
        let request = Request::get(uri.clone())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "setpoint")
            .body(Empty::<Bytes>::new())
            .map_err(|_| unusable())?;
        let response = self.0.send(&address, request, Lane::Own).await?;
        if response.status().is_redirection()
            && let Some(next) = response.headers().get(header::LOCATION)
        {
            let next = next.to_str().map_err(|_| FetchError::Location(url.to_owned()))?;
            return Ok(Found::Elsewhere(resolve(&uri, next)));
        }
        let Answer { head, body } = match Answer::read(response, bytes_max).await {
            Ok(answer) => answer,
            Err(setpoint_webhook_client::FetchError::Transport(error)) => return Err(error.into()),
            Err(_) => return Err(FetchError::TooLong(bytes_max)),
        };
        if head.status == StatusCode::OK {
            return Ok(Found::Document(body));
        }
        let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
        Err(FetchError::Status(head.status, String::from_utf8_lossy(shown).into_owned()))
    }
}

enum Found {
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

    fn fetcher() -> Fetcher {
        let tls =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
        Fetcher(Arc::new(Transport::with_tls(tls, None)))
    }

    #[tokio::test]
    async fn only_https_is_read() {
        let fetcher = fetcher();
        for url in ["http://a.b/c", "a", "https://", "ftp://x"] {
            let error = fetcher.get(url, 10).await.unwrap_err();
            assert!(matches!(error, FetchError::Url(_)), "{url}: {error}");
        }
        assert!(matches!(roots("no PEM"), Err(FetchError::Authority)));
    }
}
