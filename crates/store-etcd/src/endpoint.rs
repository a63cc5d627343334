//! The address of a member.

use crate::{error::EtcdError, options::EtcdOptions};
use std::sync::Arc;

/// etcd's default port for clients.
const PORT: u16 = 2379;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// As configured.
    pub(crate) text: String,
    pub(crate) is_tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `host:port`.
    pub(crate) authority: String,
}

impl Endpoint {
    /// Parses all endpoints.
    ///
    /// # Errors
    ///
    /// There are none, one is invalid, or one uses TLS without a CA.
    pub(crate) fn all(options: &EtcdOptions) -> Result<Vec<Arc<Self>>, EtcdError> {
        if options.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let read = |text: &String| {
            let endpoint = Self::parse(text.trim(), options.tls.is_some())
                .ok_or_else(|| EtcdError::Endpoint { endpoint: text.clone() })?;
            if endpoint.is_tls && options.tls.is_none() {
                return Err(EtcdError::NoCa { endpoint: text.clone() });
            }
            Ok(Arc::new(endpoint))
        };
        options.endpoints.iter().map(read).collect()
    }

    fn parse(text: &str, tls_by_default: bool) -> Option<Self> {
        let (is_tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return None,
            None => (tls_by_default, text),
        };
        let authority: http::uri::Authority = rest.trim_end_matches('/').parse().ok()?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || authority.as_str().contains('@') {
            return None;
        }
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" => PORT,
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        let authority = format!("{}:{port}", authority.host());
        Some(Self { text: text.to_owned(), is_tls, host, port, authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_by_etcds_tools() {
        let read = |text| Endpoint::parse(text, false).map(|e| (e.is_tls, e.host, e.port));
        assert_eq!(read("http://a:1"), Some((false, "a".into(), 1)));
        assert_eq!(read("https://a.example/"), Some((true, "a.example".into(), 2379)));
        assert_eq!(read("127.0.0.1:2379"), Some((false, "127.0.0.1".into(), 2379)));
        assert_eq!(read("https://[::1]:2"), Some((true, "::1".into(), 2)));
        for wrong in ["", "unix://x", "http://", "http://a:b", "http://u:p@a:1", "http://a:1/path"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tls_needs_a_ca() {
        let options = EtcdOptions::new(["https://a:1"]);
        assert!(matches!(Endpoint::all(&options), Err(EtcdError::NoCa { .. })));
        assert!(matches!(Endpoint::all(&EtcdOptions::new([""; 0])), Err(EtcdError::NoEndpoint)));
    }
}
