//! Connections to pods, Services, nodes and kubelets: the [`Connector`] of a control plane.
//!
//! | peer | client certificate | the peer's certificate |
//! |---|---|---|
//! | a kubelet | that of the [`KubeletOptions`] | checked, if there is an authority |
//! | a kubelet, with `insecureSkipTLSVerifyBackend` | the same | not checked |
//! | others | none | not checked: they are known by their addresses |
//!
//! Every request has a connection of its own, over HTTP/1.1, which is used again after it.

use super::kubelets::{Certificates, KubeletOptions};
use super::links::{Links, joined as joined_paths};
use super::{headers, html, joined, pass_on};
use crate::reload::{RELOAD_PERIOD, Reloads};
use futures::future::{BoxFuture, FutureExt as _};
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use parking_lot::RwLock;
use serde_json::Value;
use setpoint_apiserver::{Body, Connector, DIALING, Location, Peer, RequestBody, encoded_path};
use setpoint_egress::Dialer;
use setpoint_nodes::NODE_LABEL;
use setpoint_object::error::chain;
use setpoint_object::time::Clock;
use setpoint_object::{ApiError, Reason};
use setpoint_registry::is_reachable;
use setpoint_serve::PeerAddress;
use setpoint_webhook_client::{Address, ConfigError, Lane, Transport, TransportError, Trust};
use std::sync::Arc;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// Connects when it is first used.
#[derive(Debug, Clone)]
pub(crate) struct NetworkConnector(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: KubeletOptions,
    clock: Clock,
    dialer: Dialer,
    anyone: Lazy,
    /// Replaced when the certificates change.
    kubelets: RwLock<Arc<Kubelets>>,
}

type Lazy = OnceCell<Result<Transport<RequestBody>, ConfigError>>;

/// Connections to kubelets with the same certificates.
#[derive(Debug, Default)]
struct Kubelets {
    certificates: Certificates,
    verified: Lazy,
    unverified: Lazy,
}

impl NetworkConnector {
    pub(crate) fn new(options: KubeletOptions, clock: Clock, dialer: Dialer) -> Self {
        let certificates = options.certificates.clone();
        let kubelets = Kubelets { certificates, ..Kubelets::default() };
        let kubelets = RwLock::new(Arc::new(kubelets));
        Self(Arc::new(Inner { options, clock, dialer, anyone: OnceCell::new(), kubelets }))
    }

    /// Whether the certificates come from files, which have to be [followed](Self::follow).
    pub(crate) fn has_files(&self) -> bool {
        self.0.options.files.is_some()
    }

    /// Reads the files of certificates again and again until `stop`. New connections use what has
    /// changed.
    pub(crate) async fn follow(self, stop: CancellationToken) {
        let Some(files) = &self.0.options.files else { return };
        let mut reloads = Reloads::of(files.paths(), RELOAD_PERIOD);
        while reloads.next(&stop).await {
            match files.read() {
                Ok(certificates) => self.0.replace(certificates),
                Err(error) => {
                    let error = chain(&error);
                    tracing::error!(error, "the certificates for kubelets in use stay");
                }
            }
        }
    }
}

impl Connector for NetworkConnector {
    fn kubelet(&self, node: &Value) -> Result<Option<(String, u16)>, ApiError> {
        if node["metadata"]["labels"][NODE_LABEL] == "true" {
            return Ok(None);
        }
        let options = &self.0.options;
        let status = &node["status"];
        let addresses = status["addresses"].as_array().map_or(&[] as &[Value], Vec::as_slice);
        let preferred = options.address_types.iter().find_map(|wanted| {
            let found = addresses.iter().find(|address| address["type"] == **wanted)?;
            found["address"].as_str()
        });
        let Some(host) = preferred else {
            let known = addresses.iter().map(|address| {
                let text = |member: &str| address[member].as_str().unwrap_or_default();
                format!("{{{} {}}}", text("type"), text("address"))
            });
            let known = known.collect::<Vec<_>>().join(" ");
            return Err(ApiError::unclassified(format!(
                "no preferred addresses found; known addresses: [{known}]"
            )));
        };
        let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        Ok(Some((host.to_owned(), port.unwrap_or(options.port))))
    }

    fn forward(
        &self,
        to: Location,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Body>, ApiError>> {
        let inner = self.0.clone();
        async move { inner.forward(to, request).await }.boxed()
    }

    fn send(
        &self,
        to: Location,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Body>, ApiError>> {
        let inner = self.0.clone();
        async move {
            let is_upgrade = headers::is_upgrade(request.headers());
            let mut answer = inner.ask(&to, request, is_upgrade).await?;
            let upgrade = answer.extensions_mut().remove::<OnUpgrade>();
            let mut response = pass_on(answer);
            if let Some(upgrade) = upgrade {
                response.extensions_mut().insert(upgrade);
            }
            Ok(response)
        }
        .boxed()
    }
}

impl Inner {
    async fn forward(
        &self,
        to: Location,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        if to.is_global {
            check_global(&to.host).await?;
        }
        let is_upgrade = headers::is_upgrade(request.headers());
        let of_client = request.extensions_mut().remove::<OnUpgrade>();
        let client_host = match request.headers().get(header::HOST) {
            Some(host) => host.to_str().unwrap_or_default().to_owned(),
            None => request.uri().authority().map(ToString::to_string).unwrap_or_default(),
        };
        prepare(&mut request, &to, &client_host, is_upgrade);
        let answer = self.ask(&to, request, is_upgrade).await?;
        let code = answer.status();
        if is_upgrade {
            let of_client = of_client.filter(|_| code == StatusCode::SWITCHING_PROTOCOLS);
            return match of_client {
                Some(of_client) => Ok(joined(answer, of_client)),
                None if code.is_client_error() || code.is_server_error() => Ok(pass_on(answer)),
                None => {
                    let code = code.as_u16();
                    let message = format!("invalid upgrade response: status code {code}");
                    Err(ApiError::unclassified(message))
                }
            };
        }
        let response = pass_on(answer);
        let Some(prefix) = to.prefix else { return Ok(response) };
        let address = address(&to.host, to.port);
        let hosts = vec![address.to_string(), to.host];
        let links = Links { hosts, client_host, prefix };
        with_links(response, &links)
    }

    /// Sends a request to a location, and waits for the head of the answer.
    async fn ask(
        &self,
        to: &Location,
        mut request: Request<RequestBody>,
        is_upgrade: bool,
    ) -> Result<Response<Incoming>, ApiError> {
        let address = address(&to.host, to.port);
        let url = to.to_string();
        *request.uri_mut() = url.parse::<Uri>().map_err(ApiError::internal)?;
        let kubelets = self.kubelets.read().clone();
        let transport = self.transport(to.peer, &kubelets).await.map_err(ApiError::unclassified)?;
        let sent = transport.send(&address, request, Lane::Own).await;
        sent.map_err(|error| match (is_upgrade, &to.prefix) {
            (true, _) => ApiError::unclassified(dialing(&error)),
            (false, Some(_)) => {
                let message = format!("error trying to reach service: {error}");
                ApiError::new(503, Reason::ServiceUnavailable, message)
            }
            (false, None) => ApiError::unclassified(format!("Get {url:?}: {error}")),
        })
    }

    fn replace(&self, certificates: Certificates) {
        if self.kubelets.read().certificates == certificates {
            return;
        }
        let kubelets = Kubelets { certificates, ..Kubelets::default() };
        *self.kubelets.write() = Arc::new(kubelets);
        tracing::info!("new certificates for kubelets are in use");
    }

    async fn transport<'a>(
        &'a self,
        peer: Peer,
        kubelets: &'a Kubelets,
    ) -> Result<&'a Transport<RequestBody>, String> {
        let Certificates { identity, authority } = &kubelets.certificates;
        let trust = match (peer, authority) {
            (Peer::Kubelet, Some(pem)) => Trust::Bundle(pem.clone()),
            _ => Trust::Anyone,
        };
        let (made, identity) = match peer {
            Peer::Anyone => (&self.anyone, None),
            Peer::Kubelet => (&kubelets.verified, identity.as_ref()),
            Peer::UnverifiedKubelet => (&kubelets.unverified, identity.as_ref()),
        };
        let dialer = || self.dialer.clone();
        let made =
            made.get_or_init(|| Transport::new(&trust, None, identity, &self.clock, dialer()));
        made.await.as_ref().map_err(ToString::to_string)
    }
}

fn address(host: &str, port: u16) -> Address {
    Address { host: host.to_owned(), port }
}

/// The error of a connection that was to switch protocols.
fn dialing(error: &TransportError) -> String {
    match error.0 == "EOF" {
        true => "unexpected EOF".to_owned(),
        false => format!("{DIALING}{error}"),
    }
}

/// Changes the head of a request to that of a forwarded one.
fn prepare(request: &mut Request<RequestBody>, to: &Location, host: &str, is_upgrade: bool) {
    let client = request.extensions().get::<PeerAddress>().map(|peer| peer.0.ip());
    let head = request.headers_mut();
    let protocol = head.get(header::UPGRADE).cloned().filter(|_| is_upgrade);
    let takes_trailers =
        head.get(header::TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    headers::remove_of_connection(head);
    if takes_trailers && !is_upgrade {
        head.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if let Some(client) = client {
        headers::append_forwarded_for(head, client);
    }
    if let Ok(host) = HeaderValue::try_from(host) {
        head.insert(header::HOST, host);
    }
    if let Some(protocol) = protocol {
        head.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        head.insert(header::UPGRADE, protocol);
        return;
    }
    if let Some(prefix) = &to.prefix {
        let path = encoded_path(joined_paths(prefix, &to.path).as_bytes());
        if let Ok(uri) = HeaderValue::try_from(path) {
            head.insert(headers::FORWARDED_URI, uri);
        }
    }
}

/// Changes the links and the redirect of an answer.
///
/// # Errors
///
/// 500 for a redirect to what is no URL.
fn with_links(mut response: Response<Body>, links: &Links) -> Result<Response<Body>, ApiError> {
    let location = response.headers().get(header::LOCATION).filter(|to| !to.is_empty());
    if let Some(location) = location {
        if let Some(to) = links.location(location).map_err(ApiError::internal)? {
            response.headers_mut().insert(header::LOCATION, to);
        }
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    let body = html::with_links(&mut head.headers, body, links);
    Ok(Response::from_parts(head, body))
}

/// Checks that all addresses of a host are reached by other machines.
///
/// # Errors
///
/// 400 if one is not, or there is none.
async fn check_global(host: &str) -> Result<(), ApiError> {
    let found = tokio::net::lookup_host((host, 0)).await;
    let found: Vec<_> = found.map(Iterator::collect).unwrap_or_default();
    if found.is_empty() {
        return Err(ApiError::bad_request(format!("lookup {host}: no such host")));
    }
    match found.iter().all(|address| is_reachable(&address.ip().to_string())) {
        true => Ok(()),
        false => Err(ApiError::bad_request("address not allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_apiserver::listen::{CertificateFiles, Pki};
    use setpoint_object::time::Timestamp;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn certificates_in_files_are_replaced_while_the_server_runs() {
        let clock = Clock::starting_at(Timestamp::from_secs(1_767_225_600));
        let pki = || Pki::generate(clock.now(), &[]).unwrap().files().clone();
        let (first, second) = (pki(), pki());
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        write("crt", &first.admin_crt);
        write("key", &first.admin_key);
        write("ca", &first.ca_crt);
        let files = CertificateFiles { certificate: at("crt"), key: at("key") };
        let options = KubeletOptions::default().files(Some(files), Some(at("ca"))).unwrap();
        let connector = NetworkConnector::new(options, clock.clone(), Dialer::default());
        let inner = connector.0.clone();
        let present = || inner.kubelets.read().certificates.clone();
        let has = |pki: &setpoint_apiserver::listen::PkiFiles| {
            let Certificates { identity, authority } = present();
            identity.is_some_and(|identity| identity.key == pki.admin_key.as_bytes())
                && authority.is_some_and(|pem| pem == pki.ca_crt.as_bytes())
        };
        let stop = CancellationToken::new();
        let poll = || tokio::time::sleep(Duration::from_millis(1500));
        let story = async {
            assert!(has(&first));
            // The key is still that of the former certificate.
            write("crt", &second.admin_crt);
            poll().await;
            assert!(has(&first));
            write("key", &second.admin_key);
            write("ca", &second.ca_crt);
            poll().await;
            assert!(has(&second));
            stop.cancel();
        };
        tokio::join!(connector.follow(stop.clone()), story);
    }
}
