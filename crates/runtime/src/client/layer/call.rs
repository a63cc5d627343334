//! Parses the path of a request.

use std::{fmt, sync::Arc};

use http::{Method, Request, header};

use super::query;

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the verbs of the API, as they are")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    /// A JSON, merge or strategic merge patch.
    Patch,
    /// Server-side apply.
    Apply,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// Whether it is a write.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// As in RBAC, where apply is a patch.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch | Self::Apply => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// The parsed path of a request for a resource. Its texts are not unescaped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiCall {
    /// The verb.
    pub verb: Verb,
    /// The group; empty for the core group.
    pub group: Arc<str>,
    /// The version.
    pub version: Arc<str>,
    /// The plural name.
    pub resource: Arc<str>,
    /// The namespace. Empty if the path has none: for all namespaces, and for cluster-scoped
    /// objects.
    pub namespace: Arc<str>,
    /// The object's name; empty for a collection.
    pub name: Arc<str>,
    /// The subresource; empty for the object itself.
    pub subresource: Arc<str>,
}

impl ApiCall {
    /// Parses a request; `None` if it is not for a resource, such as discovery.
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let mut parts = request.uri().path().trim_matches('/').split('/');
        let (group, version) = match parts.next()? {
            "api" => ("", parts.next()?),
            "apis" => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        let mut namespace = "";
        // `namespaces/a` and `namespaces/a/status` are about an object; `namespaces/a/pods` is
        // about a collection in it.
        if let ["namespaces", of, collection, ..] = parts[..]
            && !matches!(collection, "status" | "finalize")
        {
            namespace = of;
            parts.drain(..2);
        }
        let (resource, name, subresource) = match parts[..] {
            [] => return None,
            [resource] => (resource, "", ""),
            [resource, name] => (resource, name, ""),
            [resource, name, subresource, ..] => (resource, name, subresource),
        };
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let is_apply = content_type
            .is_some_and(|value| value.as_bytes().starts_with(b"application/apply-patch"));
        let is_watch = matches!(query::value(request.uri(), "watch"), Some("true" | "1"));
        let verb = match *request.method() {
            Method::GET | Method::HEAD if is_watch => Verb::Watch,
            Method::GET | Method::HEAD if name.is_empty() => Verb::List,
            Method::GET | Method::HEAD => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH if is_apply => Verb::Apply,
            Method::PATCH => Verb::Patch,
            Method::DELETE if name.is_empty() => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ => return None,
        };
        Some(Self {
            verb,
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            subresource: subresource.into(),
        })
    }

    /// The resource with its group, as errors and logs name it: `deployments.apps`.
    pub fn group_resource(&self) -> String {
        match &*self.group {
            "" => self.resource.to_string(),
            group => format!("{}.{group}", self.resource),
        }
    }
}

/// `update deployments.apps/status web/a`.
impl fmt::Display for ApiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb.as_str(), self.group_resource())?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        match (&*self.namespace, &*self.name) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, "") => write!(f, " in {namespace}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}
