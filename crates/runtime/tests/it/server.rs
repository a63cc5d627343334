//! A minimal API server: objects in a map, lists, watches from a log, and writes. Records the
//! requests.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{future::BoxFuture, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_object::{ApiError, GroupResource};
use setpoint_runtime::client::Origin;
use tokio::sync::Notify;

use crate::patch::{json_patch, merge_patch};

/// A handle to the server; a clone is the same server.
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Wakes the watches after a change, in the order in which they wait. A `watch` channel would
    /// wake them in random order.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// By resource path (`/api/v1/configmaps`), namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    /// Every change: resource path, revision, event type, object.
    log: Vec<(String, u64, &'static str, Value)>,
    served: Vec<String>,
    requests: Vec<String>,
    origins: Vec<Origin>,
    /// Answers that replace those of the next matching writes.
    faults: VecDeque<(Method, &'static str, u16)>,
    revision: u64,
    watch_delay: Duration,
    is_mute: bool,
    /// Counts how often all watches were ended.
    epoch: u64,
    /// Watches cannot start before this revision.
    oldest: u64,
    /// Refused resources, or their collections in one namespace, and the codes of the answers.
    refused: Vec<(String, u16)>,
    /// Open watches, by resource or by the collection of one namespace.
    watchers: BTreeMap<String, usize>,
    /// Resources of which only metadata was requested.
    metadata: Vec<String>,
}

/// A parsed path of the API.
#[derive(Clone)]
struct Path {
    /// Without a namespace: a watch of all namespaces.
    resource: String,
    plural: String,
    namespace: String,
    name: String,
    subresource: String,
}

impl Path {
    fn parse(path: &str) -> Self {
        let mut parts: VecDeque<&str> = path.trim_start_matches('/').split('/').collect();
        let mut prefix = Vec::new();
        let n_prefix = if parts[0] == "api" { 2 } else { 3 };
        for _ in 0..n_prefix {
            prefix.push(parts.pop_front().unwrap());
        }
        let mut namespace = "";
        if parts[0] == "namespaces" && parts.len() > 2 {
            parts.pop_front();
            namespace = parts.pop_front().unwrap();
        }
        let plural = parts.pop_front().unwrap();
        prefix.push(plural);
        let mut rest = parts.into_iter().map(str::to_owned);
        Self {
            resource: format!("/{}", prefix.join("/")),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: rest.next().unwrap_or_default(),
            subresource: rest.next().unwrap_or_default(),
        }
    }
}

impl Path {
    /// The path of the collection, with its namespace.
    fn collection(&self) -> String {
        match &*self.namespace {
            "" => self.resource.clone(),
            namespace => {
                let prefix = self.resource.strip_suffix(&self.plural).unwrap();
                format!("{prefix}namespaces/{namespace}/{}", self.plural)
            }
        }
    }
}

/// Whether a field selector matches an object. This server knows `metadata.namespace` only.
fn has_fields(fields: &str, object: &Value) -> bool {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    fields.split(',').all(|term| match term.split_once("!=") {
        Some(("metadata.namespace", other)) => namespace != other,
        _ => true,
    })
}

impl Server {
    /// A server of these resource paths.
    pub(crate) fn new(served: &[&str]) -> Self {
        let state =
            State { served: served.iter().map(ToString::to_string).collect(), ..State::default() };
        Self(Arc::new(Inner { state: Mutex::new(state), changed: Notify::new() }))
    }

    pub(crate) fn client(&self) -> kube_client::Client {
        kube_client::Client::new(self.clone(), "default")
    }

    /// Serves one more resource path.
    pub(crate) fn serve(&self, resource: &str) {
        self.0.state.lock().served.push(resource.to_owned());
    }

    /// Forbids this resource path, or the collection of one namespace, from now on.
    pub(crate) fn forbid(&self, resource: &str) {
        self.refuse(resource, 403);
    }

    /// Refuses it with this code, from now on.
    pub(crate) fn refuse(&self, resource: &str, code: u16) {
        self.0.state.lock().refused.push((resource.to_owned(), code));
    }

    /// Permits it again.
    pub(crate) fn permit(&self, resource: &str) {
        self.0.state.lock().refused.retain(|(of, _)| of != resource);
    }

    /// How many watches of a resource path, or of the collection of one namespace, are open.
    pub(crate) fn watchers(&self, resource: &str) -> usize {
        self.0.state.lock().watchers.get(resource).copied().unwrap_or_default()
    }

    /// Whether only the metadata of a resource path was requested.
    pub(crate) fn asked_as_metadata(&self, resource: &str) -> bool {
        self.0.state.lock().metadata.iter().any(|of| of == resource)
    }

    /// Fails the next request of this method whose path contains `part` with this code; 0 breaks
    /// the connection before the request is handled, 1 after it.
    pub(crate) fn fail_next(&self, method: Method, part: &'static str, code: u16) {
        self.0.state.lock().faults.push_back((method, part, code));
    }

    /// Creates or replaces an object, as another client: by the path of its collection.
    pub(crate) fn put(&self, collection: &str, object: Value) -> Value {
        let path = Path::parse(collection);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut state = self.0.state.lock();
        let object = state.store(&path.resource, &path.namespace, &name, object);
        self.0.changed.notify_waiters();
        object
    }

    /// Deletes an object, as another client; one with finalizers is only marked.
    pub(crate) fn delete(&self, object: &str) {
        let path = Path::parse(object);
        let mut state = self.0.state.lock();
        state.delete(&path);
        self.0.changed.notify_waiters();
    }

    pub(crate) fn get(&self, object: &str) -> Option<Value> {
        let path = Path::parse(object);
        self.0.state.lock().objects.get(&(path.resource, path.namespace, path.name)).cloned()
    }

    /// All objects of a collection.
    pub(crate) fn list(&self, collection: &str) -> Vec<Value> {
        let path = Path::parse(collection);
        self.0.state.lock().select(&path)
    }

    /// Ends every watch; with `expire`, earlier changes cannot be watched any more.
    pub(crate) fn cut_watches(&self, expire: bool) {
        let mut state = self.0.state.lock();
        state.epoch += 1;
        if expire {
            state.oldest = state.revision;
        }
        // Wakes the watches, which then see that they have ended.
        self.0.changed.notify_waiters();
    }

    /// Removes the failures that have not been used.
    pub(crate) fn heal(&self) {
        self.0.state.lock().faults.clear();
    }

    /// Delays every watch event by this time.
    pub(crate) fn delay_watches(&self, delay: Duration) {
        self.0.state.lock().watch_delay = delay;
    }

    /// Sends only bookmarks to watches from now on.
    pub(crate) fn mute_watches(&self) {
        self.0.state.lock().is_mute = true;
    }

    /// Sends all events to watches again. Open watches do not get what was not sent.
    pub(crate) fn unmute_watches(&self) {
        self.0.state.lock().is_mute = false;
    }

    /// Sends a bookmark of the current version to every watch of a resource.
    pub(crate) fn bookmark(&self, resource: &str) {
        let mut state = self.0.state.lock();
        state.revision += 1;
        let revision = state.revision;
        let meta = json!({"resourceVersion": revision.to_string()});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta});
        state.log.push((resource.to_owned(), revision, "BOOKMARK", object));
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Takes the writes that were requested so far.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.state.lock().requests)
    }

    /// The origins of the requests that had one.
    pub(crate) fn origins(&self) -> Vec<Origin> {
        self.0.state.lock().origins.clone()
    }

    fn answer(
        &self,
        method: &Method,
        path: &Path,
        body: &[u8],
        content_type: &str,
        fields: &str,
    ) -> Result<Value, ApiError> {
        let mut state = self.0.state.lock();
        if !state.served.contains(&path.resource) {
            return Err(ApiError::no_route());
        }
        let resource = GroupResource { group: "".into(), resource: path.plural.as_str().into() };
        let key = (path.resource.clone(), path.namespace.clone(), path.name.clone());
        let missing = || ApiError::not_found(&resource, &path.name);
        let body: Value =
            if body.is_empty() { Value::Null } else { serde_json::from_slice(body).unwrap() };
        let answer = match *method {
            Method::GET if path.name.is_empty() => {
                let mut items = state.select(path);
                items.retain(|object| has_fields(fields, object));
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": state.revision.to_string()}, "items": items})
            }
            Method::GET => state.objects.get(&key).cloned().ok_or_else(missing)?,
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if state.objects.contains_key(&(
                    path.resource.clone(),
                    path.namespace.clone(),
                    name.clone(),
                )) {
                    return Err(ApiError::already_exists(&resource, &name));
                }
                state.store(&path.resource, &path.namespace, &name, body)
            }
            Method::PUT | Method::PATCH => {
                let mut object = state.objects.get(&key).cloned().ok_or_else(missing)?;
                let before = object.clone();
                match content_type {
                    "application/json-patch+json" => json_patch(&mut object, &body)?,
                    _ if *method == Method::PATCH => merge_patch(&mut object, &body),
                    _ => object = body,
                }
                let asked = &object["metadata"]["resourceVersion"];
                if asked.is_string() && *asked != before["metadata"]["resourceVersion"] {
                    return Err(ApiError::conflict(
                        &resource,
                        &path.name,
                        "the object has been modified",
                    ));
                }
                if path.subresource == "status" {
                    let status = object["status"].take();
                    object = before;
                    object["status"] = status;
                }
                state.store(&path.resource, &path.namespace, &path.name, object)
            }
            Method::DELETE if path.name.is_empty() => {
                let items = state.select(path);
                for object in &items {
                    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                    state.delete(&Path { name, ..path.clone() });
                }
                json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
            }
            Method::DELETE => {
                let object = state.objects.get(&key).ok_or_else(missing)?;
                let demanded = &body["preconditions"];
                let differs = |field: &str| {
                    demanded[field].is_string() && demanded[field] != object["metadata"][field]
                };
                if differs("uid") || differs("resourceVersion") {
                    return Err(ApiError::conflict(&resource, &path.name, "a precondition failed"));
                }
                let uid = object["metadata"]["uid"].clone();
                state.delete(path);
                // The object while it has finalizers.
                state.objects.get(&key).cloned().unwrap_or_else(|| {
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Success",
                        "details": {"uid": uid}})
                })
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        self.0.changed.notify_waiters();
        Ok(answer)
    }

    /// The log after a revision, as a body that never ends.
    fn watch(&self, path: Path, from: u64, fields: &str) -> UnsyncBoxBody<Bytes, Infallible> {
        let fields: Arc<str> = fields.into();
        let server = self.clone();
        let epoch = self.0.state.lock().epoch;
        let open = Arc::new(Open::new(self.clone(), &path));
        let frames = stream::unfold(from, move |mut from| {
            let server = server.clone();
            let open = open.clone();
            let (resource, namespace) = (path.resource.clone(), path.namespace.clone());
            let fields = fields.clone();
            async move {
                let _open = open;
                loop {
                    let mut changed = std::pin::pin!(server.0.changed.notified());
                    changed.as_mut().enable();
                    let lines: String = {
                        let state = server.0.state.lock();
                        if state.epoch != epoch {
                            return None;
                        }
                        let is_mute = state.is_mute;
                        let pending = state.log.iter().filter(|(of, at, event, object)| {
                            if is_mute && *event != "BOOKMARK" {
                                return false;
                            }
                            let in_namespace = namespace.is_empty()
                                || object["metadata"]["namespace"] == *namespace;
                            *of == resource
                                && *at > from
                                && in_namespace
                                && has_fields(&fields, object)
                        });
                        let lines = pending.map(|(_, _, event, object)| {
                            json!({"type": event, "object": object}).to_string() + "\n"
                        });
                        let lines = lines.collect();
                        from = state.revision;
                        lines
                    };
                    if !lines.is_empty() {
                        let delay = server.0.state.lock().watch_delay;
                        tokio::time::sleep(delay).await;
                        return Some((Ok(Frame::data(Bytes::from(lines))), from));
                    }
                    changed.await;
                }
            }
        });
        BodyExt::boxed_unsync(StreamBody::new(frames))
    }
}

/// Counts a watch as open until it is dropped.
struct Open {
    server: Server,
    paths: Vec<String>,
}

impl Open {
    fn new(server: Server, path: &Path) -> Self {
        let mut paths = vec![path.resource.clone(), path.collection()];
        paths.dedup();
        for path in &paths {
            *server.0.state.lock().watchers.entry(path.clone()).or_default() += 1;
        }
        Self { server, paths }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        for path in &self.paths {
            if let Some(open) = self.server.0.state.lock().watchers.get_mut(path) {
                *open -= 1;
            }
        }
    }
}

impl State {
    fn select(&self, path: &Path) -> Vec<Value> {
        let all = self.objects.iter().filter(|((resource, namespace, _), _)| {
            *resource == path.resource
                && (path.namespace.is_empty() || *namespace == path.namespace)
        });
        all.map(|(_, object)| object.clone()).collect()
    }

    /// Writes an object as the API does: the server sets uid, resourceVersion and generation, and a
    /// deleted object without finalizers is removed.
    fn store(&mut self, resource: &str, namespace: &str, name: &str, mut object: Value) -> Value {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        let before = self.objects.get(&key).cloned();
        let meta = &mut object["metadata"];
        meta["name"] = name.into();
        if !namespace.is_empty() {
            meta["namespace"] = namespace.into();
        }
        meta["uid"] = before.as_ref().map_or_else(
            || json!(format!("uid-{}", self.revision + 1)),
            |o| o["metadata"]["uid"].clone(),
        );
        let generation =
            before.as_ref().map_or(0, |o| o["metadata"]["generation"].as_i64().unwrap());
        let marked = |o: &Value| o["metadata"]["deletionTimestamp"].is_string();
        let is_new = before
            .as_ref()
            .is_none_or(|o| o["spec"] != object["spec"] || marked(o) != marked(&object));
        object["metadata"]["generation"] = json!(generation + i64::from(is_new));
        if let Some(before) = &before {
            object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
            if *before == object {
                return object;
            }
        }
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let has_finalizers =
            object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if marked(&object) && !has_finalizers {
            self.objects.remove(&key);
            self.log.push((resource.to_owned(), self.revision, "DELETED", object.clone()));
            return object;
        }
        let event = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.objects.insert(key, object.clone());
        self.log.push((resource.to_owned(), self.revision, event, object.clone()));
        object
    }

    fn delete(&mut self, path: &Path) {
        let key = (path.resource.clone(), path.namespace.clone(), path.name.clone());
        let Some(mut object) = self.objects.get(&key).cloned() else { return };
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        self.store(&path.resource, &path.namespace, &path.name, object);
    }
}

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // A request that is cut before its end is not handled.
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            let query = parts.uri.query().unwrap_or_default();
            let path = Path::parse(parts.uri.path());
            if let Some(origin) = parts.extensions.get::<Origin>() {
                server.0.state.lock().origins.push(origin.clone());
            }
            let fault = {
                let mut state = server.0.state.lock();
                if parts.method != Method::GET {
                    let manager = query.split('&').find(|part| part.starts_with("fieldManager="));
                    let by = manager
                        .map(|part| format!(" by {}", &part["fieldManager=".len()..]))
                        .unwrap_or_default();
                    state.requests.push(format!("{} {}{by}", parts.method, parts.uri.path()));
                }
                let matching = state.faults.iter().position(|(method, part, _)| {
                    *method == parts.method && parts.uri.path().contains(part)
                });
                matching.and_then(|at| state.faults.remove(at)).map(|(_, _, code)| code)
            };
            if fault == Some(0) {
                return Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "cut"));
            }
            let reply = |code: u16, body: Value| {
                let body =
                    BodyExt::boxed_unsync(http_body_util::Full::new(Bytes::from(body.to_string())));
                Response::builder().status(StatusCode::from_u16(code).unwrap()).body(body).unwrap()
            };
            let failure = |error: ApiError| {
                let mut status = serde_json::to_value(&*error.0).unwrap();
                status["kind"] = "Status".into();
                status["apiVersion"] = "v1".into();
                reply(error.code(), status)
            };
            if let Some(code) = fault
                && code > 1
            {
                return Ok(failure(ApiError::new(
                    code,
                    setpoint_object::Reason::InternalError,
                    "as the test wants it",
                )));
            }
            if parts
                .headers
                .get("accept")
                .is_some_and(|as_what| as_what.to_str().unwrap().contains("PartialObjectMetadata"))
            {
                server.0.state.lock().metadata.push(path.resource.clone());
            }
            let refused = {
                let (refused, of) = (&server.0.state.lock().refused, path.collection());
                let mut refused =
                    refused.iter().filter(|(by, _)| *by == path.resource || *by == of);
                refused.next().map(|(_, code)| *code)
            };
            if let Some(code) = refused {
                let message = format!("{} is forbidden", path.plural);
                return Ok(failure(match code {
                    401 => ApiError::unauthorized(),
                    _ => ApiError::new(code, setpoint_object::Reason::Forbidden, message),
                }));
            }
            let parameter = |name: &str| {
                query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
            };
            let fields = parameter("fieldSelector").unwrap_or_default();
            let fields = fields.replace("%21", "!").replace("%3D", "=").replace("%2C", ",");
            if parameter("watch").is_some() && parts.method == Method::GET {
                if !server.0.state.lock().served.contains(&path.resource) {
                    return Ok(failure(ApiError::no_route()));
                }
                if parameter("sendInitialEvents").is_some() {
                    return Ok(failure(ApiError::new(
                        422,
                        setpoint_object::Reason::Invalid,
                        "sendInitialEvents is forbidden for watch",
                    )));
                }
                let from =
                    parameter("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
                if from < server.0.state.lock().oldest {
                    return Ok(failure(ApiError::expired("too old")));
                }
                return Ok(Response::new(server.watch(path, from, &fields)));
            }
            let content_type =
                parts.headers.get("content-type").map_or("", |value| value.to_str().unwrap());
            let answer = server.answer(&parts.method, &path, &body, content_type, &fields);
            if fault == Some(1) {
                return Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "cut"));
            }
            Ok(match answer {
                Ok(answer) => reply(200, answer),
                Err(error) => failure(error),
            })
        })
    }
}
