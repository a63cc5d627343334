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
//! from the start.

use crate::remote::{
    AccessWebhook, AccessWebhookOptions, RemoteError, ReviewVersion, TokenWebhook,
};
use crate::serve::ServeOptions;
use crate::{ControlPlane, ControlPlaneBuilder};
use http::Request;
use kube_client::{Client, Config};
use serde_json::{Value, json};
use setpoint_apiserver::RequestHeaderNames;
use setpoint_registry::{AdmissionOptions, AdmissionOptionsError};
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
/// Keys of the ConfigMap, which are the names of the files too.
const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";

/// Why another server's users cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// The ConfigMap cannot be read.
    #[error("read the ConfigMap kube-system/extension-apiserver-authentication of the host")]
    Read(#[source] Box<kube_client::Error>),
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
        source: Box<kube_client::Error>,
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
        let failed = |source| DelegationError::Register { name: name.clone(), source };
        let path = format!(
            "/apis/apiregistration.k8s.io/v1/apiservices/{name}?fieldManager=setpoint-extension&force=true"
        );
        let request = Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .map_err(|error| failed(Box::new(kube_client::Error::HttpError(error))))?;
        let client =
            Client::try_from(self.host.clone()).map_err(|error| failed(Box::new(error)))?;
        let written = client.request::<Value>(request).await;
        written.map(drop).map_err(|error| failed(Box::new(error)))
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
                let error = &error as &dyn std::error::Error;
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
    if fs::read_to_string(path).is_ok_and(|known| known == text) {
        return Ok(());
    }
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// The members of the ConfigMap.
async fn read(host: &Config) -> Result<Value, DelegationError> {
    let failed = |error| DelegationError::Read(Box::new(error));
    let client = Client::try_from(host.clone()).map_err(failed)?;
    let request = Request::get(PATH)
        .body(Vec::new())
        .map_err(|error| failed(kube_client::Error::HttpError(error)))?;
    let mut map: Value = client.request(request).await.map_err(failed)?;
    Ok(map["data"].take())
}
