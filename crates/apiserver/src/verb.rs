//! Verbs from HTTP methods, and the refusals of methods that are not served on a resource path.

use crate::query::Query;
use http::Method;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, Reason};
use setpoint_registry::{Resource, Routes, Subresource, Target, Verb};

/// The methods of proxied requests.
const PROXIED: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::OPTIONS,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// The verb of a request on a resource path, served or not, without a deprecated prefix; empty for
/// other methods than those of verbs.
pub(crate) fn of_resource(method: &Method, named: bool, query: &Query) -> Verb {
    match *method {
        Method::GET | Method::HEAD if named => Verb::Get,
        Method::GET | Method::HEAD if query.flag("watch").unwrap_or(false) => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if named => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        _ => Verb::from(""),
    }
}

/// The verb of a request on any other path: the method in lower case.
pub(crate) fn of_path(method: &Method) -> Verb {
    Verb::from(&*method.as_str().to_ascii_lowercase())
}

/// The refusal of a verb that is not served on a resource path.
#[derive(Debug)]
pub(crate) enum NotServed {
    /// `404 page not found` as plain text: a custom resource's create or deletecollection over all
    /// namespaces.
    Page,
    /// 405; 400 for a PUT or PATCH of a collection of custom resources.
    Status(Box<ApiError>),
}

/// Checks that a verb is served on a resource path. `watch`: it has the deprecated prefix;
/// `scoped`: it names a namespace, be it the empty one.
///
/// # Errors
///
/// The refusal. For custom resources it names the verb.
pub(crate) fn check(
    method: &Method,
    verb: &Verb,
    target: &Target,
    (watch, scoped): (bool, bool),
) -> Result<(), NotServed> {
    let row = &*target.resource;
    let named = !target.name.is_empty();
    let is_installed = row.routes == Routes::Installed;
    let refuse = |verb: &str| Err(NotServed::Status(Box::new(not_allowed(row, verb))));
    if target.subresource == Some(Subresource::Proxy) && is_installed {
        return if PROXIED.contains(method) { Ok(()) } else { refuse("") };
    }
    // Installed routes do not support HEAD.
    if *method == Method::HEAD && is_installed {
        return refuse("get");
    }
    // Installed routes have the deprecated prefix for GET only.
    if watch && is_installed && *method != Method::GET {
        return refuse("watch");
    }
    let everywhere = row.scope.is_namespaced() && target.namespace.is_empty() && !named;
    // Over all namespaces, custom resources are only read.
    if everywhere && !is_installed && !matches!(verb, Verb::List | Verb::Watch) {
        return Err(NotServed::Page);
    }
    if let Verb::Other(method) = verb {
        return refuse(method);
    }
    if let Some(name) = &target.subresource {
        let served = row.subresource(name).is_some_and(|sub| sub.verbs.contains(verb));
        return if served { Ok(()) } else { refuse(verb.as_str()) };
    }
    match verb {
        // What lacks a namespace is said later if the path has a place for it.
        Verb::Create | Verb::DeleteCollection if everywhere && !scoped => refuse(verb.as_str()),
        // Custom resources are created whatever the name in the path.
        Verb::Create if named && is_installed => refuse("create"),
        // The type of a patch is looked at before its name.
        Verb::Patch if !named && !is_installed => Ok(()),
        Verb::Update if !named && !is_installed => {
            Err(NotServed::Status(Box::new(ApiError::bad_request("name must be provided"))))
        }
        Verb::Update | Verb::Patch if !named => refuse(verb.as_str()),
        _ if row.serves(verb) => Ok(()),
        _ => refuse(verb.as_str()),
    }
}

fn not_allowed(row: &Resource, verb: &str) -> ApiError {
    if row.routes == Routes::Installed {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_follows_method_and_name() {
        let none = Query::parse("");
        let of = |method, named| of_resource(&method, named, &none).to_string();
        for (method, named, collection) in [
            (Method::GET, "get", "list"),
            (Method::HEAD, "get", "list"),
            (Method::POST, "create", "create"),
            (Method::PUT, "update", "update"),
            (Method::PATCH, "patch", "patch"),
            (Method::DELETE, "delete", "deletecollection"),
            (Method::OPTIONS, "", ""),
            (Method::TRACE, "", ""),
        ] {
            assert_eq!(of(method.clone(), true), named, "{method}");
            assert_eq!(of(method.clone(), false), collection, "{method}");
        }
        assert_eq!(of_path(&Method::OPTIONS).as_str(), "options");
    }
}
