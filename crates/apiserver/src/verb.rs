//! From an HTTP method on a resource path to a verb, and the refusals of methods that are not served there.

use crate::query::Query;
use crate::route::ResourceRoute;
use http::Method;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, Reason};

/// What a request does to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// Changes of a collection, as a stream.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// The API's word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it only reads.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// The verb of a request on a resource path.
    ///
    /// # Errors
    ///
    /// 405 where the method is not served; custom resources name the verb, and refuse a PUT or PATCH of a collection with 400.
    /// `None` is the plain-text 404 of a custom resource's create or deletecollection over all namespaces.
    pub(crate) fn of(
        method: &Method,
        route: &ResourceRoute,
        query: &Query,
    ) -> Result<Self, Option<Box<ApiError>>> {
        let target = &route.target;
        let row = &target.resource;
        let named = !target.name.is_empty();
        let refuse = |verb: &str| Err(Some(Box::new(not_allowed(row, verb))));
        let verb = match *method {
            // Built-in routes know no HEAD.
            Method::HEAD if !row.custom => return refuse("get"),
            Method::GET | Method::HEAD if route.watch => Self::Watch,
            // The deprecated prefix is for watching only.
            _ if route.watch => return refuse("watch"),
            Method::GET | Method::HEAD if named => Self::Get,
            Method::GET | Method::HEAD if query.flag("watch").unwrap_or(false) => Self::Watch,
            Method::GET | Method::HEAD => Self::List,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE if named => Self::Delete,
            Method::DELETE => Self::DeleteCollection,
            _ => return refuse(&method.as_str().to_ascii_lowercase()),
        };
        if !target.subresource.is_empty() {
            let served = row
                .subresource(&target.subresource)
                .is_some_and(|sub| sub.verbs.iter().any(|v| &**v == verb.as_str()));
            return if served { Ok(verb) } else { refuse(verb.as_str()) };
        }
        let everywhere = row.scope.is_namespaced() && target.namespace.is_empty() && !named;
        match verb {
            Self::Create | Self::DeleteCollection if everywhere && row.custom => Err(None),
            Self::Create | Self::DeleteCollection if everywhere => refuse(verb.as_str()),
            Self::Create if named => refuse("create"),
            Self::Update | Self::Patch if !named && row.custom => {
                Err(Some(Box::new(ApiError::bad_request("name must be provided"))))
            }
            Self::Update | Self::Patch if !named => refuse(verb.as_str()),
            Self::Watch if route.watch && row.serves("watch") => Ok(verb),
            _ if row.serves(verb.as_str()) => Ok(verb),
            _ => refuse(verb.as_str()),
        }
    }
}

fn not_allowed(row: &setpoint_registry::Resource, verb: &str) -> ApiError {
    if !row.custom {
        return ApiError::method_not_allowed();
    }
    let resource = row.group_resource();
    let mut error = ApiError::new(
        405,
        Reason::MethodNotAllowed,
        format!("{verb} is not supported on resources of kind \"{resource}\""),
    );
    error.0.details = Some(Details {
        group: resource.group.to_string(),
        kind: resource.resource.to_string(),
        ..Details::default()
    });
    error
}
