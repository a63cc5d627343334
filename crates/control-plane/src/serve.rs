//! Serves a control plane on sockets: listeners, certificates, kubeconfig, and the order of
//! shutdown.
//!
//! [`ControlPlane::serve`] binds everything and starts nothing; [`Serving::run`] serves until it is
//! stopped. Listeners then stop first and the control plane last, so that requests in progress
//! still get their responses.
//!
//! # Certificates
//!
//! | [`ServeOptions`] | the server presents | trusted clients |
//! |---|---|---|
//! | none of these | a certificate of a CA that is made for this run | the kubeconfig |
//! | [`cert_dir`](ServeOptions::cert_dir) | a certificate of the CA in that folder, which is made if it is missing | the same, also after restarts and at other servers with the folder |
//! | [`tls_files`](ServeOptions::tls_files) | the certificate in those files, reloaded when they change |  |
//! | [`named_tls_files`](ServeOptions::named_tls_files) | another certificate to clients that ask for certain hosts, reloaded too |  |
//! | [`root_ca_file`](ServeOptions::root_ca_file) | | pods and tokens of Secrets get the certificates in that file to verify the server with, instead of the CA or of what `tls_files` has |
//! | [`client_ca_file`](ServeOptions::client_ca_file) |  | also certificates of that CA: the common name is the user, organizations are groups; reloaded when it changes |
//! | [`front_proxy`](ServeOptions::front_proxy) |  | also users whom a proxy with a certificate of another CA names in headers; that CA is reloaded too |
//! | [`token_auth_file`](ServeOptions::token_auth_file) |  | also its tokens |
//! | [`cluster_signing_files`](ServeOptions::cluster_signing_files) |  | certificates for requests are signed by that CA, otherwise by that of `cert_dir` |
//! | [`service_account_signing_key_file`](ServeOptions::service_account_signing_key_file) |  | tokens of service accounts that the key signs; otherwise a key in `cert_dir`, or one for this run |
//!
//! The client certificate for servers of APIServices is the one of
//! [`ControlPlaneBuilder::webhook_identity`](crate::ControlPlaneBuilder::webhook_identity);
//! otherwise it is in the folder or made for this run, with a CA of its own, which
//! `extension-apiserver-authentication` shows.
//!
//! A certificate of setpoint's own CA is renewed in its last month, while the server runs.

mod authorities;
mod cert_dir;
mod certificates;
mod error;
mod front_proxy;
mod kubeconfig;
mod serving;
mod signing;
mod tokens;

pub use authorities::FrontProxyError;
pub(crate) use authorities::PublishedAuthentication;
pub use cert_dir::CertDirError;
pub use error::ServeError;
pub(crate) use front_proxy::add_front_proxy;
pub use serving::Serving;
pub use signing::SigningKeyError;
pub use tokens::TokenFileError;

use crate::control_plane::ControlPlane;
use crate::identity::Published;
use certificates::Certificates;
use setpoint_apiserver::listen::{
    CertificateFiles, LIMITS, Limits, Listener, PkiFiles, TlsPolicy, read_file,
};
use setpoint_apiserver::{Credentials, Identity, RequestHeaderNames};
use setpoint_controllers::workload::certificates::{CertificateAuthority, Signers};
use setpoint_object::cidr::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Where a control plane is served, which certificate it presents and which clients it trusts.
///
/// The clients may do everything, unless the control plane was built with
/// [RBAC](crate::ControlPlaneBuilder::rbac) or another
/// [authorizer](crate::ControlPlaneBuilder::authorizer).
#[derive(Debug, Clone)]
#[must_use]
pub struct ServeOptions {
    address: SocketAddr,
    advertise_address: Option<IpAddr>,
    peer_address: Option<(String, u16)>,
    host_name: Option<String>,
    insecure_port: Option<u16>,
    kubeconfig: Option<PathBuf>,
    cert_dir: Option<PathBuf>,
    tls_files: Option<CertificateFiles>,
    named_tls_files: Vec<(CertificateFiles, Vec<String>)>,
    tls_policy: TlsPolicy,
    client_ca_file: Option<PathBuf>,
    root_ca_file: Option<PathBuf>,
    front_proxy: Option<(PathBuf, RequestHeaderNames)>,
    is_exclusive: bool,
    signs_requests: bool,
    names: Vec<String>,
    token_auth_file: Option<PathBuf>,
    signing_key_file: Option<PathBuf>,
    verification_key_files: Vec<PathBuf>,
    cluster_signing: Option<CertificateFiles>,
    cluster_signing_duration: Option<Duration>,
    credentials: Credentials,
    limits: Limits,
    shutdown_delay: Duration,
    is_retried_at_end: bool,
}

impl ServeOptions {
    /// Serves HTTPS at this address; port 0 picks a free one.
    pub fn new(address: impl Into<SocketAddr>) -> Self {
        Self {
            address: address.into(),
            advertise_address: None,
            peer_address: None,
            host_name: None,
            insecure_port: None,
            kubeconfig: None,
            cert_dir: None,
            tls_files: None,
            named_tls_files: Vec::new(),
            tls_policy: TlsPolicy::default(),
            client_ca_file: None,
            root_ca_file: None,
            front_proxy: None,
            is_exclusive: false,
            signs_requests: false,
            names: Vec::new(),
            token_auth_file: None,
            signing_key_file: None,
            verification_key_files: Vec::new(),
            cluster_signing: None,
            cluster_signing_duration: None,
            credentials: Credentials::none(),
            limits: LIMITS,
            shutdown_delay: Duration::ZERO,
            is_retried_at_end: false,
        }
    }

    /// The address at which other machines reach the server: the endpoint of the Service
    /// `kubernetes`. A loopback address is not published there. Default: the address of the
    /// listener, or, if it listens on all of them, the address of this machine's default route.
    pub fn advertise_address(mut self, address: IpAddr) -> Self {
        self.advertise_address = Some(address);
        self
    }

    /// Where other servers of a shared store reach this one: a host and a port. Default: the
    /// advertised address.
    pub fn peer_address(mut self, host: impl Into<String>, port: u16) -> Self {
        self.peer_address = Some((host.into(), port));
        self
    }

    /// The name of the machine: the server's Lease is named after it. Default: after the address.
    pub fn host_name(mut self, name: impl Into<String>) -> Self {
        self.host_name = Some(name.into());
        self
    }

    /// Also serves on this port of 127.0.0.1, without TLS and without authentication; 0 picks a
    /// free one. Default: off.
    pub fn insecure_port(mut self, port: u16) -> Self {
        self.insecure_port = Some(port);
        self
    }

    /// Path to which the administrator's kubeconfig is written, readable by its owner only.
    /// Default: not written.
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(path.into());
        self
    }

    /// The folder of the CA, the administrator's credentials and the server's certificate. It is
    /// made if it is missing. Several servers may share it; one kubeconfig then works at all of
    /// them. Default: everything is made for this run.
    pub fn cert_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cert_dir = Some(folder.into());
        self
    }

    /// Files of the certificate that is presented instead of one of setpoint's own CA. They are
    /// reloaded while the server runs. Default: none.
    pub fn tls_files(mut self, files: CertificateFiles) -> Self {
        self.tls_files = Some(files);
        self
    }

    /// Files of a certificate for clients that ask for one of these hosts, as kube-apiserver's
    /// `--tls-sni-cert-key` ([`NamedCertificate`](setpoint_apiserver::listen::NamedCertificate)):
    /// without any, the hosts are those in the certificate. May be called several times; of two
    /// with the same host, the first one counts. They are reloaded while the server runs. Default:
    /// none.
    pub fn named_tls_files(
        mut self,
        files: CertificateFiles,
        hosts: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.named_tls_files.push((files, hosts.into_iter().map(Into::into).collect()));
        self
    }

    /// Versions of TLS, cipher suites, groups, and whether HTTP/2 is served. Default: TLS 1.2 and
    /// 1.3 with safe suites, and HTTP/2.
    pub fn tls_policy(mut self, policy: TlsPolicy) -> Self {
        self.tls_policy = policy;
        self
    }

    /// A PEM file of the authorities that clients verify the server with: for the ConfigMaps
    /// `kube-root-ca.crt`, Secrets with tokens and the kubeconfig. It is read once. Default: the CA
    /// of the server's certificate if it is made here, otherwise the certificates of
    /// [`tls_files`](Self::tls_files).
    pub fn root_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.root_ca_file = Some(path.into());
        self
    }

    /// A PEM file of additional authorities for client certificates: the common name is the user,
    /// each organization a group. It is reloaded while the server runs. Default: none.
    pub fn client_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca_file = Some(path.into());
        self
    }

    /// A front proxy that authenticates users and names them in headers: a PEM file of the
    /// authorities of its client certificates, which is reloaded while the server runs, and its
    /// headers. Default: none.
    pub fn front_proxy(mut self, ca_file: impl Into<PathBuf>, names: RequestHeaderNames) -> Self {
        self.front_proxy = Some((ca_file.into(), names));
        self
    }

    /// Whether files of authorities are all that is trusted, as by kube-apiserver. A
    /// [`client_ca_file`](Self::client_ca_file) then replaces the server's own CA, unless that
    /// signs certificate requests (`csrsigning`); the administrator has a token only. With a
    /// [`front_proxy`](Self::front_proxy), servers of APIServices get no client certificate.
    /// Default: no.
    pub fn exclusive_authorities(mut self, is_exclusive: bool) -> Self {
        self.is_exclusive = is_exclusive;
        self
    }

    fn trusts_own_ca(&self) -> bool {
        !self.is_exclusive || self.client_ca_file.is_none() || self.signs_requests
    }

    /// An additional name or address for the server's own certificate. May be called several times.
    /// Default: `localhost`, `kubernetes.default.svc` and its short forms, the addresses of the
    /// listener and of the Service `kubernetes`, and the [published](Self::advertise_address) one.
    pub fn tls_san(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// A token file in Kubernetes' format: lines of `token,user,uid,"group1,group2"`. Default:
    /// none.
    pub fn token_auth_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_auth_file = Some(path.into());
        self
    }

    /// A PEM file with the private key that service account tokens are signed with: RSA, P-256,
    /// P-384 or P-521. Default: a key in the [folder of certificates](Self::cert_dir), which is
    /// made if it is missing; without a folder, a key for this run. Keys that the control plane was
    /// built with have precedence over the folder's.
    pub fn service_account_signing_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.signing_key_file = Some(path.into());
        self
    }

    /// A PEM file of additional keys, public or private, whose service account tokens are accepted.
    /// May be called several times, as for the rotation of the signing key. Default: none.
    pub fn service_account_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.verification_key_files.push(path.into());
        self
    }

    /// The CA, its certificate and its private key in PEM, that signs CertificateSigningRequests.
    /// Read once. Default: the CA of the server's own certificate.
    pub fn cluster_signing_files(mut self, files: CertificateFiles) -> Self {
        self.cluster_signing = Some(files);
        self
    }

    /// Lifetime of signed certificates; requests may choose a shorter one. Default: a year.
    pub fn cluster_signing_duration(mut self, duration: Duration) -> Self {
        self.cluster_signing_duration = Some(duration);
        self
    }

    /// Additional credentials that the secure listener accepts. Default: none.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// The limits of the listeners' peers. Default: [`LIMITS`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long requests are served after the stop, as kube-apiserver's
    /// `--shutdown-delay-duration`: `/readyz` fails and the published address is withdrawn, so
    /// that clients go elsewhere. Default: not at all.
    pub fn shutdown_delay(mut self, delay: Duration) -> Self {
        self.shutdown_delay = delay;
        self
    }

    /// Whether new requests are answered with 429 after the delay until those in progress are done,
    /// as kube-apiserver's `--shutdown-send-retry-after`. Otherwise nobody listens then. Default:
    /// no.
    pub fn shutdown_send_retry_after(mut self, is_sent: bool) -> Self {
        self.is_retried_at_end = is_sent;
        self
    }
}

impl ControlPlane {
    /// Binds the listeners, reads or makes the certificates, and writes the kubeconfig. Serves
    /// nothing before [`Serving::run`].
    ///
    /// # Errors
    ///
    /// If an address cannot be bound, or a file cannot be read, used or written.
    pub async fn serve(mut self, mut options: ServeOptions) -> Result<Serving, ServeError> {
        options.signs_requests = options.cluster_signing.is_none() && self.signs_requests();
        let server = self.server().clone();
        let networks = server.registry().service_networks();
        let primary = networks.families().primary;
        let ip = options.advertise_address;
        let ip = ip.unwrap_or_else(|| reachable(options.address.ip(), primary));
        let Certificates { pki, ca, authorities, front_proxy, tls, freshness, named } =
            Certificates::open(&options, &[ip, networks.first()], server.registry().clock())?;
        let signers = signers(&options, pki.files())?;
        signing::open(&options, server.registry().service_account_tokens())?;
        let proxy_ca = front_proxy::open(
            &options,
            server.registry().clock(),
            &self.proxy,
            self.shared_parts.as_ref(),
        )?;
        let trusts_own_ca = options.trusts_own_ca();
        let mut credentials = options.credentials.token(pki.admin_token(), Identity::admin());
        if let Some(path) = &options.token_auth_file {
            credentials = tokens::read(path, credentials)?;
        }
        let secure = Listener::secure(server.clone(), options.address, tls).await?;
        let (url, port) = (url(secure.address()), secure.address().port());
        let mut secure = secure.credentials(credentials).limits(options.limits.clone());
        if let Some(front_proxy) = front_proxy {
            secure = secure.front_proxy(front_proxy);
        }
        let mut listeners = vec![secure];
        let mut insecure_url = None;
        if let Some(port) = options.insecure_port {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let insecure = Listener::insecure(server.clone(), address).await?;
            insecure_url = Some(format!("http://{}", insecure.address()));
            listeners.push(insecure.limits(options.limits.clone()));
        }
        let kubeconfig = kubeconfig::render(&url, &ca, &pki, trusts_own_ca)?;
        // Others are not published: the Service `kubernetes` gets no endpoint of them.
        if Family::of(ip) != primary && !ip.is_loopback() && !ip.is_unspecified() {
            return Err(ServeError::Family { address: ip, networks });
        }
        let address = SocketAddr::new(ip, port);
        let leaves = CancellationToken::new();
        let published = Published {
            host: options.host_name.clone(),
            address,
            peer_address: options.peer_address.clone(),
            authentication: authorities.published.clone(),
            proxy_ca,
            leaves: leaves.clone(),
        };
        self.publish(&ca, published);
        self.sign_with(signers);
        let serving = Serving {
            plane: self,
            listeners,
            freshness,
            named,
            authorities,
            leaves,
            shutdown_delay: options.shutdown_delay,
            is_retried_at_end: options.is_retried_at_end,
            url,
            port,
            insecure_url,
            kubeconfig,
            ca,
            token: pki.admin_token().to_owned(),
        };
        if let Some(path) = &options.kubeconfig {
            serving.write_kubeconfig(path)?;
        }
        Ok(serving)
    }
}

/// The authorities that sign certificate requests.
fn signers(options: &ServeOptions, own: &PkiFiles) -> Result<Signers, ServeError> {
    let authority = match &options.cluster_signing {
        Some(files) => {
            let (certificate, key) = (read_file(&files.certificate)?, read_file(&files.key)?);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            CertificateAuthority::from_pem(&text(&certificate), &text(&key))?
        }
        None => CertificateAuthority::from_pem(&own.ca_crt, &own.ca_key)?,
    };
    let signers = Signers::new(authority);
    Ok(match options.cluster_signing_duration {
        Some(duration) => signers.lifetime(duration),
        None => signers,
    })
}

/// The URL of an address, for clients on this machine.
fn url(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("https://localhost:{}", address.port())
    } else {
        format!("https://{address}")
    }
}

/// The address at which other machines reach a listener: for one on all addresses, that of the
/// default route. One on all addresses of IPv6 is reached over IPv4, too.
fn reachable(ip: IpAddr, primary: Family) -> IpAddr {
    if !ip.is_unspecified() {
        return ip;
    }
    // Connecting a datagram socket sends nothing: it only chooses the route to an address that is
    // reserved for documentation.
    let (local, remote): (IpAddr, IpAddr) = match (Family::of(ip), primary) {
        (Family::V6, Family::V6) => (ip, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
        _ => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
    };
    let route = || {
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect((remote, 9))?;
        socket.local_addr()
    };
    route().map_or(ip, |found| found.ip())
}
