//! `loads.metrics.example.dev`: how busy the machine is. Nothing is stored; each request reads it.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use serde_json::{Value, json};
use setpoint::apiserver::{Attributes, Backend, BackendError, Body, Handler, RequestBody, Verb};
use setpoint::object::{ApiError, GroupResource};
use std::io;
use std::sync::Arc;

/// The group.
pub const GROUP: &str = "metrics.example.dev";
/// The version.
pub const VERSION: &str = "v1";
/// The names of the objects, in the order in which Linux tells their values.
const WINDOWS: [&str; 3] = ["1m", "5m", "15m"];

/// Reads the average loads, as `/proc/loadavg` has them.
type Read = fn() -> io::Result<String>;

/// Answers requests for loads.
#[derive(Debug)]
pub struct Loads(Read);

/// The group version, with its documents.
///
/// # Errors
///
/// A document is wrong.
pub fn backend() -> Result<Backend, BackendError> {
    let resources = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [{
            "name": "loads", "singularName": "load", "namespaced": false, "kind": "Load",
            "verbs": ["get", "list"], "shortNames": ["ld"],
        }],
    });
    let handler = Loads(|| std::fs::read_to_string("/proc/loadavg"));
    Backend::builder(GROUP, VERSION, Arc::new(handler)).resources(resources.to_string()).build()
}

impl Loads {
    /// All objects.
    fn all(&self) -> Result<Vec<Value>, ApiError> {
        let text = (self.0)().map_err(ApiError::internal)?;
        let values = WINDOWS.into_iter().zip(text.split(' '));
        let objects = values.map(|(window, value)| {
            json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Load",
                "metadata": {"name": window}, "window": window, "value": value,
            })
        });
        Ok(objects.collect())
    }

    fn answer(&self, request: &Attributes) -> Result<Value, ApiError> {
        match &request.verb {
            Verb::List => Ok(json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "LoadList",
                "metadata": {}, "items": self.all()?,
            })),
            Verb::Get => {
                let resource = GroupResource { group: GROUP.into(), resource: "loads".into() };
                let mut all = self.all()?.into_iter();
                all.find(|load| load["metadata"]["name"] == request.name())
                    .ok_or_else(|| ApiError::not_found(&resource, request.name()))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

impl Handler for Loads {
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
        // The pipeline adds it to every request that it forwards.
        let attributes = request.extensions().get::<Arc<Attributes>>();
        let answer = match attributes {
            Some(attributes) => self.answer(attributes),
            None => Err(ApiError::no_route()),
        };
        let (code, body) = match answer {
            Ok(object) => (200, object.to_string().into_bytes()),
            Err(error) => (error.code(), error.to_json()),
        };
        let mut response = Response::new(Body::once(body));
        *response.status_mut() =
            StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        futures::future::ready(response).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_is_an_object() -> Result<(), ApiError> {
        let loads = Loads(|| Ok("0.10 0.20 0.30 1/234 5678\n".to_owned()));
        let values: Vec<Value> =
            loads.all()?.into_iter().map(|load| json!([load["window"], load["value"]])).collect();
        assert_eq!(json!(values), json!([["1m", "0.10"], ["5m", "0.20"], ["15m", "0.30"]]));
        Ok(())
    }
}
