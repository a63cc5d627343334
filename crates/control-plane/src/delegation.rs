//! An extension API server: a control plane whose users another API server knows, its *host*
//! (spec: extension §1.5).
//!
//! # Theory
//!
//! ```text
//! client ──▶ host ── front-proxy certificate, X-Remote-User ─▶ this server ──▶ own store, backends
//!             ▲                                                    │
//!             │   ConfigMap extension-apiserver-authentication     │
//!             └───── TokenReview, SubjectAccessReview ◀────────────┘
//! ```
//!
//! | a request with | has the user |
//! |---|---|
//! | a certificate of the host's front proxy | of its headers |
//! | a certificate of the host's clients | of the certificate |
//! | a bearer token | of the host's TokenReview, for [`DELEGATED_TTL`] |
//! | none of them | none: 401, except for health and version; [`ControlPlaneBuilder::anonymous`] lets the host decide |
//!
//! What a user may do is the host's decision, by a SubjectAccessReview; an answer counts for
//! [`DELEGATED_TTL`]. Health endpoints and `system:masters` are allowed without asking.
//!
//! The authorities are read again every [`RELOAD_PERIOD`]. Names of headers and of proxies count
//! from the start. Every answer of the host is bounded in bytes and time ([`Remote`]).

use crate::remote::{
    AccessWebhook, AccessWebhookOptions, Remote, RemoteError, RequestError, ReviewVersion,
    TokenWebhook,
};
use crate::serve::ServeOptions;
use crate::{ControlPlane, ControlPlaneBuilder};
use http::Method;
use kube_client::Config;
use serde_json::{Value, json};
use setpoint_apiserver::RequestHeaderNames;
use setpoint_object::error::chain;
use setpoint_registry::{AdmissionOptions, AdmissionOptionsError};
use setpoint_remote::ATTEMPT_MAX;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long an answer of the host counts: 10 s, as in Kubernetes' library for extension servers.
pub const DELEGATED_TTL: Duration = Duration::from_secs(10);
/// How often the authorities are read: every minute.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(60);
/// How long the ConfigMap may be missing: a host publishes it a moment after it has started.
const LOOKUP_MAX: Duration = Duration::from_secs(60);
/// The pause between two reads of a ConfigMap that is missing.
const LOOKUP_PAUSE: Duration = Duration::from_millis(500);

/// Where the host publishes how it authenticates.
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// The content type of server-side apply.
const APPLY: &str = "application/apply-patch+yaml";
/// Keys of the ConfigMap, which are the names of the files too.
const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";

/// Why another server's users cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// The ConfigMap cannot be read.
    #[error("read the ConfigMap kube-system/extension-apiserver-authentication of the host")]
    Read(#[source] RequestError),
    /// The host has no front proxy: it does not aggregate.
    #[error("the host publishes no requestheader-client-ca-file")]
    NoFrontProxy,
    /// A list of names is not JSON.
    #[error("read {key} of the host's ConfigMap")]
    Names {
        /// The key.
        key: &'static str,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// An authority cannot be stored.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The host cannot be called.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The object that registers a group version cannot be written.
    #[error("write the APIService {name}")]
    Register {
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: RequestError,
    },
    /// The admission plugins cannot be chosen.
    #[error(transparent)]
    Admission(#[from] AdmissionOptionsError),
}

/// A group version of an extension server, as its host lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Namespace and name of the Service that leads to the server, whose certificate is for
    /// `<name>.<namespace>.svc`.
    pub service: (String, String),
    /// The port of the Service.
    pub port: u16,
    /// The authority of the server's certificate, in PEM ([`Serving::ca`](crate::Serving::ca)).
    pub ca: String,
    /// `groupPriorityMinimum`: 1 to 20000.
    pub group_priority: u32,
    /// `versionPriority`: 1 to 1000.
    pub version_priority: u32,
}

/// The host of an extension server.
///
/// ```no_run
/// use setpoint_control_plane::ServeOptions;
/// use setpoint_control_plane::delegation::Delegation;
///
/// # use std::error::Error;
/// # use tokio_util::sync::CancellationToken;
/// # async fn run(stop: CancellationToken) -> Result<(), Box<dyn Error + Send + Sync>> {
/// let host = kube_client::Config::infer().await?;
/// let delegation = Delegation::open(host, "/var/lib/things").await?;
/// let plane = delegation.builder()?.build();
/// let options = ServeOptions::new(([0, 0, 0, 0], 6443)).tls_san("api.things.svc");
/// let serving = plane.serve(delegation.apply(options)).await?;
/// let (served, ()) = tokio::join!(serving.run(stop.clone()), delegation.follow(stop.clone()));
/// # Ok(served?)
/// # }
/// ```
#[derive(Debug)]
pub struct Delegation {
    host: Config,
    folder: PathBuf,
    names: RequestHeaderNames,
    has_client_ca: bool,
}

impl Delegation {
    /// Reads how the host authenticates, and keeps its authorities in a folder, which is made if it
    /// is missing. The host's user needs the Role `extension-apiserver-authentication-reader` in
    /// `kube-system` and the ClusterRole `system:auth-delegator`. Waits up to a minute until the
    /// host has published it.
    ///
    /// # Errors
    ///
    /// The ConfigMap cannot be read or lacks a front proxy, or the folder cannot be written.
    pub async fn open(host: Config, folder: impl Into<PathBuf>) -> Result<Self, DelegationError> {
        let folder = folder.into();
        let begun = tokio::time::Instant::now();
        let data = loop {
            let error = match read(&host).await {
                Ok(data) if data[PROXY_CA].is_string() => break data,
                Ok(_) => DelegationError::NoFrontProxy,
                Err(error) => error,
            };
            if begun.elapsed() >= LOOKUP_MAX {
                return Err(error);
            }
            tokio::time::sleep(LOOKUP_PAUSE).await;
        };
        let list = |key: &'static str| -> Result<Vec<String>, DelegationError> {
            let text = data[key].as_str().unwrap_or("[]");
            serde_json::from_str(text).map_err(|source| DelegationError::Names { key, source })
        };
        let names = RequestHeaderNames {
            allowed_names: list("requestheader-allowed-names")?,
            username_headers: list("requestheader-username-headers")?,
            uid_headers: list("requestheader-uid-headers")?,
            group_headers: list("requestheader-group-headers")?,
            extra_headers_prefix: list("requestheader-extra-headers-prefix")?,
        };
        let made = fs::create_dir_all(&folder);
        made.map_err(|source| DelegationError::Write { path: folder.clone(), source })?;
        let has_client_ca = data[CLIENT_CA].is_string();
        let new = Self { host, folder, names, has_client_ca };
        new.keep(&data)?;
        Ok(new)
    }

    /// A builder of a control plane that gets users and their rights from the host. It has no
    /// controllers, lists no APIServices, and lets objects be in any namespace: these are the
    /// host's. Call it within a tokio runtime.
    ///
    /// # Errors
    ///
    /// No client of the host can be made.
    pub fn builder(&self) -> Result<ControlPlaneBuilder, DelegationError> {
        let tokens = TokenWebhook::at(self.host.clone(), DELEGATED_TTL)?;
        let options = AccessWebhookOptions {
            authorized_ttl: DELEGATED_TTL,
            unauthorized_ttl: DELEGATED_TTL,
            fails_closed: false,
        };
        let access = AccessWebhook::at(self.host.clone(), ReviewVersion::V1, options)?;
        let plugins = AdmissionOptions::default().disable("NamespaceLifecycle").build()?;
        Ok(ControlPlane::builder()
            .controllers(false)
            .service_accounts(false)
            .api_services(false)
            .aggregation(false)
            .admission_plugins(plugins)
            .authenticator(Arc::new(tokens))
            .authorizer(Arc::new(access)))
    }

    /// Trusts the host's front proxy and the authorities of its clients.
    pub fn apply(&self, options: ServeOptions) -> ServeOptions {
        let options = options.front_proxy(self.file(PROXY_CA), self.names.clone());
        match self.has_client_ca {
            true => options.client_ca_file(self.file(CLIENT_CA)),
            false => options,
        }
    }

    /// Registers a group version at the host, or changes its registration. The host's user needs
    /// the right to patch APIServices.
    ///
    /// # Errors
    ///
    /// The host does not accept it.
    pub async fn register(&self, registration: &Registration) -> Result<(), DelegationError> {
        use base64::Engine as _;
        let Registration { group, version, service, port, ca, group_priority, version_priority } =
            registration;
        let name = format!("{version}.{group}");
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name},
            "spec": {
                "group": group, "version": version,
                "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
                "service": {"namespace": service.0, "name": service.1, "port": port},
                "caBundle": base64::engine::general_purpose::STANDARD.encode(ca),
            },
        });
        let path = format!(
            "/apis/apiregistration.k8s.io/v1/apiservices/{name}?fieldManager=setpoint-extension&force=true"
        );
        let host = Remote::at(self.host.clone(), &path)?;
        let content = Some((APPLY, object.to_string().into()));
        let written = host.send(Method::PATCH, content, ATTEMPT_MAX).await;
        written.map(drop).map_err(|source| DelegationError::Register { name, source })
    }

    /// Reads the authorities again until `stop`. What cannot be read is logged, and those in use
    /// stay. A server follows its files by itself.
    pub async fn follow(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Cancel safe: it only waits.
                () = tokio::time::sleep(RELOAD_PERIOD) => {}
            }
            let kept = match read(&self.host).await {
                Ok(data) if data[PROXY_CA].is_string() => self.keep(&data),
                Ok(_) => Err(DelegationError::NoFrontProxy),
                Err(error) => Err(error),
            };
            if let Err(error) = kept {
                let error = chain(&error);
                tracing::warn!(error, "the host's authorities of clients cannot be followed");
            }
        }
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.pem"))
    }

    /// Stores the authorities that have changed.
    fn keep(&self, data: &Value) -> Result<(), DelegationError> {
        for key in [PROXY_CA, CLIENT_CA] {
            let Some(pem) = data[key].as_str() else { continue };
            let path = self.file(key);
            replace(&path, pem).map_err(|source| DelegationError::Write { path, source })?;
        }
        Ok(())
    }
}

/// Replaces a file atomically, if it has another content. It has no secrets.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if setpoint_small_file::read(path, text.len()).is_ok_and(|known| known == text.as_bytes()) {
        return Ok(());
    }
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// The members of the ConfigMap.
async fn read(host: &Config) -> Result<Value, DelegationError> {
    let host = Remote::at(host.clone(), PATH)?;
    let answer = host.send(Method::GET, None, ATTEMPT_MAX).await.map_err(DelegationError::Read)?;
    let mut map = setpoint_remote::parse(answer).await.map_err(DelegationError::Read)?;
    Ok(map.get_mut("data").map(Value::take).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// A host whose URL has a path.
    async fn host() -> (TcpListener, Config) {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hosts/a/", socket.local_addr().unwrap());
        (socket, Config::new(url.parse().unwrap()))
    }

    /// Reads one request, and answers with `piece`, `n` times. Returns what it has read: all of it,
    /// because a connection that is closed before is reset.
    async fn answer(socket: &TcpListener, piece: &str, n: usize) -> String {
        let (mut connection, _) = socket.accept().await.unwrap();
        let mut read = Vec::new();
        while !is_whole(&String::from_utf8_lossy(&read)) {
            assert_ne!(connection.read_buf(&mut read).await.unwrap(), 0, "the request ends");
        }
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        connection.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..n {
            // The client may have had enough.
            if connection.write_all(piece.as_bytes()).await.is_err() {
                break;
            }
        }
        String::from_utf8(read).unwrap()
    }

    fn is_whole(request: &str) -> bool {
        let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        length.map_or(0, |length| length.parse().unwrap()) <= body.len()
    }

    #[tokio::test]
    async fn the_host_is_asked_below_its_path() {
        let (socket, config) = host().await;
        let map = json!({"data": {PROXY_CA: "pem"}}).to_string();
        let (request, data) = tokio::join!(answer(&socket, &map, 1), read(&config));
        assert_eq!(data.unwrap(), json!({PROXY_CA: "pem"}));
        assert!(request.starts_with(&format!("GET /hosts/a{PATH} HTTP/1.1\r\n")), "{request}");
    }

    #[tokio::test]
    async fn an_answer_that_is_no_config_map_has_no_members() {
        let (socket, config) = host().await;
        let (_, data) = tokio::join!(answer(&socket, "[1]", 1), read(&config));
        assert_eq!(data.unwrap(), Value::Null);
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_not_read_to_its_end() {
        let (socket, config) = host().await;
        let piece = "x".repeat(1 << 10);
        let (_, data) = tokio::join!(answer(&socket, &piece, usize::MAX), read(&config));
        let error = data.unwrap_err();
        assert_eq!(error.source().unwrap().to_string(), "the answer is larger than 1048576 bytes");
    }

    #[tokio::test]
    async fn a_group_version_is_applied_to_the_host() {
        let (socket, config) = host().await;
        let names = RequestHeaderNames::default();
        let folder = PathBuf::new();
        let delegation = Delegation { host: config, folder, names, has_client_ca: false };
        let registration = Registration {
            group: "things.example.com".to_owned(),
            version: "v1".to_owned(),
            service: ("things".to_owned(), "api".to_owned()),
            port: 443,
            ca: "pem".to_owned(),
            group_priority: 1000,
            version_priority: 15,
        };
        let (request, registered) =
            tokio::join!(answer(&socket, "{}", 1), delegation.register(&registration));
        registered.unwrap();
        let path = "/hosts/a/apis/apiregistration.k8s.io/v1/apiservices/v1.things.example.com";
        assert!(request.starts_with(&format!("PATCH {path}?fieldManager=")), "{request}");
        assert!(request.contains("content-type: application/apply-patch+yaml\r\n"), "{request}");
    }
}
