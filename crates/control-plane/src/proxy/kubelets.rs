//! How kubelets are reached: certificates, also from files that change, addresses and ports.

use bytes::Bytes;
use setpoint_apiserver::listen::{Certificate, CertificateError, CertificateFiles, read_file};
use setpoint_webhook_client::{ConfigError, Identity, Roots};
use std::path::PathBuf;

/// The port of kubelets whose nodes name none, as `--kubelet-port`.
const KUBELET_PORT: u16 = 10250;

/// How kubelets are reached, with kube-apiserver's defaults: the argument of
/// [`ControlPlaneBuilder::kubelets`](crate::ControlPlaneBuilder::kubelets).
#[derive(Debug, Clone)]
#[must_use]
pub struct KubeletOptions {
    pub(super) certificates: Certificates,
    pub(super) files: Option<Files>,
    pub(super) address_types: Vec<String>,
    pub(super) port: u16,
}

/// Without certificates; host names first, then internal names and addresses, then external ones.
impl Default for KubeletOptions {
    fn default() -> Self {
        let types = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
        Self {
            certificates: Certificates::default(),
            files: None,
            address_types: types.map(str::to_owned).into(),
            port: KUBELET_PORT,
        }
    }
}

impl KubeletOptions {
    /// The server's client certificate. Default: none.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.certificates.identity = Some(identity);
        self
    }

    /// The authorities of kubelets' certificates in PEM. Default: none, and the certificates are
    /// not checked.
    pub fn authority(mut self, pem: impl Into<Bytes>) -> Self {
        self.certificates.authority = Some(pem.into());
        self
    }

    /// Reads the client certificate and the authorities from files, in place of
    /// [`identity`](Self::identity) and [`authority`](Self::authority), and again while the
    /// control plane runs: `--kubelet-client-certificate` with `--kubelet-client-key`, and
    /// `--kubelet-certificate-authority`. Files that cannot be used later change nothing.
    ///
    /// # Errors
    ///
    /// A file cannot be read or used.
    pub fn files(
        mut self,
        identity: Option<CertificateFiles>,
        authority: Option<PathBuf>,
    ) -> Result<Self, KubeletFilesError> {
        let files = Files { identity, authority };
        self.certificates = files.read()?;
        let are_given = files.identity.is_some() || files.authority.is_some();
        self.files = are_given.then_some(files);
        Ok(self)
    }

    /// Which types of a node's addresses are used, the best first, as
    /// `--kubelet-preferred-address-types`.
    pub fn address_types(mut self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.address_types = types.into_iter().map(Into::into).collect();
        self
    }

    /// The port of kubelets whose nodes name none, as `--kubelet-port`. Default: 10250.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
}

/// Why files of certificates for kubelets cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeletFilesError {
    /// The client certificate.
    #[error("use the client certificate {}", path.display())]
    Identity {
        /// Its file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: CertificateError,
    },
    /// The authorities' file cannot be read.
    #[error("read the authorities of kubelets")]
    Read(#[source] CertificateError),
    /// The authorities.
    #[error("use the authorities in {}", path.display())]
    Authority {
        /// Their file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ConfigError,
    },
}

/// The certificates of connections to kubelets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Certificates {
    pub(super) identity: Option<Identity>,
    pub(super) authority: Option<Bytes>,
}

/// Where they come from.
#[derive(Debug, Clone)]
pub(super) struct Files {
    identity: Option<CertificateFiles>,
    authority: Option<PathBuf>,
}

impl Files {
    /// The files.
    pub(super) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let identity = self.identity.iter().flat_map(|files| [&files.certificate, &files.key]);
        identity.chain(&self.authority).cloned()
    }

    /// Reads and checks them. Blocks; the files are small.
    pub(super) fn read(&self) -> Result<Certificates, KubeletFilesError> {
        let identity = self.identity.as_ref().map(|files| -> Result<_, KubeletFilesError> {
            let wrong = |source| {
                let path = files.certificate.clone();
                KubeletFilesError::Identity { path, source }
            };
            let chain = read_file(&files.certificate).map_err(wrong)?;
            let key = read_file(&files.key).map_err(wrong)?;
            Certificate::from_pem(&chain, &key).map_err(wrong)?;
            Ok(Identity { certificates: chain.into(), key: key.into() })
        });
        let authority = self.authority.as_ref().map(|path| -> Result<_, KubeletFilesError> {
            let pem = read_file(path).map_err(KubeletFilesError::Read)?;
            Roots::parse(&pem)
                .map_err(|source| KubeletFilesError::Authority { path: path.clone(), source })?;
            Ok(Bytes::from(pem))
        });
        Ok(Certificates { identity: identity.transpose()?, authority: authority.transpose()? })
    }
}
