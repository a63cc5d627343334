//! Where a webhook is, and whom to trust: `clientConfig` of webhook configurations and definitions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Uri;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Default port of a service and of a URL without a port.
const HTTPS_PORT: u16 = 443;

/// Why a `clientConfig` cannot be used. API servers refuse to store such objects, so these are
/// objects of other servers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It has neither a URL nor a service.
    #[error("webhook configuration must have either service or URL")]
    NoEndpoint,
    /// The URL is not `https://host[:port][/path]`.
    #[error("unparsable webhook URL: {0:?}")]
    Url(String),
    /// The CA bundle contains no certificate, or is not PEM.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    CaBundle,
    /// The certificates of the system cannot be used.
    #[error("unable to load root certificates: {0}")]
    SystemRoots(String),
    /// TLS cannot be set up.
    #[error("set up TLS: {0}")]
    Tls(String),
}

/// A service that a webhook runs behind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// One of its ports: the number in `spec.ports`, not a target port.
    pub port: u16,
}

/// Shows the host name: `name.namespace.svc:port`.
impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, port } = self;
        write!(f, "{name}.{namespace}.svc:{port}")
    }
}

/// The server of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Host and port.
    Host(String, u16),
    /// A service, which a [`ServiceResolver`](crate::ServiceResolver) looks up.
    Service(Service),
}

/// Shows `host:port`, an IPv6 address in brackets.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
            Self::Service(service) => service.fmt(f),
        }
    }
}

/// Where a webhook is, and the CA that signs its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The server.
    pub endpoint: Endpoint,
    /// `https://host:port/path`, without a query.
    pub url: String,
    /// Certificates in PEM. Empty: those of the system.
    pub ca_bundle: Bytes,
}

impl ClientConfig {
    /// Reads a `clientConfig`: `url` or `service{namespace, name, path, port}`, and `caBundle`
    /// (base64 of PEM).
    ///
    /// # Errors
    ///
    /// It has no server, or the bundle is not base64.
    pub fn from_json(config: &Value) -> Result<Self, ConfigError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ca_bundle = text(&config["caBundle"]);
        let ca_bundle = STANDARD.decode(ca_bundle).map_err(|_| ConfigError::CaBundle)?.into();
        let service = &config["service"];
        if service.is_object() {
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            let service = Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: port.unwrap_or(HTTPS_PORT),
            };
            let url = format!("https://{service}{}", path(&text(&config["service"]["path"])));
            return Ok(Self { endpoint: Endpoint::Service(service), url, ca_bundle });
        }
        let Some(url) = config["url"].as_str().filter(|url| !url.is_empty()) else {
            return Err(ConfigError::NoEndpoint);
        };
        let wrong = || ConfigError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("https"));
        let authority = authority.ok_or_else(wrong)?;
        let host = authority.host();
        let endpoint = Endpoint::Host(
            host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            authority.port_u16().unwrap_or(HTTPS_PORT),
        );
        let host = match authority.port_u16() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Ok(Self { endpoint, url: format!("https://{host}{}", path(uri.path())), ca_bundle })
    }

    /// The URL of a call: the timeout, in whole seconds rounded up, is its query.
    pub(crate) fn url_with(&self, timeout: Duration) -> String {
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        format!("{}?timeout={seconds}s", self.url)
    }

    /// The name that the server's certificate must have.
    pub(crate) fn server_name(&self) -> String {
        match &self.endpoint {
            Endpoint::Host(host, _) => host.clone(),
            Endpoint::Service(Service { namespace, name, .. }) => format!("{name}.{namespace}.svc"),
        }
    }
}

/// A path with a slash at its start and none at its end.
fn path(path: &str) -> String {
    format!("/{}", path.trim_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn url(config: Value) -> Result<String, String> {
        let config = ClientConfig::from_json(&config).map_err(|error| error.to_string())?;
        Ok(config.url_with(Duration::from_millis(9_001)))
    }

    #[test]
    fn urls_are_those_of_the_api_server() {
        let service = |service: Value| json!({"service": service});
        assert_eq!(url(json!({"url": "https://a.b:1/c"})).unwrap(), "https://a.b:1/c?timeout=10s");
        assert_eq!(url(json!({"url": "https://a.b"})).unwrap(), "https://a.b/?timeout=10s");
        assert_eq!(
            url(json!({"url": "https://[::1]:4/"})).unwrap(),
            "https://[::1]:4/?timeout=10s"
        );
        let plain = service(json!({"namespace": "n", "name": "s"}));
        assert_eq!(url(plain).unwrap(), "https://s.n.svc:443/?timeout=10s");
        let full = service(json!({"namespace": "n", "name": "s", "port": 8443, "path": "/a/b"}));
        assert_eq!(url(full.clone()).unwrap(), "https://s.n.svc:8443/a/b?timeout=10s");
        assert_eq!(ClientConfig::from_json(&full).unwrap().server_name(), "s.n.svc");
        let host = ClientConfig::from_json(&json!({"url": "https://[::1]:4/"})).unwrap();
        assert_eq!(host.endpoint, Endpoint::Host("::1".to_owned(), 4));
    }

    #[test]
    fn other_configurations_are_errors() {
        for (config, error) in [
            (json!({}), "webhook configuration must have either service or URL"),
            (json!({"url": "http://a"}), "unparsable webhook URL: \"http://a\""),
            (json!({"url": "a b"}), "unparsable webhook URL: \"a b\""),
            (
                json!({"url": "https://a", "caBundle": "%"}),
                "unable to load root certificates: unable to parse bytes as PEM block",
            ),
        ] {
            assert_eq!(url(config).unwrap_err(), error);
        }
    }
}
