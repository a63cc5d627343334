//! Reads a document over HTTPS.

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Empty;
use rustls::{ClientConfig, RootCertStore};
use setpoint_dial::Dialer;
use setpoint_object::time::Clock;
use setpoint_serve::tls::TlsClock;
use setpoint_webhook_client::{Address, Answer, Lane, Roots, Transport, TransportError};
use std::net::Ipv4Addr;
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
    /// The bearer token has characters that no header has.
    #[error("invalid header field value for \"Authorization\"")]
    Token,
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
    pub(crate) fn new(
        authority: Option<&str>,
        clock: &Clock,
        dialer: Dialer,
    ) -> Result<Self, FetchError> {
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
        Ok(Self(Arc::new(Transport::with_tls(builder.with_no_client_auth(), None, dialer))))
    }

    /// Reads a document of at most so many bytes. Follows redirects. Dropping the future ends the
    /// request.
    ///
    /// # Errors
    ///
    /// The server cannot be reached or verified, or answers with an error, too long or too late.
    pub(crate) async fn get(&self, url: &str, bytes_max: usize) -> Result<Bytes, FetchError> {
        let accept = Some("application/json");
        let is_read = |status: StatusCode| status == StatusCode::OK;
        self.ask(url, &Asked { bytes_max, accept, is_read, token: None }).await
    }

    /// Reads claims about a user of at most so many bytes, with a bearer token, if there is one.
    /// As Go does, a redirect takes the token along only to the same host and to those below it.
    /// As kube-apiserver, the codes from 200 to 226 are answers.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub(crate) async fn get_claims(
        &self,
        url: &str,
        token: &str,
        bytes_max: usize,
    ) -> Result<Bytes, FetchError> {
        let token = match token {
            "" => None,
            token => {
                let value = HeaderValue::try_from(format!("Bearer {token}"));
                let mut value = value.map_err(|_| FetchError::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let is_read = |status: StatusCode| (StatusCode::OK..=StatusCode::IM_USED).contains(&status);
        self.ask(url, &Asked { bytes_max, accept: None, is_read, token }).await
    }

    async fn ask(&self, url: &str, asked: &Asked) -> Result<Bytes, FetchError> {
        match tokio::time::timeout(FETCH_MAX, self.follow(url, asked)).await {
            Ok(read) => read,
            Err(_) => Err(FetchError::Timeout),
        }
    }

    async fn follow(&self, url: &str, asked: &Asked) -> Result<Bytes, FetchError> {
        let mut target = url.to_owned();
        let mut first_host = None;
        let mut token = asked.token.as_ref();
        for _ in 0..=REDIRECTS_MAX {
            let uri = https(&target)?;
            let host = uri.host().unwrap_or_default().to_ascii_lowercase();
            // Once it has left the host, the token stays behind.
            let home = first_host.get_or_insert_with(|| host.clone());
            token = token.filter(|_| is_same_or_below(&host, home));
            match self.read(&target, &uri, asked, token).await? {
                Found::Document(document) => return Ok(document),
                Found::Elsewhere(next) => target = next,
            }
        }
        Err(FetchError::Redirects)
    }

    async fn read(
        &self,
        url: &str,
        uri: &Uri,
        asked: &Asked,
        token: Option<&HeaderValue>,
    ) -> Result<Found, FetchError> {
        let mut request = Request::get(uri.clone()).header(header::USER_AGENT, "setpoint");
        if let Some(accept) = asked.accept {
            request = request.header(header::ACCEPT, accept);
        }
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request =
            request.body(Empty::<Bytes>::new()).map_err(|_| FetchError::Url(url.to_owned()))?;
        let response = self.0.send(&Address::of(uri), request, Lane::Own).await?;
        if response.status().is_redirection()
            && let Some(next) = response.headers().get(header::LOCATION)
        {
            let next = next.to_str().map_err(|_| FetchError::Location(url.to_owned()))?;
            return Ok(Found::Elsewhere(resolve(uri, next)));
        }
        let Answer { head, body } = match Answer::read(response, asked.bytes_max).await {
            Ok(answer) => answer,
            Err(setpoint_webhook_client::FetchError::Transport(error)) => return Err(error.into()),
            Err(_) => return Err(FetchError::TooLong(asked.bytes_max)),
        };
        if (asked.is_read)(head.status) {
            return Ok(Found::Document(body));
        }
        let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
        Err(FetchError::Status(head.status, String::from_utf8_lossy(shown).into_owned()))
    }
}

/// How a document is asked for.
struct Asked {
    /// Maximum size of the answer.
    bytes_max: usize,
    accept: Option<&'static str>,
    /// Which codes are answers.
    is_read: fn(StatusCode) -> bool,
    /// The value of `Authorization`.
    token: Option<HeaderValue>,
}

enum Found {
    Document(Bytes),
    Elsewhere(String),
}

/// # Errors
///
/// Not `https` with a host.
fn https(url: &str) -> Result<Uri, FetchError> {
    let uri = url.parse::<Uri>().ok();
    uri.filter(|uri| uri.host().is_some() && uri.scheme_str() == Some("https"))
        .ok_or_else(|| FetchError::Url(url.to_owned()))
}

/// Whether a host is `home` or a name below it, both in lower case.
fn is_same_or_below(host: &str, home: &str) -> bool {
    match host.strip_suffix(home) {
        Some("") => true,
        // Addresses have no names below them.
        Some(below) => below.ends_with('.') && home.parse::<Ipv4Addr>().is_err(),
        None => false,
    }
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

    #[test]
    fn a_token_stays_at_its_host_and_below() {
        for (host, is_shown) in [
            ("a.b", true),
            ("c.a.b", true),
            ("xa.b", false),
            ("b", false),
            ("a.b.c", false),
            ("", false),
        ] {
            assert_eq!(is_same_or_below(host, "a.b"), is_shown, "{host}");
        }
        assert!(is_same_or_below("127.0.0.1", "127.0.0.1"));
        assert!(!is_same_or_below("x.127.0.0.1", "127.0.0.1"));
    }

    fn fetcher() -> Fetcher {
        let tls =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
        Fetcher(Arc::new(Transport::with_tls(tls, None, Dialer::default())))
    }

    #[tokio::test]
    async fn only_https_is_read() {
        let fetcher = fetcher();
        for url in ["http://a.b/c", "a", "https://", "ftp://x"] {
            let error = fetcher.get(url, 10).await.unwrap_err();
            assert!(matches!(error, FetchError::Url(_)), "{url}: {error}");
        }
        assert!(matches!(roots("no PEM"), Err(FetchError::Authority)));
        let error = fetcher.get_claims("https://a.b", "a\nb", 10).await.unwrap_err();
        assert!(matches!(error, FetchError::Token), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_left_in_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/claims", listener.local_addr().unwrap());
        let started = tokio::time::Instant::now();
        fetcher().get_claims(&url, "t", 10).await.unwrap_err();
        assert!(started.elapsed() <= FETCH_MAX);
    }
}
