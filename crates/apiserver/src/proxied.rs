//! Proxied requests: `pods/proxy`, `services/proxy` and `nodes/proxy`.

use crate::body::{Body, RequestBody};
use crate::connector::Location;
use crate::filter::authenticate::strip_credentials;
use crate::observe::Observation;
use crate::proxy::follow;
use crate::query::decode_path;
use crate::streams::Agents;
use crate::websocket::is_upgrade;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt as _;
use setpoint_registry::kind::ProxiedTo;
use setpoint_registry::{Attributes, Registry, Target};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A proxied request, after admission.
pub(crate) struct Proxied<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) agents: &'a Agents,
    pub(crate) drain: &'a CancellationToken,
    pub(crate) parts: &'a Parts,
    pub(crate) attributes: &'a Attributes,
    pub(crate) observation: &'a Arc<Observation>,
}

impl Proxied<'_> {
    /// The answer; `None`: nothing reaches the peer. `object`: the pod, the Service or the node.
    /// `to`: the path at the peer.
    ///
    /// # Errors
    ///
    /// As [`Locator::of_proxy`](crate::location::Locator::of_proxy); 429 if the user has too many
    /// proxied requests; the errors of the connection.
    pub(crate) async fn answer(
        self,
        target: &Target,
        object: &Value,
        to: &str,
        body: RequestBody,
    ) -> Result<Option<Response<Body>>, ApiError> {
        let (Some(connector), Some(locator)) =
            (&self.agents.connector, self.agents.locator(self.registry))
        else {
            return Ok(None);
        };
        // The nodes of an agent have no kubelet.
        let is_node = target.resource.kind.proxied_to == ProxiedTo::Kubelet;
        if is_node && self.agents.of(object.name()).is_some() {
            return Ok(None);
        }
        let Some(location) = locator.of_proxy(target, object).await? else { return Ok(None) };
        let uri = &self.parts.uri;
        let mut path = cleaned(to);
        let is_upgrade = is_upgrade(&self.parts.headers);
        let is_read = [Method::GET, Method::HEAD].contains(&self.parts.method);
        if path.is_empty() && is_read && !is_upgrade {
            return Ok(Some(with_slash(uri)));
        }
        let here = decode_path(uri.path()).unwrap_or_default();
        let prefix = here.strip_suffix(&*path).unwrap_or(&here).to_owned();
        if path.is_empty() {
            path.push('/');
        }
        // As on the original, a request for another protocol has no query.
        let query = uri.query().filter(|_| !is_upgrade).unwrap_or_default().to_owned();
        let location = Location { path, query, prefix: Some(prefix), ..location };
        let slot = self.agents.slots.take_for(&self.attributes.identity)?;
        let mut request = Request::from_parts(self.parts.clone(), body);
        strip_credentials(request.headers_mut());
        let answer = connector.forward(location, request).await?;
        Ok(Some(follow(answer, (slot, self.observation.clone()), None, self.drain)))
    }
}

/// A path without empty segments and without `.` and `..`, as Go's `path.Join` cleans it. A slash
/// at its end stays.
fn cleaned(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    if path.is_empty() {
        return String::new();
    }
    let slash = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{slash}", segments.join("/"))
}

/// Sends the client to the path with a slash at its end, so that relative links work.
fn with_slash(uri: &http::Uri) -> Response<Body> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(to) = HeaderValue::try_from(format!("{}/{query}", uri.path())) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        for (path, expected) in [
            ("", ""),
            ("/", "/"),
            ("//", "/"),
            ("/a/", "/a/"),
            ("//a//b", "/a/b"),
            ("/a/../b", "/b"),
            ("/../../b/.", "/b"),
            ("/..", "/"),
        ] {
            assert_eq!(cleaned(path), expected, "{path}");
        }
    }
}
