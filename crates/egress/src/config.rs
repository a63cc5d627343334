//! The file of `--egress-selector-config-file`: `EgressSelectorConfiguration` of
//! `apiserver.k8s.io`.

use serde::Deserialize;
use serde_json::json;
use setpoint_configuration::{DocumentError, Kind};
use setpoint_dial::EgressType;
use setpoint_object::field::{self, Error, Path};
use setpoint_small_file::SmallFileError;
use std::path::{Path as FilePath, PathBuf};

/// Maximum size of a configuration file in bytes: 1 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;

const KIND: Kind = Kind {
    name: "EgressSelectorConfiguration",
    versions: &["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"],
};
/// The former name of `controlplane`.
const FORMER_NAME: &str = "master";

/// Why a configuration is refused, in kube-apiserver's words where it has some.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EgressConfigError {
    /// There is no such file.
    #[error("egress-selector-config-file {} does not exist", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("failed to read egress selector config: unable to read egress selector configuration from {:?}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// More than [`FILE_BYTES_MAX`] bytes.
    #[error("failed to read egress selector config: more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// Not YAML or JSON, another kind, unknown members, or members of another type.
    #[error("failed to read egress selector config: {0}")]
    Document(#[from] DocumentError),
    /// Invalid values.
    #[error("failed to validate egress selector configuration: {}", field::aggregate(.0))]
    Invalid(Vec<Error>),
}

/// Which traffic takes which way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConfig {
    /// `None`: the file has no list.
    pub(crate) routes: Option<Vec<(EgressType, Route)>>,
}

/// A way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Direct,
    /// `CONNECT` to a proxy at a URL.
    HttpConnect(Proxy),
    /// `CONNECT` to a proxy behind a Unix socket.
    HttpConnectUnix(PathBuf),
    /// Tunnels to a proxy behind a Unix socket.
    Grpc(PathBuf),
}

/// A proxy at a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) url: String,
    pub(crate) tls: Option<Tls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Document {
    egress_selections: Option<Vec<Selection>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selection {
    name: String,
    connection: Connection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Connection {
    proxy_protocol: String,
    transport: Option<Transport>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Transport {
    tcp: Option<Tcp>,
    uds: Option<Uds>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Tcp {
    url: String,
    tls_config: Option<Tls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Uds {
    uds_name: PathBuf,
}

/// The files of TLS to a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Tls {
    /// Empty: the authorities of the system.
    pub(crate) ca_bundle: PathBuf,
    pub(crate) client_key: PathBuf,
    pub(crate) client_cert: PathBuf,
    /// Empty: the host of the URL.
    pub(crate) tls_server_name: String,
}

impl EgressConfig {
    /// Reads and checks a file. Blocks: it also looks whether the files exist that it names.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or as [`parse`](Self::parse).
    pub fn load(path: &FilePath) -> Result<Self, EgressConfigError> {
        let document = setpoint_small_file::read(path, FILE_BYTES_MAX);
        Self::parse(&document.map_err(|error| match error {
            SmallFileError::TooLong { .. } => EgressConfigError::TooLarge,
            error if error.is_missing() => EgressConfigError::Missing(path.to_owned()),
            SmallFileError::Read { path, source } => EgressConfigError::Read { path, source },
        })?)
    }

    /// Reads a document in YAML or JSON. Blocks, as [`load`](Self::load).
    ///
    /// # Errors
    ///
    /// It has another kind, unknown members, members of another type, or invalid values.
    pub fn parse(document: &[u8]) -> Result<Self, EgressConfigError> {
        let document: Document = KIND.parse(document)?;
        document.validate().map_err(EgressConfigError::Invalid)
    }
}

impl Document {
    fn validate(self) -> Result<EgressConfig, Vec<Error>> {
        let Some(selections) = self.egress_selections else {
            return Ok(EgressConfig { routes: None });
        };
        let path = Path::new("service").child("connection");
        let (mut errors, mut routes) = (Vec::new(), Vec::new());
        let mut names: Vec<Option<EgressType>> = Vec::new();
        for Selection { name, connection } in selections {
            // Also of a name that is refused below.
            let route = connection.validate(&path).map_err(|wrong| errors.extend(wrong));
            let name = match name == FORMER_NAME {
                true => EgressType::ControlPlane.name().to_owned(),
                false => name.to_lowercase(),
            };
            let traffic = EgressType::named(&name);
            names.push(traffic);
            if let (Some(traffic), Ok(route)) = (traffic, route) {
                routes.push((traffic, route));
            }
            if traffic.is_none() {
                let names = EgressType::ALL.map(EgressType::name);
                errors.push(Error::not_supported(path.clone(), &json!(name), &names));
            }
        }
        for (i, traffic) in names.iter().enumerate() {
            if let Some(traffic) = traffic
                && names[..i].contains(&Some(*traffic))
            {
                errors.push(Error::duplicate(path.index(i), &json!(traffic.name())));
            }
        }
        if errors.is_empty() { Ok(EgressConfig { routes: Some(routes) }) } else { Err(errors) }
    }
}

impl Connection {
    fn validate(self, path: &Path) -> Result<Route, Vec<Error>> {
        let Self { proxy_protocol, transport } = self;
        let protocols = ["Direct", "HTTPConnect", "GRPC"];
        match (&*proxy_protocol, transport) {
            ("Direct", None) => Ok(Route::Direct),
            ("Direct", Some(_)) => Err(vec![Error::invalid(
                path.child("transport"),
                &json!("direct"),
                "config must be absent for direct connect",
            )]),
            (protocol @ ("HTTPConnect" | "GRPC"), None) => {
                let detail = format!("transport must be set for {protocol}");
                Err(vec![Error::required(path.child("transport"), detail)])
            }
            ("HTTPConnect", Some(Transport { tcp: Some(tcp), uds: None })) => {
                tcp.validate(path).map(Route::HttpConnect)
            }
            ("HTTPConnect", Some(Transport { tcp: None, uds: Some(uds) })) => {
                uds.validate(path).map(Route::HttpConnectUnix)
            }
            ("HTTPConnect", Some(Transport { tcp: None, uds: None })) => {
                Err(vec![Error::required(path.child("tcp"), "One of TCP or UDS must be set")])
            }
            ("HTTPConnect", Some(Transport { tcp: Some(tcp), uds: Some(_) })) => {
                let detail = "TCP and UDS cannot both be set";
                Err(vec![Error::invalid(path.child("tcp"), &json!({"url": tcp.url}), detail)])
            }
            ("GRPC", Some(Transport { uds: Some(uds), .. })) => uds.validate(path).map(Route::Grpc),
            ("GRPC", Some(Transport { uds: None, .. })) => {
                Err(vec![Error::required(path.child("uds"), "UDS must be set with GRPC")])
            }
            (other, _) => {
                Err(vec![Error::not_supported(path.child("protocol"), &json!(other), &protocols)])
            }
        }
    }
}

impl Uds {
    fn validate(self, path: &Path) -> Result<PathBuf, Vec<Error>> {
        if self.uds_name.as_os_str().is_empty() {
            let detail = "must be present for UDS connections";
            return Err(vec![Error::invalid(path.child("udsName"), &json!("nil"), detail)]);
        }
        Ok(self.uds_name)
    }
}

impl Tcp {
    fn validate(self, path: &Path) -> Result<Proxy, Vec<Error>> {
        let Self { url, tls_config } = self;
        let at = path.child("tlsConfig");
        let errors = match (url.starts_with("https://"), url.starts_with("http://"), &tls_config) {
            (true, _, Some(tls)) => tls.validate(&at),
            (true, _, None) => {
                vec![Error::required(at, "TLSConfig must be present when using HTTPS")]
            }
            (_, true, Some(_)) => {
                let detail = "config must not be present when using HTTP";
                vec![Error::invalid(at, &json!("nil"), detail)]
            }
            (_, true, None) => Vec::new(),
            (false, false, _) => {
                let detail = "supported connection protocols are http:// and https://";
                vec![Error::invalid(path.child("url"), &json!(url), detail)]
            }
        };
        if errors.is_empty() { Ok(Proxy { url, tls: tls_config }) } else { Err(errors) }
    }
}

impl Tls {
    fn validate(&self, path: &Path) -> Vec<Error> {
        let mut errors = Vec::new();
        let rows = [
            ("caBundle", &self.ca_bundle, None, "TLS config ca bundle does not exist"),
            (
                "clientCert",
                &self.client_cert,
                Some("Using TLS requires clientCert"),
                "TLS client cert does not exist",
            ),
            (
                "clientKey",
                &self.client_key,
                // So it is in the original.
                Some("Using TLS requires requires clientKey"),
                "TLS client key does not exist",
            ),
        ];
        for (member, file, required, missing) in rows {
            let path = path.child(member);
            match (file.as_os_str().is_empty(), required) {
                (true, Some(required)) => {
                    errors.push(Error::invalid(path, &json!("nil"), required));
                }
                (true, None) => {}
                (false, _) if file.exists() => {}
                (false, _) => errors.push(Error::invalid(path, &json!(file), missing)),
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests;
