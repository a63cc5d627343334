//! Requests on resources: negotiate, read, parse, one call of the registry, write the answer.

use crate::body::{self, Body, RequestBody};
use crate::connect;
use crate::filter::large::{LARGE_BYTES_MIN, LargeAnswers};
use crate::list::Form;
use crate::negotiate::{
    self, Accepted, Encoding, Endpoint, Transform, Types, accept_header, negotiate,
};
use crate::observe::{ANSWER_BYTES_MAX, Observation};
use crate::options;
use crate::proxied::Proxied;
use crate::query::Query;
use crate::respond::{self, Style};
use crate::server::Events;
use crate::streams::{Agents, PodStream};
use crate::table::{self, IncludeObject};
use crate::trace;
use crate::watch;
use crate::websocket::Upgrade;
use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use setpoint_object::members;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, Status};
use setpoint_registry::{
    Attributes, Body as Sent, Deleted, Feature, List, PatchType, Registry, SchemaLanguage,
    Subresource, Target, Verb,
};
use setpoint_schema::INLINE_BYTES_MAX;
use setpoint_spans::Span;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Events of the span of a verb, as kube-apiserver names them.
const STORE: &str = "About to store object in database";
const STORED: &str = "Write to database call succeeded";
const WRITE: &str = "About to write a response";

/// One request with the parts that answer it.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    // Helpers.
    pub(crate) registry: &'a Registry,
    pub(crate) drain: &'a CancellationToken,
    // Inputs.
    pub(crate) parts: &'a Parts,
    pub(crate) query: &'a Query,
    pub(crate) style: Style,
    pub(crate) attributes: &'a Attributes,
    pub(crate) observation: &'a Arc<Observation>,
    pub(crate) large: &'a LargeAnswers,
    pub(crate) agents: &'a Agents,
    /// The media types of the server.
    pub(crate) types: Types,
    /// The span of the verb, if the request is traced.
    pub(crate) span: Option<Span>,
}

/// An error to answer with.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) ApiError);

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl Exchange<'_> {
    /// Answers the request.
    pub(crate) async fn answer(&self, body: RequestBody) -> Result<Response<Body>, Refusal> {
        let target = self.attributes.target()?;
        if let Some(text) = &target.resource.deprecation
            && self.is_routed(target)
        {
            self.attributes.warn(text.clone());
            self.attributes.annotate("k8s.io/deprecated", "true");
            if let Some(release) = target.resource.removed_release() {
                self.attributes.annotate("k8s.io/removed-release", release);
            }
        }
        if let Some(subresource) = target.subresource.as_ref().filter(|sub| sub.is_connect()) {
            // A log is only read.
            let is_log = *subresource == Subresource::Log;
            if !is_log || self.attributes.verb == Verb::Get {
                return Ok(Box::pin(self.stream(target, subresource, body)).await?);
            }
        }
        // Long futures are boxed, so that a read's future stays small.
        match self.attributes.verb {
            Verb::Get => self.get(target).await,
            Verb::List => Box::pin(self.list(target)).await,
            Verb::Watch => Box::pin(self.watch(target)).await,
            Verb::Create => Box::pin(self.create(target, body)).await,
            Verb::Update => Box::pin(self.update(target, body)).await,
            Verb::Patch => Box::pin(self.patch(target, body)).await,
            Verb::Delete => Box::pin(self.delete(target, body)).await,
            Verb::DeleteCollection => Box::pin(self.delete_collection(target, body)).await,
            _ => Err(Refusal(ApiError::method_not_allowed())),
        }
    }

    /// A stream of a pod, or a proxied request.
    async fn stream(
        &self,
        target: &Target,
        subresource: &Subresource,
        body: RequestBody,
    ) -> Result<Response<Body>, ApiError> {
        match subresource {
            Subresource::Log => _ = self.accept(target)?,
            Subresource::Proxy => {}
            _ => self.check_create(target).await?,
        }
        let (has_namespace, path) = (!target.namespace.is_empty(), self.parts.uri.path());
        let options = connect::options(subresource, has_namespace, self.query, path)?;
        let to = options["path"].as_str().unwrap_or_default().to_owned();
        let object = self.registry.connect(self.attributes, options).await?;
        let no_server = || Registry::not_connected(self.attributes, &object);
        if *subresource == Subresource::Proxy {
            let proxied = Proxied {
                registry: self.registry,
                agents: self.agents,
                drain: self.drain,
                parts: self.parts,
                attributes: self.attributes,
                observation: self.observation,
            };
            return proxied.answer(target, &object, &to, body).await?.ok_or_else(no_server);
        }
        if !target.resource.kind.has_node_streams || !self.agents.may_serve(subresource) {
            return Err(no_server());
        }
        let stream = PodStream {
            registry: self.registry,
            identity: &self.attributes.identity,
            observation: self.observation,
            agents: self.agents,
            drain: self.drain,
            parts: self.parts,
            query: self.query,
            now: self.registry.clock().now(),
            pod: &object,
        };
        stream.answer(subresource).await?.ok_or_else(no_server)
    }

    /// Checks that the user may create a stream that a WebSocket only gets: it runs commands.
    async fn check_create(&self, target: &Target) -> Result<(), ApiError> {
        let is_on =
            self.registry.features().is_on(Feature::AuthorizePodWebsocketUpgradeCreatePermission);
        if !is_on || self.attributes.verb == Verb::Create {
            return Ok(());
        }
        let create = self.attributes.with(Verb::Create, self.attributes.requested.clone());
        self.registry.authorize(&create).await.map_err(|error| match error.code() {
            403 => ApiError::forbidden(&target.resource.group_resource(), &target.name, ""),
            _ => error,
        })
    }

    async fn get(&self, target: &Target) -> Result<Response<Body>, Refusal> {
        let accepted = self.accept(target)?;
        if self.query.flag("export") == Some(true) {
            return Err(Refusal(ApiError::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            )));
        }
        let version = self.query.text("resourceVersion");
        let span = self.reads("cacher.Get");
        let object = self.registry.get(self.attributes, version).await?;
        drop(span);
        self.check_object(accepted, target)?;
        self.object(StatusCode::OK, accepted, target, object.bytes, false).await
    }

    async fn list(&self, target: &Target) -> Result<Response<Body>, Refusal> {
        let accepted = self.accept(target)?;
        let options = options::list(self.query, self.registry.features())?;
        let span = self.reads("cacher.GetList");
        let list = self.registry.list(self.attributes, &options).await?;
        drop(span);
        self.check_list(accepted, target)?;
        self.whole_list(accepted, target, list, false).await
    }

    async fn watch(&self, target: &Target) -> Result<Response<Body>, Refusal> {
        let endpoint = Endpoint::Watch(target.resource.schema.language());
        let accepted = negotiate(&accept_header(&self.parts.headers), endpoint, self.types)?;
        let options = options::watch_path(self.query, &target.name, self.registry.features())?;
        let span = self.reads("cacher.Watch");
        let events = self.registry.watch(self.attributes, &options).await?;
        drop(span);
        let include = match accepted.transform {
            Transform::Table(_) => IncludeObject::of(self.query)?,
            _ => IncludeObject::Metadata,
        };
        negotiate::stream(accepted, self.types)?;
        self.observation.writes(self.sends("WatchServer.HandleHTTP"));
        let events = Events::new(events, self.drain.clone(), self.observation.clone());
        let upgrade = Upgrade::of(self.parts);
        // Messages over a WebSocket are text.
        let encoding = if upgrade.is_some() { Encoding::Json } else { accepted.encoding };
        let framing = watch::Framing {
            resource: target.resource.clone(),
            encoding,
            transform: accepted.transform,
            include,
            clock: self.registry.clock().clone(),
            metrics: self.observation.watch(&target.resource),
            in_pieces: upgrade.is_none(),
            large: self.large.clone(),
        };
        Ok(match upgrade {
            Some(upgrade) => upgrade.respond(watch::frames(events, framing)),
            None => watch::respond(events, framing),
        })
    }

    async fn create(&self, target: &Target, body: RequestBody) -> Result<Response<Body>, Refusal> {
        let accepted = self.accept_object(target)?;
        let body = self.sent(target, body).await?;
        let options = options::write(self.query, "CreateOptions")?;
        self.event(STORE);
        let written = self.registry.create(self.attributes, body, &options).await?;
        self.event(STORED);
        if written.status {
            self.observation.succeeded(&Status::success());
        }
        self.object(StatusCode::CREATED, accepted, target, written.object.bytes, true).await
    }

    async fn update(&self, target: &Target, body: RequestBody) -> Result<Response<Body>, Refusal> {
        let accepted = self.accept_object(target)?;
        let bytes = self.read(body).await?;
        let options = options::write(self.query, "UpdateOptions")?;
        let language = target.resource.schema.language();
        let format = negotiate::body_format(&self.parts.headers, language, self.types)?;
        self.observation.sent(&bytes, format);
        let body = Sent { bytes, format };
        self.event(STORE);
        let written = self.registry.update(self.attributes, body, &options).await?;
        self.event(STORED);
        self.object(code(written.created), accepted, target, written.object.bytes, true).await
    }

    async fn patch(&self, target: &Target, body: RequestBody) -> Result<Response<Body>, Refusal> {
        let language = target.resource.schema.language();
        let (patch_type, format) =
            negotiate::patch_format(&self.parts.headers, language, self.types)?;
        if target.name.is_empty() {
            return Err(Refusal(ApiError::bad_request("name must be provided")));
        }
        if patch_type == PatchType::Apply {
            self.attributes.note_apply();
        }
        let accepted = self.accept_object(target)?;
        let bytes = self.read(body).await?;
        self.observation.sent(&bytes, format);
        let options = options::patch(self.query, patch_type)?;
        let body = Sent { bytes, format };
        let written = self.registry.patch(self.attributes, patch_type, body, &options).await?;
        self.event("Object stored in database");
        self.object(code(written.created), accepted, target, written.object.bytes, true).await
    }

    async fn delete(&self, target: &Target, body: RequestBody) -> Result<Response<Body>, Refusal> {
        let accepted = self.accept(target)?;
        let options = self.delete_options(body).await?;
        self.check_object(accepted, target)?;
        self.event("About to delete object from database");
        let deleted = self.registry.delete(self.attributes, &options).await?;
        self.event("Object deleted from database");
        match deleted {
            Deleted::Object { object, remains } => {
                // 202 only if the client requested background deletion in its oldest form.
                let accepted_only = remains && options.orphan_dependents == Some(false);
                let code = if accepted_only { StatusCode::ACCEPTED } else { StatusCode::OK };
                self.object(code, accepted, target, object.bytes, true).await
            }
            Deleted::Gone { uid } => {
                self.removed(accepted, target, deleted_status(target, uid)).await
            }
            Deleted::Unread => self.removed(accepted, target, unread_status(target)).await,
        }
    }

    /// The answer to a delete that returns no object.
    async fn removed(
        &self,
        accepted: Accepted,
        target: &Target,
        status: Status,
    ) -> Result<Response<Body>, Refusal> {
        self.observation.succeeded(&status);
        let status = ApiError(Box::new(status)).to_json().into();
        self.object(StatusCode::OK, accepted, target, status, true).await
    }

    async fn delete_collection(
        &self,
        target: &Target,
        body: RequestBody,
    ) -> Result<Response<Body>, Refusal> {
        let accepted = self.accept(target)?;
        let list_options = options::list(self.query, self.registry.features())?;
        let options = self.delete_options(body).await?;
        self.check_list(accepted, target)?;
        let list =
            self.registry.delete_collection(self.attributes, &list_options, &options).await?;
        self.whole_list(accepted, target, list, true).await
    }

    /// The form of the answer to a write of an object: refused before the write, so that a bad form
    /// costs none.
    fn accept_object(&self, target: &Target) -> Result<Accepted, ApiError> {
        let accepted = self.accept(target)?;
        self.check_object(accepted, target)?;
        Ok(accepted)
    }

    /// Checks that a single object has this form. A read does so once it has found the object.
    fn check_object(&self, accepted: Accepted, target: &Target) -> Result<(), ApiError> {
        if matches!(accepted.transform, Transform::PartialList(_)) {
            let asked = "PartialObjectMetadataList";
            return Err(table::wrong_shape(asked, false, target));
        }
        self.check_rows(accepted)
    }

    /// Checks that a list has this form.
    fn check_list(&self, accepted: Accepted, target: &Target) -> Result<(), ApiError> {
        if matches!(accepted.transform, Transform::Partial(_)) {
            return Err(table::wrong_shape("PartialObjectMetadata", true, target));
        }
        self.check_rows(accepted)
    }

    /// Checks what the rows of a table are to include.
    fn check_rows(&self, accepted: Accepted) -> Result<(), ApiError> {
        if matches!(accepted.transform, Transform::Table(_)) {
            IncludeObject::of(self.query)?;
        }
        Ok(())
    }

    fn accept(&self, target: &Target) -> Result<Accepted, ApiError> {
        let endpoint = if !target.resource.has_go_type() {
            Endpoint::Custom
        } else if target.subresource == Some(Subresource::Log) {
            Endpoint::Log
        } else {
            let collection = self.attributes.verb == Verb::List;
            Endpoint::Builtin { collection, tables: has_tables(target) }
        };
        negotiate(&accept_header(&self.parts.headers), endpoint, self.types)
    }

    /// Whether a route of the reference takes the types of the request: what it refuses before has
    /// no warnings.
    fn is_routed(&self, target: &Target) -> bool {
        let (headers, language) = (&self.parts.headers, target.resource.schema.language());
        let sent = match self.attributes.verb {
            Verb::Patch => negotiate::patch_format(headers, language, self.types).err(),
            _ => None,
        };
        let refused = sent.or_else(|| self.accept(target).err());
        refused.is_none_or(|error| !negotiate::is_of_routing(&error))
    }

    async fn sent(&self, target: &Target, body: RequestBody) -> Result<Sent, ApiError> {
        let language = target.resource.schema.language();
        let format = negotiate::body_format(&self.parts.headers, language, self.types)?;
        let bytes = self.read(body).await?;
        self.observation.sent(&bytes, format);
        Ok(Sent { bytes, format })
    }

    async fn delete_options(
        &self,
        body: RequestBody,
    ) -> Result<setpoint_registry::DeleteOptions, ApiError> {
        let bytes = self.read(body).await?;
        let format = if bytes.is_empty() {
            setpoint_registry::Format::Json
        } else {
            // Options are of a built-in kind, whatever is deleted.
            negotiate::body_format(&self.parts.headers, SchemaLanguage::GoTypes, self.types)?
        };
        self.observation.sent(&bytes, format);
        let deletes_unreadable = self.registry.deletes_unreadable();
        if bytes.len() <= INLINE_BYTES_MAX {
            return options::delete(self.query, &bytes, format, deletes_unreadable);
        }
        let query = self.query.clone();
        let read = move || options::delete(&query, &bytes, format, deletes_unreadable);
        self.large.run_blocking(read).await.map_err(ApiError::internal)?
    }

    /// Answers with one object, transformed. A `Status` is never transformed. Trees of large
    /// objects are made on a blocking thread. `is_done`: a write has been committed, so its answer
    /// is not refused.
    async fn object(
        &self,
        code: StatusCode,
        accepted: Accepted,
        target: &Target,
        bytes: Bytes,
        is_done: bool,
    ) -> Result<Response<Body>, Refusal> {
        self.event(WRITE);
        let _span = self.sends("SerializeObject");
        let (large, user) = (self.large, &self.attributes.identity.user);
        let is_plain = accepted == Accepted::default() && !self.style.pretty;
        let is_large = bytes.len() > LARGE_BYTES_MIN;
        let room = match is_done {
            true => large.reserve_at_once(user, bytes.len()),
            false => large.reserve(user, bytes.len())?,
        };
        let (form, style) = (self.form(accepted, target), self.style);
        let observation = self.observation.clone();
        let answer = move || {
            let json = transformed(accepted.transform, &form, bytes);
            observation.object(&json);
            room.hold(respond::document(code, accepted, style, json))
        };
        if is_plain || !is_large {
            return Ok(answer());
        }
        Ok(large.run_blocking(answer).await.map_err(ApiError::internal)?)
    }

    /// Answers with a list, transformed.
    async fn whole_list(
        &self,
        accepted: Accepted,
        target: &Target,
        list: List,
        is_done: bool,
    ) -> Result<Response<Body>, Refusal> {
        let mut form = self.form(accepted, target);
        let mut list = list;
        self.event(WRITE);
        self.observation.writes(self.sends("SerializeObject"));
        let (large, user) = (self.large, &self.attributes.identity.user);
        if self.observation.wants_answer() {
            let json;
            let encode = move || {
                let json = form.json(&list, ANSWER_BYTES_MAX);
                (form, list, json)
            };
            // Rows of Tables take long.
            (form, list, json) = match matches!(accepted.transform, Transform::Table(_)) {
                true => large.run_blocking(encode).await.map_err(ApiError::internal)?,
                false => encode(),
            };
            self.observation.list(json);
        }
        let list = respond::LargeList { form, list, large, user, is_done };
        Ok(respond::list(self.style, list).await?)
    }

    async fn read(&self, body: RequestBody) -> Result<Bytes, ApiError> {
        let bytes = body::read(body).await?;
        if let Some(span) = &self.span {
            span.event_with("limitedReadBody succeeded", vec![("len", bytes.len().into())]);
        }
        Ok(bytes)
    }

    /// Something happens to the object.
    fn event(&self, name: &'static str) {
        if let Some(span) = &self.span {
            span.event(name);
        }
    }

    /// The span of a read from the watch cache.
    fn reads(&self, name: &'static str) -> Option<Span> {
        let span = self.attributes.span(name)?;
        trace::set_type(&span, self.attributes);
        Some(span)
    }

    /// The span of an answer.
    fn sends(&self, name: &'static str) -> Option<Span> {
        let span = self.attributes.span(name)?;
        trace::set_head(&span, self.parts);
        Some(span)
    }

    /// How objects of a resource are written.
    fn form(&self, accepted: Accepted, target: &Target) -> Form {
        // Subresources with bodies of their own do not have the kind's printer.
        let own_body = target
            .subresource
            .as_ref()
            .and_then(|name| target.resource.subresource(name))
            .is_some_and(|sub| sub.gvk != target.resource.gvk);
        Form {
            resource: target.resource.clone(),
            transform: accepted.transform,
            encoding: accepted.encoding,
            pretty: self.style.pretty || accepted.pretty,
            include: IncludeObject::of(self.query).unwrap_or_default(),
            has_printer: !own_body,
            is_scale: target.subresource == Some(Subresource::Scale),
            now: self.registry.clock().now(),
        }
    }
}

/// One object as it is answered, in JSON.
fn transformed(transform: Transform, form: &Form, bytes: Bytes) -> Bytes {
    match transform {
        Transform::None | Transform::PartialList(_) => bytes,
        _ if members::value(&bytes, "kind") == Some(b"\"Status\"") => bytes,
        Transform::Table(version) => {
            let metadata = table::object_metadata(&bytes);
            form.printer(version).table(&bytes, &metadata, true).into()
        }
        Transform::Partial(version) => {
            let mut out = Vec::new();
            table::partial(&mut out, &bytes, form.resource.kind, version);
            out.into()
        }
    }
}

/// Whether objects of a target have rows in Tables: what only creates objects that are not kept
/// (reviews, tokens, bindings, evictions) has none, nor have subresources without a printer in the
/// reference.
fn has_tables(target: &Target) -> bool {
    match target.subresource_name() {
        "token" | "binding" | "eviction" => false,
        "approval" | "ephemeralcontainers" | "finalize" | "resize" => false,
        "status" => target.resource.status.is_none_or(|rule| rule.has_tables),
        "" => target.resource.serves(&Verb::Get),
        _ => true,
    }
}

fn code(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

/// The Success `Status` of a delete that removed the object.
fn deleted_status(target: &Target, uid: String) -> Status {
    let resource = target.resource.group_resource();
    Status {
        status: "Success".to_owned(),
        details: Some(Details {
            name: target.name.clone(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            uid,
            ..Details::default()
        }),
        ..Status::default()
    }
}

/// The Status of an object that was removed without being read: as there, it names the kind.
fn unread_status(target: &Target) -> Status {
    Status {
        status: "Success".to_owned(),
        details: Some(Details {
            name: target.name.clone(),
            kind: target.resource.gvk.kind.to_string(),
            ..Details::default()
        }),
        code: Some(200),
        ..Status::default()
    }
}
