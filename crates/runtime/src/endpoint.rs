//! HTTP endpoints of a program: health checks, metrics, and its own handlers.
//!
//! # Theory
//!
//! An [`Endpoint`] is bound when it is created, so a port in use is an error before anything runs.
//! The manager serves it: started first and stopped last (MGR-1, MGR-20). Nothing is served unless
//! the program binds an endpoint for it.
//!
//! ```text
//!   accept ──▶ TLS ──▶ limits of one connection ──▶ bearer token ──▶ handler of the path
//!   (bounded)  (optional)                           (optional, before every handler)
//! ```
//!
//! An idle peer takes a bounded time and one of a bounded number of connections; the limits are
//! constants of this module. A handler gets the whole request and returns the whole answer. If it
//! panics, the answer is a 500.
//!
//! # No profiling
//!
//! controller-runtime can serve Go's profiles at `/debug/pprof/` (off by default). There is no
//! counterpart here. The crate `pprof`, which can sample a Rust program from within, unwinds the
//! stack in a signal handler. According to its documentation, that can block a thread for ever if
//! the signal arrives while a panic unwinds; and reconcilers' panics are caught here. Profile the
//! running program from outside: `perf record -g -p PID`.

mod bearer;
mod certificate;
mod error;
mod health;
mod review;
mod serve;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use bytes::Bytes;

pub(crate) use self::health::Probe;
use self::serve::Routes;
pub use self::{
    bearer::BearerAuth,
    certificate::{CERTIFICATE_BYTES_MAX, CertificateStats, Certificates, RELOAD_PERIOD},
    error::{CertificateError, EndpointError},
    health::{CHECK_MAX, CHECKS_MAX, Check, Health, HealthError},
    review::{REVIEW_BYTES_MAX, REVIEW_CACHE_MAX, REVIEWS_MAX},
};
use crate::runnable::Runnable;

/// The maximum number of connections of one endpoint; more wait to be accepted.
///
/// 256: a scraper and a prober use one each.
pub const CONNECTIONS_MAX: usize = 256;

/// The time-out of a request's head, and of a connection's first byte: 32 s, as controller-runtime
/// (MGR-23).
pub const HEAD_MAX: Duration = Duration::from_secs(32);

/// How long a connection may idle between requests: 90 s, as controller-runtime (MGR-23).
pub const IDLE_MAX: Duration = Duration::from_secs(90);

/// The maximum size of a request's head in bytes: 1 MiB, as controller-runtime (MGR-23).
pub const HEAD_BYTES_MAX: usize = setpoint_serve::HEAD_BYTES_MAX as usize;

/// The maximum size of a request's body in bytes: 1 MiB. Larger ones get a 413.
pub const REQUEST_BODY_BYTES_MAX: usize = 1 << 20;

/// How long connections may finish their requests when the endpoint stops: 1 min, as
/// controller-runtime (MGR-23). The manager's grace period may end earlier.
pub const DRAIN_MAX: Duration = Duration::from_secs(60);

/// The path of metrics; reserved.
pub const METRICS_PATH: &str = "/metrics";
/// The path of liveness checks; reserved.
pub const HEALTHZ_PATH: &str = "/healthz";
/// The path of readiness checks; reserved.
pub const READYZ_PATH: &str = "/readyz";

/// A bound port, and its handlers.
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
    /// The address is in use or not available.
    pub fn bind(address: SocketAddr) -> Result<Self, EndpointError> {
        let bind = |source| EndpointError::Bind { address, source };
        let socket = TcpListener::bind(address).map_err(bind)?;
        socket.set_nonblocking(true).map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        Ok(Self { socket, address, certificates: None, bearer: None, routes: Routes::default() })
    }

    /// The bound address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves over TLS, HTTP/2 and HTTP/1.1. Default: plain HTTP/1.1.
    pub fn tls(mut self, certificates: Certificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Requires a valid bearer token on every path. Default: no authentication.
    ///
    /// Use TLS too: without it the token is sent in clear text.
    pub fn bearer(mut self, bearer: BearerAuth) -> Self {
        self.bearer = Some(bearer);
        self
    }

    /// Adds a handler of exactly this path.
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

    /// Adds a handler of a reserved path, and of the paths below `/healthz` and `/readyz`.
    pub(crate) fn reserved<Fut>(
        &mut self,
        path: &'static str,
        handler: impl Fn(http::Request<Bytes>) -> Fut + Send + Sync + 'static,
    ) where
        Fut: Future<Output = http::Response<Bytes>> + Send + 'static,
    {
        self.routes.reserve(path, handler);
    }

    /// The endpoint's certificates, if it uses TLS.
    pub(crate) fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// The endpoint as a member of a manager, if it serves only its own handlers. Runs in every
    /// replica.
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
