//! Routes a path with the catalog of one moment.
//!
//! Routing walks over the path segments: non-resource roots first, then `/api/{version}` and
//! `/apis/{group}/{version}` followed by a resource path. The form of a 404 matters to clients:
//! plain text where no route exists at all, a `Status` below a built-in group.

use crate::query::decode_path;
use setpoint_object::field::quote;
use setpoint_object::{ApiError, Reason};
use setpoint_registry::{Catalog, Resource, ResourcePath, Routes, Subresource, Target, Verb};
use std::sync::Arc;

/// The route of a path.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// `/`.
    Root,
    /// `/version`.
    Version,
    /// `/statusz`.
    Statusz,
    /// `/flagz`.
    Flagz,
    /// `/healthz`, `/livez`, `/readyz` and their single checks.
    Health {
        /// `healthz`, `livez` or `readyz`.
        endpoint: &'static str,
        /// A single check's name.
        check: Option<String>,
    },
    /// `/api`.
    ApiVersions,
    /// `/apis`.
    ApiGroups,
    /// `/apis/{group}`.
    ApiGroup(Arc<str>),
    /// `/api/v1`, `/apis/{group}/{version}`.
    ApiResources {
        /// Group; empty for the core group.
        group: Arc<str>,
        /// Version.
        version: Arc<str>,
    },
    /// `/openapi/…`: the rest of the path.
    OpenApi(String),
    /// `/.well-known/openid-configuration`: where the keys of service account tokens are.
    OpenIdConfiguration,
    /// `/openid/v1/jwks`: those keys.
    PublicKeys,
    /// A resource path.
    Resource(ResourceRoute),
}

/// A path of a served resource.
#[derive(Debug, Clone)]
pub(crate) struct ResourceRoute {
    /// The target.
    pub(crate) target: Target,
    /// Whether the path has the deprecated `/watch/` prefix.
    pub(crate) watch: bool,
    /// Whether the path names a namespace, be it the empty one.
    pub(crate) scoped: bool,
}

/// The answer to a path without a route.
#[derive(Debug)]
pub(crate) enum Unrouted {
    /// `404 page not found` as plain text.
    Page,
    /// A `Status`.
    Status(Box<ApiError>),
}

impl Unrouted {
    /// The answer to a path that these routes do not have.
    fn of(routes: Routes) -> Self {
        match routes {
            Routes::Installed => Self::no_route(),
            Routes::Dynamic => Self::Page,
        }
    }

    fn no_route() -> Self {
        Self::Status(Box::new(ApiError::no_route()))
    }

    /// As a `Status`, for callers that cannot use plain text.
    pub(crate) fn into_error(self) -> ApiError {
        match self {
            Self::Page => ApiError::no_route(),
            Self::Status(error) => *error,
        }
    }
}

/// Finds the route of a path (without its query, still percent-encoded).
///
/// # Errors
///
/// The answer if there is none.
pub(crate) fn route(catalog: &Catalog, path: &str) -> Result<Route, Unrouted> {
    // Of a CONNECT, the target is an authority.
    let path = decode_path(path).filter(|path| !path.is_empty()).ok_or(Unrouted::Page)?;
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(&path).split('/').collect();
    // Slashes at the end of these paths do not count.
    let mut whole = segments.as_slice();
    while let [head @ .., ""] = whole {
        whole = head;
    }
    match whole {
        ["version"] => return Ok(Route::Version),
        [".well-known", "openid-configuration"] => return Ok(Route::OpenIdConfiguration),
        ["openid", "v1", "jwks"] => return Ok(Route::PublicKeys),
        ["api"] => return Ok(Route::ApiVersions),
        ["apis", group] => {
            let group = catalog.group(group).filter(|group| !group.name.is_empty());
            return Ok(Route::ApiGroup(group.ok_or(Unrouted::Page)?.name.clone()));
        }
        _ => {}
    }
    match segments.as_slice() {
        [""] | ["index.html"] => Ok(Route::Root),
        ["statusz"] => Ok(Route::Statusz),
        ["flagz"] => Ok(Route::Flagz),
        ["version", ..] => Err(Unrouted::no_route()),
        [endpoint @ ("healthz" | "livez" | "readyz"), check @ ..] => health(endpoint, check),
        ["openapi", rest @ ..] => Ok(Route::OpenApi(rest.join("/"))),
        ["api", version, rest @ ..] => group_version(catalog, "", version, rest),
        ["apis"] | ["apis", ""] => Ok(Route::ApiGroups),
        ["apis", group, version, rest @ ..] if !group.is_empty() => {
            group_version(catalog, group, version, rest)
        }
        _ => Err(Unrouted::Page),
    }
}

fn health(endpoint: &str, check: &[&str]) -> Result<Route, Unrouted> {
    let endpoint = match endpoint {
        "healthz" => "healthz",
        "livez" => "livez",
        _ => "readyz",
    };
    if check == [""] {
        return Err(Unrouted::Page);
    }
    let check = Some(check.join("/")).filter(|check| !check.is_empty());
    Ok(Route::Health { endpoint, check })
}

fn group_version(
    catalog: &Catalog,
    group: &str,
    version: &str,
    rest: &[&str],
) -> Result<Route, Unrouted> {
    let group = catalog.group(group).ok_or(Unrouted::Page)?;
    let miss = || Unrouted::of(group.routes);
    let version = group.versions.iter().find(|v| &***v == version).ok_or_else(miss)?;
    // Slashes at the end of a path do not count.
    let mut rest = rest;
    while let [head @ .., ""] = rest {
        rest = head;
    }
    if rest.is_empty() {
        return Ok(Route::ApiResources { group: group.name.clone(), version: version.clone() });
    }
    // What follows a proxied object is a path of its own.
    let proxy = rest.iter().skip(2).position(|word| *word == "proxy").map(|at| at + 2);
    let n_words = proxy.filter(|_| group.name.is_empty()).unwrap_or(rest.len());
    // Namespaces and names may be empty: then they are missing.
    let may_be_empty = |at: usize| match group.routes {
        Routes::Installed => at % 2 == 1,
        Routes::Dynamic => at == 1 && rest[0] == "namespaces",
    };
    if (0..n_words).any(|at| rest[at].is_empty() && !may_be_empty(at)) {
        return Err(miss());
    }
    let (watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let core = group.name.is_empty();
    let (namespace, scoped, rest) = match rest {
        ["namespaces", _] if core => ("", false, rest),
        ["namespaces", _, "status" | "finalize"] if core => ("", false, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, true, rest),
        rest => ("", false, rest),
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, "", ""),
        [resource, name] => (*resource, *name, ""),
        [resource, name, subresource] => (*resource, *name, *subresource),
        // Only a proxy passes the rest of the path on. Custom resources ignore it.
        [resource, name, "proxy", ..] => (*resource, *name, "proxy"),
        [resource, name, subresource, ..] if group.routes == Routes::Dynamic => {
            (*resource, *name, *subresource)
        }
        _ => return Err(miss()),
    };

    let is_nameless = name.is_empty() && !subresource.is_empty();
    let path = ResourcePath {
        group: group.name.to_string(),
        version: version.to_string(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: if is_nameless { "_" } else { name }.to_owned(),
        subresource: Subresource::of(subresource),
    };
    let target = find(catalog, path, scoped)?;
    let is_installed = target.resource.routes == Routes::Installed;
    let missing = match (is_nameless, scoped && namespace.is_empty() && !name.is_empty()) {
        (true, _) => Some(ApiError::bad_request("name must be provided")),
        (_, true) if !is_installed => return Err(Unrouted::Page),
        (_, true) => Some(ApiError::bad_request("Namespace parameter required.")),
        // Keys of the reference's store are paths.
        _ if matches!(namespace, "." | "..") => {
            let name = if name.is_empty() { String::new() } else { format!("/{name}") };
            let group = if is_installed { String::new() } else { format!("/{}", group.name) };
            let key = quote(&format!("{group}/{resource}/{namespace}{name}"));
            Some(ApiError::new(500, Reason::Unknown, format!("invalid key: {key}")))
        }
        _ => None,
    };
    match missing {
        Some(error) => Err(Unrouted::Status(Box::new(error))),
        None => Ok(Route::Resource(ResourceRoute { target, watch, scoped })),
    }
}

/// Finds the row that serves a resource. `scoped`: the path names a namespace.
///
/// # Errors
///
/// The answer if there is none, or none with this scope or subresource.
pub(crate) fn find(
    catalog: &Catalog,
    path: ResourcePath,
    scoped: bool,
) -> Result<Target, Unrouted> {
    let ResourcePath { group, version, resource, namespace, name, subresource } = path;
    let Some(row) = catalog.get(&group, &version, &resource) else {
        let routes = catalog.group(&group).map_or(Routes::Dynamic, |group| group.routes);
        return Err(Unrouted::of(routes));
    };
    // An object's path must match the scope of its resource. The collection of all namespaces has
    // no namespace.
    if scoped != row.scope.is_namespaced() && !(row.scope.is_namespaced() && name.is_empty()) {
        return Err(Unrouted::of(row.routes));
    }
    // What is not listed has no collection of all namespaces.
    let is_everywhere = row.scope.is_namespaced() && !scoped;
    if is_everywhere && row.routes == Routes::Installed && !row.serves(&Verb::List) {
        return Err(Unrouted::no_route());
    }
    if subresource.as_ref().is_some_and(|name| row.subresource(name).is_none()) {
        return Err(Unrouted::Status(Box::new(row.no_subresource(&name))));
    }
    let is_installed = row.routes == Routes::Installed;
    if !name.is_empty() && subresource.is_none() && !has_items(row) && is_installed {
        return Err(Unrouted::no_route());
    }
    check_name(&name)?;
    // A Namespace object is in its own namespace.
    let is_namespace = group.is_empty() && resource == "namespaces";
    let namespace = if is_namespace { String::new() } else { namespace };
    Ok(Target { resource: row.clone(), namespace, name, subresource })
}

/// A resource path that no row of the catalog serves.
#[derive(Debug)]
pub(crate) struct Unserved {
    /// The resource.
    pub(crate) path: ResourcePath,
    /// The verb of every method, if the path has a deprecated prefix: `/watch/` or `/proxy/`.
    pub(crate) verb: Option<Verb>,
}

/// Parses a resource path that is not served here, so that the request can be authorized before it
/// is refused. `None`: not a resource path.
pub(crate) fn unserved(path: &str) -> Option<Unserved> {
    let path = decode_path(path)?;
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", version, rest),
        ["apis", group, version, rest @ ..] => (*group, version, rest),
        _ => return None,
    };
    let (verb, rest) = match rest {
        [verb @ ("watch" | "proxy"), rest @ ..] if !rest.is_empty() => {
            (Some(Verb::from(*verb)), rest)
        }
        rest => (None, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, below @ ..] => {
            let is_namespace = matches!(below, [] | ["status" | "finalize"]);
            (*namespace, if is_namespace { rest } else { below })
        }
        rest => ("", rest),
    };
    let word = |at: usize| rest.get(at).copied().unwrap_or_default();
    // What follows a proxied object is a path of the object, not a subresource.
    let is_proxy = verb.as_ref().is_some_and(|verb| verb.as_str() == "proxy");
    (!rest.is_empty()).then(|| Unserved {
        path: ResourcePath {
            group: group.to_owned(),
            version: (*version).to_owned(),
            resource: word(0).to_owned(),
            namespace: namespace.to_owned(),
            name: word(1).to_owned(),
            subresource: Subresource::of(if is_proxy { "" } else { word(2) }),
        },
        verb,
    })
}

/// Whether a path may be that of a document which lists resources: of discovery or OpenAPI.
pub(crate) fn lists_resources(path: &str) -> bool {
    let mut segments = path.trim_matches('/').split('/');
    match segments.next() {
        Some("openapi") => true,
        Some("apis") => segments.count() <= 2,
        _ => false,
    }
}

/// Whether a path ends after a deprecated prefix, so that it names nothing.
pub(crate) fn names_nothing(path: &str) -> bool {
    let Some(path) = decode_path(path) else { return false };
    let mut segments = path.trim_matches('/').split('/');
    match segments.next() {
        Some("api") => {}
        Some("apis") => _ = segments.next(),
        _ => return false,
    }
    let (version, prefix) = (segments.next(), segments.next());
    version.is_some() && matches!(prefix, Some("watch" | "proxy")) && segments.next().is_none()
}

/// Whether single objects of a resource have a path: reviews and bindings do not.
fn has_items(row: &Resource) -> bool {
    [Verb::Get, Verb::Update, Verb::Patch, Verb::Delete].iter().any(|verb| row.serves(verb))
}

/// A name in a URL must be a valid path segment, for every verb.
fn check_name(name: &str) -> Result<(), Unrouted> {
    let why = match name {
        "." => "may not be '.'",
        ".." => "may not be '..'",
        name if name.contains('%') => "may not contain '%'",
        _ => return Ok(()),
    };
    Err(Unrouted::Status(Box::new(ApiError::bad_request(format!(
        "Name parameter invalid: {}: {why}",
        quote(name)
    )))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_end_after_a_deprecated_prefix_name_nothing() {
        for (path, expected) in [
            ("/api/v1/watch", true),
            ("/apis/apps/v1/proxy//", true),
            ("/api/v1/%77atch/", true),
            ("/api/v1/watch/pods", false),
            ("/api/watch", false),
            ("/apis/apps/watch", false),
            ("/watch", false),
        ] {
            assert_eq!(names_nothing(path), expected, "{path}");
        }
    }

    #[test]
    fn deprecated_prefixes_are_verbs() {
        for (path, verb, expected) in [
            ("/api/v1/pods/a/log", "", ("", "pods", "a", "log")),
            ("/api/v1/watch/namespaces/d/pods/a", "watch", ("d", "pods", "a", "")),
            ("/api/v1/proxy/namespaces/d/pods/a/log", "proxy", ("d", "pods", "a", "")),
            ("/api/v1/proxy/nodes/n", "proxy", ("", "nodes", "n", "")),
            ("/api/v1/proxy", "", ("", "proxy", "", "")),
        ] {
            let Unserved { path: named, verb: found } = unserved(path).unwrap();
            assert_eq!(found.as_ref().map_or("", Verb::as_str), verb, "{path}");
            let subresource = named.subresource.as_ref().map_or("", |sub| sub.as_str());
            let found = (&*named.namespace, &*named.resource, &*named.name, subresource);
            assert_eq!(found, expected, "{path}");
        }
    }
}
