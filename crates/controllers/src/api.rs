//! The API client of the built-in controllers. Types are known at run time; requests are plain
//! HTTP.

mod discovery;

pub(crate) use discovery::{Discovered, Resource, discover};

use http::{Method, Request};
use kube_client::Client;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Status};
use setpoint_runtime::answer::{ANSWER_MAX, request};
use setpoint_runtime::client::BODY_BYTES_MAX;

/// The name of every built-in controller in `managedFields`: the user agent up to its first slash.
const COMPONENT: &str = "kube-controller-manager";

/// The form of answers that are whole objects.
pub(crate) const JSON: &str = "application/json";

/// Number of objects in one page of a list: 500, as in the reference's pagers.
const PAGE_OBJECTS: usize = 500;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The server answered with an error.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The request did not reach the server, or its response did not arrive completely.
    #[error("reach the API server")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl RequestError {
    pub(crate) fn transport(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Transport(error.into())
    }

    /// Whether the object or its kind was not found (404).
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Api(error) if error.code() == 404)
    }

    /// Whether the response means that the object of this name does not exist, rather than that it
    /// does not serve the path.
    pub(crate) fn is_absence_of(&self, name: &str) -> bool {
        let details = match self {
            Self::Api(error) => error.0.details.as_ref(),
            Self::Transport(_) => None,
        };
        self.is_not_found() && details.is_some_and(|details| details.name == name)
    }

    /// Whether another client wrote first (409).
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.code() == 409)
    }

    /// Whether a create found an object of the name (409 with this reason). Other conflicts do not
    /// say that: they are repeated.
    pub(crate) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Api(error) if error.code() == 409 && error.0.reason == "AlreadyExists")
    }

    /// Whether the server does not serve the verb (405).
    pub(crate) fn is_method_not_allowed(&self) -> bool {
        matches!(self, Self::Api(error) if error.code() == 405)
    }
}

/// Turns a 404 into `None`.
pub(crate) fn ignore_not_found<T>(
    answer: Result<T, RequestError>,
) -> Result<Option<T>, RequestError> {
    match answer {
        Err(error) if error.is_not_found() => Ok(None),
        answer => answer.map(Some),
    }
}

/// Turns the refusal of a write into `None` if its object is gone (404) or has changed (409).
pub(crate) fn ignore_stale<T>(answer: Result<T, RequestError>) -> Result<Option<T>, RequestError> {
    match answer {
        Err(error) if error.is_conflict() => Ok(None),
        answer => ignore_not_found(answer),
    }
}

/// The options of a DELETE of the object with this uid, not of another one of its name.
pub(crate) fn of_uid(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})
}

/// The options of a DELETE of an object that has not changed since it was read.
pub(crate) fn as_read(object: &Value) -> Value {
    let mut options = of_uid(object.uid());
    options["preconditions"]["resourceVersion"] = object.resource_version().into();
    options
}

/// A client that sends requests as one named controller.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    user_agent: String,
}

impl Api {
    pub(crate) fn new(client: Client, controller: &str) -> Self {
        Self {
            client,
            user_agent: format!("{COMPONENT}/v{} setpoint/{controller}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// A client that writes as the server itself.
    pub(crate) fn of_server(client: Client, part: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self { client, user_agent: format!("kube-apiserver/v{version} setpoint/{part}") }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, RequestError> {
        self.send(Method::GET, path, JSON, None).await
    }

    /// The object at a path; `None` if there is none (404).
    pub(crate) async fn get_opt(&self, path: &str) -> Result<Option<Value>, RequestError> {
        ignore_not_found(self.get(path).await)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        self.send(Method::POST, path, JSON, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        self.send(Method::PUT, path, JSON, Some(body)).await
    }

    pub(crate) async fn merge_patch(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<Value, RequestError> {
        self.send(Method::PATCH, path, "application/merge-patch+json", Some(body)).await
    }

    /// Server-side apply.
    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        self.send(Method::PATCH, path, "application/apply-patch+yaml", Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<Value, RequestError> {
        self.send(Method::DELETE, path, JSON, Some(options)).await
    }

    /// [`delete`](Self::delete) with an answer in this form.
    pub(crate) async fn delete_accepting(
        &self,
        path: &str,
        options: &Value,
        accept: &str,
    ) -> Result<Value, RequestError> {
        self.send_accepting(Method::DELETE, path, JSON, Some(options), accept).await
    }

    /// Reads a collection, which may have a query, page by page and calls `take` with each object.
    pub(crate) async fn list_pages(
        &self,
        collection: &str,
        take: impl FnMut(Value),
    ) -> Result<(), RequestError> {
        self.list_pages_of(collection, PAGE_OBJECTS, take).await
    }

    /// [`list_pages`](Self::list_pages) with at most so many objects in a page, if they are large.
    pub(crate) async fn list_pages_of(
        &self,
        collection: &str,
        page_objects: usize,
        take: impl FnMut(Value),
    ) -> Result<(), RequestError> {
        self.list_pages_as(collection, page_objects, JSON, take).await
    }

    /// [`list_pages`](Self::list_pages) in a form that the server is asked for.
    pub(crate) async fn list_pages_accepting(
        &self,
        collection: &str,
        accept: &str,
        take: impl FnMut(Value),
    ) -> Result<(), RequestError> {
        self.list_pages_as(collection, PAGE_OBJECTS, accept, take).await
    }

    async fn list_pages_as(
        &self,
        collection: &str,
        page_objects: usize,
        accept: &str,
        mut take: impl FnMut(Value),
    ) -> Result<(), RequestError> {
        let mut token = String::new();
        let separator = if collection.contains('?') { '&' } else { '?' };
        loop {
            let path = format!("{collection}{separator}limit={page_objects}&continue={token}");
            let mut page = self.get_accepting(&path, accept).await?;
            if let Some(items) = page["items"].as_array_mut() {
                items.drain(..).for_each(&mut take);
            }
            // Tokens use the URL-safe alphabet.
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                return Ok(());
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, RequestError> {
        self.send_accepting(method, path, content_type, body, JSON).await
    }

    pub(crate) async fn get_accepting(
        &self,
        path: &str,
        accept: &str,
    ) -> Result<Value, RequestError> {
        self.send_accepting(Method::GET, path, JSON, None, accept).await
    }

    async fn send_accepting(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
        accept: &str,
    ) -> Result<Value, RequestError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let question = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, accept)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::USER_AGENT, &self.user_agent)
            .body(body.into_bytes())
            .map_err(RequestError::transport)?;
        let answered = request(&self.client, question, BODY_BYTES_MAX, ANSWER_MAX).await;
        answered.map_err(from_kube)
    }
}

/// The reason that the client gives an answer which is no `Status`.
const NO_STATUS: &str = "Failed to parse error data";

fn from_kube(error: kube_client::Error) -> RequestError {
    match error {
        kube_client::Error::Api(status) => {
            match serde_json::to_value(&*status).and_then(serde_json::from_value::<Status>) {
                Ok(mut status) => {
                    // The text of a proxy, not of an API server: as client-go shows it.
                    if status.reason == NO_STATUS && status.code == Some(503) {
                        "the server is currently unable to handle the request"
                            .clone_into(&mut status.message);
                    }
                    RequestError::Api(ApiError(Box::new(status)))
                }
                Err(error) => RequestError::transport(error),
            }
        }
        error => RequestError::transport(error),
    }
}
