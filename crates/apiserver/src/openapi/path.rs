//! Paths and their operations.

use super::parameter::Parameter;
use super::row::{Kind, Row, Sub};
use super::template::Templates;
use super::{Dialect, Texts, name, parameter, phrase, schema, write_value};
use serde_json::{Map, Value, json};
use setpoint_registry::SchemaLanguage;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CBOR: &str = "application/cbor";
const TEXT: &str = "text/plain";
/// The media types of documents that list versions, groups and resources.
pub(super) const OBJECT_TYPES: [&str; 3] = [JSON, YAML, PROTOBUF];
const JSON_WATCH: &str = "application/json;stream=watch";
const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const CBOR_WATCH: &str = "application/cbor-seq";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
const CBOR_APPLY_PATCH: &str = "application/apply-patch+cbor";

/// Subresources that connect to a node, a Service or a pod instead of reading or writing an object.
const CONNECT: [&str; 4] = ["attach", "exec", "portforward", PROXY];
const PROXY: &str = "proxy";
const LOG: &str = "log";

/// One path, built when it is written.
#[derive(Debug)]
pub(super) struct Path<'a> {
    pub(super) row: &'a Row<'a>,
    pub(super) place: Place<'a>,
    pub(super) dialect: Dialect,
    pub(super) texts: Texts<'a>,
}
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    Collection,
    Everywhere,
    Item,
    Sub(&'a Sub<'a>),
    /// Below a proxy.
    SubPath(&'a Sub<'a>),
    WatchCollection,
    WatchEverywhere,
    WatchItem,
    /// The list of the group version's resources.
    Resources,
}

/// The action of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    List,
    Get,
    Watch,
    WatchList,
    Post,
    Put,
    Patch,
    Delete,
    DeleteCollection,
    Connect,
}
impl Action {
    /// `x-kubernetes-action`.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "get",
            Self::Watch => "watch",
            Self::WatchList => "watchlist",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Connect => "connect",
        }
    }
    /// The first word of the operation's id.
    fn word(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "read",
            Self::Watch | Self::WatchList => "watch",
            Self::Post => "create",
            Self::Put => "replace",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection => "delete",
            Self::Connect => "connect",
        }
    }
}

/// Every path of these resources, by name.
pub(super) fn all<'a>(
    rows: &'a [Row<'a>],
    dialect: Dialect,
    texts: Texts<'a>,
) -> Vec<(String, Path<'a>)> {
    let mut out = Vec::new();
    if let Some(row) = rows.iter().find(|row| row.language == SchemaLanguage::GoTypes) {
        let path = format!("/{}/{}/", name::root(row.kind.group), row.kind.version);
        out.push((path, Path { row, place: Place::Resources, dialect, texts }));
    }
    for row in rows {
        let root = format!("/{}/{}", name::root(row.kind.group), row.kind.version);
        let scope = if row.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{scope}/{}", row.resource);
        let item = format!("{collection}/{{name}}");
        let mut add = |path: String, place| out.push((path, Path { row, place, dialect, texts }));
        if ["list", "create", "deletecollection"].iter().any(|verb| row.serves(verb)) {
            add(format!("{root}{collection}"), Place::Collection);
        }
        if row.namespaced && row.serves("list") {
            add(format!("{root}/{}", row.resource), Place::Everywhere);
        }
        if ["get", "update", "patch", "delete"].iter().any(|verb| row.serves(verb)) {
            add(format!("{root}{item}"), Place::Item);
        }
        for sub in &row.subresources {
            add(format!("{root}{item}/{}", sub.name), Place::Sub(sub));
            if sub.name == PROXY {
                add(format!("{root}{item}/{}/{{path}}", sub.name), Place::SubPath(sub));
            }
        }
        if row.has_watch_paths {
            add(format!("{root}/watch{collection}"), Place::WatchCollection);
            add(format!("{root}/watch{item}"), Place::WatchItem);
            if row.namespaced {
                add(format!("{root}/watch/{}", row.resource), Place::WatchEverywhere);
            }
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

impl<'a> Path<'a> {
    /// Appends the path item to a document in JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>, templates: &mut Templates<'a>) {
        if !templates.write(self, out) {
            write_value(out, &self.build());
        }
    }

    /// The path item.
    pub(super) fn build(&self) -> Value {
        if matches!(self.place, Place::Resources) {
            let kind = &self.row.kind;
            let (tag, id) = (name::tag(kind), name::in_operation(kind) + "APIResources");
            let answer = Some(schema::META_RESOURCES);
            return read(&tag, &id, phrase::RESOURCES, &OBJECT_TYPES, answer, self.dialect);
        }
        let methods = self.methods();
        let mut operations: Vec<_> =
            methods.into_iter().map(|(method, action)| self.operation(method, action)).collect();
        let shared = share(&mut operations);
        let made = operations.into_iter().map(|operation| {
            let Operation { method, mut members, parameters } = operation;
            if !parameters.is_empty() {
                members.insert("parameters".to_owned(), parameters.into());
            }
            (method.to_owned(), members.into())
        });
        let mut out: Map<String, Value> = made.collect();
        out.insert("parameters".to_owned(), shared.into());
        out.into()
    }

    /// The subresource, if it is one.
    fn sub(&self) -> Option<&'a Sub<'a>> {
        match self.place {
            Place::Sub(sub) | Place::SubPath(sub) => Some(sub),
            _ => None,
        }
    }

    fn methods(&self) -> Vec<(&'static str, Action)> {
        let verbs: &[(&str, &str, Action)] = match self.place {
            Place::Resources => return Vec::new(),
            Place::WatchCollection | Place::WatchEverywhere => {
                return vec![("get", Action::WatchList)];
            }
            Place::WatchItem => return vec![("get", Action::Watch)],
            Place::Collection => &[
                ("list", "get", Action::List),
                ("create", "post", Action::Post),
                ("deletecollection", "delete", Action::DeleteCollection),
            ],
            Place::Everywhere => &[("list", "get", Action::List)],
            Place::Item | Place::Sub(_) | Place::SubPath(_) => &[
                ("get", "get", Action::Get),
                ("create", "post", Action::Post),
                ("update", "put", Action::Put),
                ("patch", "patch", Action::Patch),
                ("delete", "delete", Action::Delete),
            ],
        };
        let (served, connect) = match self.sub() {
            Some(sub) => (&sub.verbs, CONNECT.contains(&sub.name)),
            None => (&self.row.verbs, false),
        };
        let is_item = matches!(self.place, Place::Item);
        let mut methods: Vec<_> = verbs
            .iter()
            .filter(|(verb, _, _)| served.contains(verb) && !(is_item && *verb == "create"))
            .map(|(_, method, action)| (*method, if connect { Action::Connect } else { *action }))
            .collect();
        if self.sub().is_some_and(|sub| sub.name == PROXY) {
            methods.extend(["head", "options"].map(|method| (method, Action::Connect)));
        }
        methods
    }

    /// The kind of an operation.
    fn kind(&self) -> Kind<'_> {
        self.sub().map_or(self.row.kind, |sub| sub.kind)
    }

    /// The kind that the reference gives an operation. A custom resource's scale has its own.
    fn published_kind(&self) -> Kind<'_> {
        if self.row.has_own_schema() { self.row.kind } else { self.kind() }
    }

    fn id(&self, method: &str, action: Action) -> String {
        let gv = name::in_operation(&self.row.kind);
        let kind = self.row.kind.kind;
        let namespaced = if self.row.namespaced { "Namespaced" } else { "" };
        let word = action.word();
        match self.place {
            Place::Everywhere => format!("{word}{gv}{kind}ForAllNamespaces"),
            Place::WatchEverywhere => format!("{word}{gv}{kind}ListForAllNamespaces"),
            Place::WatchCollection => format!("{word}{gv}{namespaced}{kind}List"),
            Place::Sub(sub) | Place::SubPath(sub) if action == Action::Connect => {
                let method = name::subresource(method);
                let sub = name::subresource(sub.name);
                let path = if matches!(self.place, Place::SubPath(_)) { "WithPath" } else { "" };
                format!("{word}{gv}{method}{namespaced}{kind}{sub}{path}")
            }
            Place::Sub(sub) => {
                format!("{word}{gv}{namespaced}{kind}{}", name::subresource(sub.name))
            }
            _ if action == Action::DeleteCollection => {
                format!("{word}{gv}Collection{namespaced}{kind}")
            }
            _ => format!("{word}{gv}{namespaced}{kind}"),
        }
    }

    /// Whether it is the log of a pod, which is a text.
    fn is_log(&self) -> bool {
        self.sub().is_some_and(|sub| sub.name == LOG)
    }

    /// The schema of the answer.
    fn answer(&self, action: Action) -> Option<Value> {
        let list = Kind { kind: &self.row.list_kind, ..self.row.kind };
        let name = match action {
            Action::List => self.row.schema_name(&list, self.dialect),
            Action::Watch | Action::WatchList => Some(schema::WATCH_EVENT.to_owned()),
            Action::Delete if self.row.returns_deleted => {
                self.row.schema_name(&self.row.kind, self.dialect)
            }
            Action::Delete | Action::DeleteCollection => Some(schema::STATUS.to_owned()),
            Action::Connect => return Some(json!({"type": "string"})),
            Action::Get if self.is_log() => return Some(json!({"type": "string"})),
            Action::Get | Action::Post | Action::Put | Action::Patch => {
                self.row.schema_name(&self.kind(), self.dialect)
            }
        };
        name.map(|name| self.dialect.reference(&name))
    }

    /// The schema of the request body, and whether the body is required.
    fn body(&self, action: Action) -> Option<(Value, bool)> {
        let (name, required) = match action {
            Action::Post | Action::Put => (self.row.schema_name(&self.kind(), self.dialect), true),
            Action::Patch => (Some(schema::PATCH.to_owned()), true),
            Action::DeleteCollection if self.row.has_own_schema() => return None,
            Action::Delete | Action::DeleteCollection => {
                (Some(schema::DELETE_OPTIONS.to_owned()), false)
            }
            _ => return None,
        };
        Some((self.dialect.reference(&name?), required))
    }

    /// All parameters of an operation, by name.
    fn parameters(&self, action: Action) -> Vec<Parameter> {
        let query: Vec<_> = match action {
            Action::List | Action::Watch | Action::WatchList => parameter::LIST.to_vec(),
            Action::Post | Action::Put => parameter::WRITE.to_vec(),
            Action::Patch => parameter::PATCH.to_vec(),
            Action::Delete => parameter::DELETE.to_vec(),
            // As the reference publishes custom resources.
            Action::DeleteCollection if self.row.has_own_schema() => parameter::LIST.to_vec(),
            Action::DeleteCollection => {
                let mut all = [parameter::DELETE, parameter::LIST].concat();
                all.retain(|(name, _)| !matches!(*name, "allowWatchBookmarks" | "watch"));
                all
            }
            Action::Get if self.row.has_own_schema() => vec![parameter::RESOURCE_VERSION],
            Action::Get | Action::Connect => Vec::new(),
        };
        let mut all: Vec<_> = query.into_iter().map(Parameter::Query).collect();
        if matches!(self.place, Place::Item | Place::Sub(_) | Place::SubPath(_) | Place::WatchItem)
        {
            all.push(Parameter::Path("name"));
        }
        if self.row.namespaced && !matches!(self.place, Place::Everywhere | Place::WatchEverywhere)
        {
            all.push(Parameter::Path("namespace"));
        }
        if matches!(self.place, Place::SubPath(_)) {
            all.push(Parameter::Path("path"));
        }
        let sub = self.sub().map_or("", |sub| sub.name);
        if !CONNECT.contains(&sub) {
            all.push(Parameter::Query(parameter::PRETTY));
        }
        all.extend(parameter::of_subresource(sub).iter().copied().map(Parameter::Query));
        all.sort_unstable_by_key(|parameter| (parameter.name(), parameter.place()));
        all
    }

    fn parameter(&self, action: Action, parameter: Parameter) -> Value {
        let is_name = parameter == Parameter::Path("name");
        let name = is_name.then(|| phrase::name_of(self.published_kind().kind));
        let description = name.as_deref().or_else(|| {
            let sub = self.sub().map(|sub| (self.row.resource, sub.name));
            let descriptions = self.texts.descriptions;
            descriptions.and_then(|texts| texts.of_parameter(sub, action, parameter))
        });
        parameter.build(self.dialect, description)
    }

    fn answer_types(&self, action: Action) -> Vec<&'static str> {
        let mut types = match (action, self.row.language) {
            (Action::Connect, _) => return vec!["*/*"],
            (_, SchemaLanguage::GoTypes) if self.is_log() => vec![TEXT, JSON, YAML, PROTOBUF],
            (_, SchemaLanguage::GoTypes) => vec![JSON, YAML, PROTOBUF],
            (_, SchemaLanguage::OpenApi) => return vec![JSON, YAML],
        };
        types.extend(self.row.cbor.then_some(CBOR));
        if matches!(action, Action::List | Action::Watch | Action::WatchList) {
            types.extend([JSON_WATCH, PROTOBUF_WATCH]);
            types.extend(self.row.cbor.then_some(CBOR_WATCH));
        }
        types
    }

    fn body_types(&self, action: Action) -> Vec<&'static str> {
        match (action, self.row.language) {
            (Action::Patch, SchemaLanguage::GoTypes) => {
                let mut types = vec![JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH];
                types.extend(self.row.cbor.then_some(CBOR_APPLY_PATCH));
                types
            }
            (Action::Patch, SchemaLanguage::OpenApi) => vec![JSON_PATCH, MERGE_PATCH, APPLY_PATCH],
            (_, SchemaLanguage::GoTypes) => vec!["*/*"],
            (_, SchemaLanguage::OpenApi) => vec![JSON, YAML],
        }
    }

    fn operation(&self, method: &'static str, action: Action) -> Operation {
        let parameters = self.parameters(action).into_iter();
        let mut parameters: Vec<_> =
            parameters.map(|parameter| self.parameter(action, parameter)).collect();
        let body = self.body(action);
        let mut out = Map::new();
        let mut add = |key: &str, value: Value| out.insert(key.to_owned(), value);
        add("tags", json!([name::tag(&self.row.kind)]));
        add("operationId", self.id(method, action).into());
        let (kind, sub) = (self.row.kind.kind, self.sub().map(|sub| sub.name));
        add("description", phrase::of(action, method, kind, sub, self.row.watches()).into());
        let codes: &[(&str, &str)] = match action {
            Action::Post => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            Action::Patch if self.row.has_own_schema() => &[("200", "OK")],
            Action::Put | Action::Patch => &[("200", "OK"), ("201", "Created")],
            Action::Delete => &[("200", "OK"), ("202", "Accepted")],
            _ => &[("200", "OK")],
        };
        let mut responses = Map::new();
        for (code, description) in codes {
            let mut response = json!({"description": description});
            if let Some(answer) = self.answer(action) {
                match self.dialect {
                    Dialect::V2 => response["schema"] = answer,
                    Dialect::V3 => {
                        response["content"] = content(&self.answer_types(action), &answer);
                    }
                }
            }
            responses.insert((*code).to_owned(), response);
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        add("responses", responses.into());
        match self.dialect {
            Dialect::V2 => {
                add("consumes", self.body_types(action).into());
                add("produces", self.answer_types(action).into());
                add("schemes", json!(["https"]));
                if let Some((schema, required)) = body {
                    let mut body = json!({"in": "body", "name": "body", "schema": schema});
                    if required {
                        body["required"] = true.into();
                    }
                    parameters.insert(0, body);
                }
            }
            Dialect::V3 => {
                if let Some((schema, required)) = body {
                    let mut body = json!({"content": content(&self.body_types(action), &schema)});
                    if required {
                        body["required"] = true.into();
                    }
                    add("requestBody", body);
                }
            }
        }
        add("x-kubernetes-action", action.extension().into());
        add("x-kubernetes-group-version-kind", schema::gvk(&self.published_kind()));
        Operation { method, members: out, parameters }
    }
}

/// An operation of a path.
struct Operation {
    method: &'static str,
    /// Its members, without its parameters.
    members: Map<String, Value>,
    parameters: Vec<Value>,
}

/// Takes out the parameters that all operations of a path have, except bodies: they are the path's.
fn share(operations: &mut [Operation]) -> Vec<Value> {
    let Some((first, others)) = operations.split_first() else { return Vec::new() };
    let is_shared = |parameter: &&Value| {
        parameter["in"] != "body"
            && others.iter().all(|operation| operation.parameters.contains(parameter))
    };
    let shared: Vec<_> = first.parameters.iter().filter(is_shared).cloned().collect();
    for operation in operations {
        operation.parameters.retain(|parameter| !shared.contains(parameter));
    }
    shared
}

/// The path item of a document that is only read.
pub(super) fn read(
    tag: &str,
    id: &str,
    description: &str,
    types: &[&str],
    answer: Option<&str>,
    dialect: Dialect,
) -> Value {
    let is_negotiated = answer.is_some();
    let answer = answer.map_or_else(|| json!({"type": "string"}), |name| dialect.reference(name));
    let mut ok = json!({"description": "OK"});
    let mut operation = json!({"tags": [tag], "operationId": format!("get{id}")});
    operation["description"] = description.into();
    match dialect {
        Dialect::V2 => {
            ok["schema"] = answer;
            if is_negotiated {
                operation["consumes"] = types.into();
            }
            operation["produces"] = types.into();
            operation["schemes"] = json!(["https"]);
        }
        Dialect::V3 => ok["content"] = content(types, &answer),
    }
    operation["responses"] = json!({"200": ok, "401": {"description": "Unauthorized"}});
    json!({"get": operation})
}

fn content(types: &[&str], schema: &Value) -> Value {
    types.iter().map(|ty| ((*ty).to_owned(), json!({"schema": schema}))).collect()
}
