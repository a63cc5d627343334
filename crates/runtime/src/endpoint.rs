//! HTTP endpoints of a program: health, metrics, and what it adds.
//!
//! # Theory
//!
//! An [`Endpoint`] is bound when it is made, so that a port in use is an error before anything
//! runs, and served by the manager: started first and stopped last (MGR-1, MGR-20). Nothing is
//! served unless a program binds an endpoint for it.
//!
//! ```text
//!   accept ──▶ TLS ──▶ limits of one connection ──▶ bearer token ──▶ handler of the path
//!   (bounded)  (optional)                           (optional, before every handler)
//! ```
//!
//! A peer that does nothing costs a bounded time and a bounded place: each of the numbers below is
//! a constant of this module. A handler gets the whole request and gives the whole answer; its
//! panic is the answer 500.
//!
//! # No profiles
//!
//! controller-runtime can serve Go's profiles at `/debug/pprof/` (off by default). Here nothing
//! does: what can sample a Rust program from within, the crate `pprof`, unwinds the stack in a
//! signal handler, which by its own account can block a thread for ever when the signal comes while
//! a panic unwinds; and a panic of a reconciler is caught here, and goes on as an error. Profiles
//! are taken from outside, of the program as it runs: `perf record -g -p PID`.

mod answer;
mod bearer;
mod certificate;
mod error;
mod health;
mod recent;
mod review;
mod route;
mod serve;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use bytes::Bytes;

use self::route::Routes;
pub use self::{
    bearer::BearerAuth,
    certificate::{CERTIFICATE_BYTES_MAX, CertificateStats, Certificates, RELOAD_PERIOD},
    error::{CertificateError, EndpointError},
    health::{CHECK_MAX, CHECKS_MAX, Check, Health, HealthError},
    review::{REVIEW_CACHE_MAX, REVIEWS_MAX},
};
pub(crate) use self::{certificate::CertificateCollector, health::Probe};
use crate::runnable::Runnable;

/// Connections of one endpoint at once; more wait to be accepted.
///
/// 256: a scraper and a prober use one each.
pub const CONNECTIONS_MAX: usize = 256;

/// How long the head of a request may take, and the first byte of a connection: 32 s, as
/// controller-runtime (MGR-23).
pub const HEAD_MAX: Duration = Duration::from_secs(32);

/// How long a connection may idle between requests: 90 s, as controller-runtime (MGR-23).
pub const IDLE_MAX: Duration = Duration::from_secs(90);

/// Bytes of a request's head: 1 MiB, as controller-runtime (MGR-23).
pub const HEAD_BYTES_MAX: usize = setpoint_serve::HEAD_BYTES_MAX as usize;

/// Bytes of a request's body: 1 MiB. What is larger is answered 413.
pub const REQUEST_BODY_BYTES_MAX: usize = 1 << 20;

/// How long connections may finish what they are answering when the endpoint stops: 1 min, as
/// controller-runtime (MGR-23). The manager's grace period may be over before.
pub const DRAIN_MAX: Duration = Duration::from_secs(60);

/// The path of metrics, which no handler can take.
pub const METRICS_PATH: &str = "/metrics";
/// The path of liveness, which no handler can take.
pub const HEALTHZ_PATH: &str = "/healthz";
/// The path of readiness, which no handler can take.
pub const READYZ_PATH: &str = "/readyz";

/// A bound port, and what is to be served there.
///
/// ```no_run
/// # use setpoint_runtime::{Manager, endpoint::Endpoint};
/// # fn example(client: kube_client::Client) -> Result<Manager, Box<dyn std::error::Error>> {
/// let manager = Manager::builder(client)
///     .health(Endpoint::bind("[::]:8081".parse()?)?)
///     .serve_metrics(Endpoint::bind("[::]:8080".parse()?)?)
///     .build();
/// manager.health().add_defaults()?;
/// # Ok(manager)
/// # }
/// ```
#[must_use = "an endpoint serves nothing until it is given to a manager"]
pub struct Endpoint {
    socket: TcpListener,
    address: SocketAddr,
    certificates: Option<Certificates>,
    bearer: Option<BearerAuth>,
    routes: Routes,
}

impl Endpoint {
    /// Binds a port; 0 picks a free one.
    ///
    /// # Errors
    ///
    /// The address is in use, or cannot be had.
    pub fn bind(address: SocketAddr) -> Result<Self, EndpointError> {
        let bind = |source| EndpointError::Bind { address, source };
        let socket = TcpListener::bind(address).map_err(bind)?;
        socket.set_nonblocking(true).map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        Ok(Self { socket, address, certificates: None, bearer: None, routes: Routes::default() })
    }

    /// The address it is bound to, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves over TLS, HTTP/2 and HTTP/1.1. Default: plain HTTP/1.1.
    pub fn tls(mut self, certificates: Certificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Lets only those in who bring a token that is good, on every path. Default: everybody.
    ///
    /// Without TLS the token can be read on the way.
    pub fn bearer(mut self, bearer: BearerAuth) -> Self {
        self.bearer = Some(bearer);
        self
    }

    /// Adds a handler of one path, exactly as it is written.
    ///
    /// # Errors
    ///
    /// The path does not begin with `/`, is reserved, or has a handler.
    pub fn handle<Fut>(
        mut self,
        path: impl Into<String>,
        handler: impl Fn(http::Request<Bytes>) -> Fut + Send + Sync + 'static,
    ) -> Result<Self, EndpointError>
    where
        Fut: Future<Output = http::Response<Bytes>> + Send + 'static,
    {
        self.routes.add(path.into(), handler)?;
        Ok(self)
    }

    /// Adds a handler of a reserved path and, for checks, of those below it.
    pub(crate) fn reserved<Fut>(
        &mut self,
        path: &'static str,
        handler: impl Fn(http::Request<Bytes>) -> Fut + Send + Sync + 'static,
    ) where
        Fut: Future<Output = http::Response<Bytes>> + Send + 'static,
    {
        self.routes.reserve(path, handler);
    }

    /// The certificates that it shows.
    pub(crate) fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// The endpoint as a member of a manager, for one that serves only handlers of its own. Runs in
    /// every replica.
    pub fn into_runnable(self) -> Runnable {
        Runnable::server(|stop| serve::serve(self, stop))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("tls", &self.certificates.is_some())
            .field("bearer", &self.bearer)
            .field("routes", &self.routes)
            .finish()
    }
}
