//! Whether the server of an APIService is available (spec: extension §1.2).
//!
//! | reason | status | when |
//! |---|---|---|
//! | `ServiceNotFound`, `ServicePortError`, `EndpointsNotFound`, `MissingEndpoints` | False | what the Service and its slices say; only with [`ServedServices`](crate::webhooks::ServedServices) |
//! | `ServiceAccessError`, `EndpointsAccessError` | Unknown | they cannot be read |
//! | `FailedDiscoveryCheck` | False | none of five parallel requests is answered with 2xx |
//! | `Passed` | True | one is |
//!
//! Services without a cluster address (`ExternalName`) have no slices to look at.

use super::remote::{Failure, Remote, Route};
use super::user::set_user;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use serde_json::Value;
use setpoint_apiserver::{Identity, RequestBody};
use setpoint_object::{GroupVersionResource, Skim, users};
use setpoint_registry::Objects;
use setpoint_webhook_client::{Lane, Service};
use std::time::Duration;

/// Number of concurrent checks of the server.
const ATTEMPTS: usize = 5;
/// How long it has to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The user of the checks, who may read discovery anywhere.
const CHECKER: &str = "system:kube-aggregator";

/// A condition `Available`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether the server has answered. It may have discovery, whatever the answer was.
    pub(super) has_answered: bool,
}

impl Condition {
    fn no(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message, has_answered: false }
    }

    fn unknown(reason: &'static str, service: &Service, error: &dyn std::fmt::Display) -> Self {
        let Service { namespace, name, .. } = service;
        let message = format!("service/{name} in {namespace:?} cannot be checked due to: {error}");
        Self { status: "Unknown", reason, message, has_answered: false }
    }

    /// Whether all checks passed.
    pub(super) fn is_passed(&self) -> bool {
        self.status == "True"
    }
}

/// Checks a server. `None`: it cannot be checked with its CA bundle, and keeps its condition.
/// `objects`: where its Service is, if it is an object.
pub(super) async fn check(
    remote: &Remote,
    route: &Route,
    objects: Option<Objects<'_>>,
) -> Option<Condition> {
    if let Some(objects) = objects
        && let Err(condition) = of_objects(objects, &route.target.service).await
    {
        return Some(condition);
    }
    let passed = Condition {
        status: "True",
        reason: "Passed",
        message: "all checks passed".to_owned(),
        has_answered: true,
    };
    let mut attempts: FuturesUnordered<_> =
        (0..ATTEMPTS).map(|_| discovery(remote, route)).collect();
    let (mut last, mut has_answered) = (None, false);
    while let Some(result) = attempts.next().await {
        match result {
            Ok(()) => return Some(passed),
            Err(Unchecked::Unconfigured) => return None,
            Err(Unchecked::Failed(message)) => last = Some(message),
            Err(Unchecked::Answered(message)) => {
                has_answered = true;
                last = Some(message);
            }
        }
    }
    let failed = last.map(|message| Condition::no("FailedDiscoveryCheck", message));
    failed.map(|failed| Condition { has_answered, ..failed })
}

/// Whether a Service and its slices say that something serves it.
async fn of_objects(objects: Objects<'_>, wanted: &Service) -> Result<(), Condition> {
    let Service { namespace, name, port } = wanted;
    let resource = |group: &str, name: &str| GroupVersionResource::new(group, "v1", name);
    let found = objects.get(&resource("", "services"), namespace, name).await;
    let found = found.map_err(|error| Condition::unknown("ServiceAccessError", wanted, &error))?;
    let Some(found) = found else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return Err(Condition::no("ServiceNotFound", message));
    };
    let service: Value = serde_json::from_slice(&found.bytes)
        .map_err(|error| Condition::unknown("ServiceAccessError", wanted, &error))?;
    if service["spec"]["type"] != "ClusterIP" {
        return Ok(());
    }
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let Some(known) = ports.find(|known| known["port"] == *port) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Err(Condition::no("ServicePortError", message));
    };
    let port_name = known["name"].as_str().unwrap_or_default();
    let slices = objects.list(&resource("discovery.k8s.io", "endpointslices"), namespace).await;
    let slices =
        slices.map_err(|error| Condition::unknown("EndpointsAccessError", wanted, &error))?;
    let is_of_service = |slice: &[u8]| {
        let label = "kubernetes.io/service-name";
        Skim::of(slice).is_ok_and(|skim| skim.label(label) == Some(name))
    };
    let mut slices = slices.iter().filter(|slice| is_of_service(&slice.bytes)).peekable();
    if slices.peek().is_none() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Err(Condition::no("EndpointsNotFound", message));
    }
    if slices.any(|slice| is_ready(&slice.bytes, port_name)) {
        return Ok(());
    }
    let message = format!(
        "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
    );
    Err(Condition::no("MissingEndpoints", message))
}

/// Whether a slice has a ready endpoint, and a port of this name.
fn is_ready(slice: &[u8], port_name: &str) -> bool {
    let Ok(slice) = serde_json::from_slice::<Value>(slice) else { return false };
    let list = |member: &str| slice[member].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_port = |port: &Value| {
        port["name"].as_str().unwrap_or_default() == port_name && port["port"].is_u64()
    };
    list("endpoints").iter().any(|endpoint| endpoint["conditions"]["ready"] != false)
        && list("ports").iter().any(has_port)
}

/// Why a check failed.
enum Unchecked {
    /// No connection can be configured.
    Unconfigured,
    /// There is no answer. With the message of the condition.
    Failed(String),
    /// The answer is an error. With the message of the condition.
    Answered(String),
}

/// Asks the server for the document of its group version. The body does not matter.
async fn discovery(remote: &Remote, route: &Route) -> Result<(), Unchecked> {
    let address = match remote.address(route).await {
        Ok(address) => address,
        Err(Failure::Resolve(error)) => return Err(Unchecked::Failed(error.to_string())),
        Err(_) => return Err(Unchecked::Unconfigured),
    };
    let path = format!("/apis/{}", remote.group_version);
    let url = format!("https://{address}{path}");
    let request = request(&path, &Identity::new(CHECKER, [users::MASTERS]), None);
    let missing = |why: String| format!("failing or missing response from {url}: {why}");
    let failed = |why| Err(Unchecked::Failed(missing(why)));
    let sent = remote.send(route, &address, request, Lane::Shared);
    match tokio::time::timeout(ANSWER_MAX, sent).await {
        Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
        Ok(Ok(answer)) => {
            let why = format!("bad status from {url}: {}", answer.status().as_u16());
            Err(Unchecked::Answered(missing(why)))
        }
        Ok(Err(Failure::Transport(error))) => failed(format!("Get {url:?}: {error}")),
        Ok(Err(_)) => Err(Unchecked::Unconfigured),
        Err(_) => failed(format!(
            "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}

/// A GET request of the server itself, as a user.
pub(super) fn request(path: &str, user: &Identity, accept: Option<&str>) -> Request<RequestBody> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::new(body);
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
    let head = request.headers_mut();
    let set = [
        (http::header::USER_AGENT, concat!("kube-apiserver/v", env!("CARGO_PKG_VERSION"))),
        (http::header::ACCEPT, accept.unwrap_or("application/json")),
    ];
    for (name, text) in set {
        if let Ok(value) = text.parse() {
            head.insert(name, value);
        }
    }
    // Its own users have names that headers can have.
    _ = set_user(head, user);
    request
}
