//! Why a control plane is not served.

use super::{CertDirError, FrontProxyError, SigningKeyError, TokenFileError};
use crate::control_plane::ControlPlaneError;
use setpoint_apiserver::AuthorityError;
use setpoint_apiserver::listen::{CertificateError, ListenError, PkiError};
use setpoint_controllers::workload::certificates::AuthorityError as SigningAuthorityError;
use setpoint_registry::ServiceNetworks;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// Why a control plane cannot be served, or stopped being served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A listener cannot be created.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The certificate folder cannot be used.
    #[error(transparent)]
    CertDir(#[from] CertDirError),
    /// Certificates cannot be made.
    #[error("make certificates")]
    Pki(#[from] PkiError),
    /// The certificate files cannot be used.
    #[error("use the files of a certificate")]
    Certificate(#[from] CertificateError),
    /// The files of a certificate for certain hosts cannot be used.
    #[error("failed to load SNI cert and key")]
    NamedCertificate(#[source] CertificateError),
    /// A file of authorities cannot be used.
    #[error("use the certificates in {}", path.display())]
    AuthorityFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: CertificateError,
    },
    /// The authorities of client certificates cannot be used.
    #[error("use the CA of client certificates")]
    Authorities(#[source] AuthorityError),
    /// The front proxy cannot be trusted.
    #[error(transparent)]
    FrontProxy(#[from] FrontProxyError),
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The keys of service account tokens cannot be used.
    #[error(transparent)]
    SigningKey(#[from] SigningKeyError),
    /// The authority of certificate requests cannot be used.
    #[error("use the authority that signs certificate requests")]
    ClusterSigning(#[from] SigningAuthorityError),
    /// The kubeconfig cannot be rendered as YAML.
    #[error("write the kubeconfig as YAML")]
    KubeconfigText(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kubeconfig cannot be written.
    #[error("write {}", path.display())]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address for other machines is not of the family of the Service `kubernetes`, whose
    /// endpoint it is.
    #[error("service IP family \"{networks}\" must match public address family \"{address}\"")]
    Family {
        /// The address.
        address: IpAddr,
        /// The networks of Services.
        networks: ServiceNetworks,
    },
    /// The signal handlers cannot be installed.
    #[error("listen for signals")]
    Signals(#[source] io::Error),
    /// The control plane ended before it was stopped.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
}
