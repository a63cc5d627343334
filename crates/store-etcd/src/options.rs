//! Options of a connection to etcd.

use bytes::Bytes;
use setpoint_dial::Dialer;
use std::{fmt, path::PathBuf, time::Duration};

/// Options of a cluster.
///
/// Start with `EtcdOptions::new(["http://127.0.0.1:2379"])`, then set what differs from the
/// defaults.
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// Client addresses of members: `http://host:port`, `https://host:port`, or `host:port` (https
    /// if [`Self::tls`] is set). The first is preferred; the others are used when it cannot serve.
    pub endpoints: Vec<String>,
    /// How connections are made. Directly by default.
    pub dialer: Dialer,
    /// TLS settings for `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// Name and password for etcd's own authentication.
    pub user: Option<(String, String)>,
    /// Prefix of every key, which is removed from responses. Several stores may share one etcd with
    /// different namespaces; their revisions come from one counter. Empty by default.
    pub namespace: Bytes,
    /// Prefix of every key of the store, in whose place etcd has the namespace: with the root
    /// `/registry/` and the namespace `/other/`, `/registry/pods/a` is `/other/pods/a` in etcd. A
    /// read of another key finds nothing; a commit or a feed of one fails. Empty by default: the
    /// namespace is added to keys.
    pub root: Bytes,
    /// A key within the namespace that the user may read; it need not exist. Read when only a
    /// revision is needed. `/registry/health` by default, like kube-apiserver.
    pub probe_key: Bytes,
    /// Maximum time of one call with all its attempts. 10 s by default.
    pub request_timeout: Duration,
    /// Maximum time of a read on one member before another one is tried. 3 s by default.
    pub attempt_timeout: Duration,
    /// Maximum time to make a connection, TLS included, and also of each of the two requests that
    /// check whether its member can serve (up to eight times as long, while no member responds in
    /// time). 2 s by default.
    pub connect_timeout: Duration,
    /// Period of pings on the connection of a feed. etcd refuses less than 5 s. 10 s by default.
    pub keep_alive_period: Duration,
    /// Maximum time to wait for the response to a ping. 5 s by default.
    pub keep_alive_timeout: Duration,
}

impl EtcdOptions {
    /// The defaults, with these endpoints.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self { endpoints: endpoints.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".into()],
            dialer: Dialer::default(),
            tls: None,
            user: None,
            namespace: Bytes::new(),
            root: Bytes::new(),
            probe_key: Bytes::from_static(b"/registry/health"),
            request_timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(2),
            keep_alive_period: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(5),
        }
    }
}

/// Omits the password.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("tls", &self.tls)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("namespace", &self.namespace)
            .field("root", &self.root)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

/// TLS settings: trusted CAs and the client's certificate.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// Certificates of the CAs that sign the members' certificates.
    pub ca: Pem,
    /// The client's certificate chain and its private key, if members require one.
    pub client: Option<(Pem, Pem)>,
}

/// Certificates or a key in PEM.
#[derive(Clone)]
pub enum Pem {
    /// A file, read for each connection, so that a renewed certificate is used.
    File(PathBuf),
    /// The text itself.
    Text(Bytes),
}

/// Omits private keys.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text(..)"),
        }
    }
}
