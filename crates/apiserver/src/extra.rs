//! Routes of an embedder.

use crate::body::{Body, RequestBody};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::fmt;
use std::sync::Arc;

/// Answers requests under a path, or for a [`Backend`](crate::Backend). Functions are handlers.
///
/// The request was authenticated, authorized (under a path as a non-resource request: `get
/// /prefix/…`) and counted like any other. Its [`Attributes`](crate::Attributes) are an extension,
/// as `Arc<Attributes>`. Its `Authorization` header is removed. Its body may be of any length: read
/// it through `http_body_util::Limited`.
///
/// ```
/// use http::{Request, Response};
/// use setpoint_apiserver::{Attributes, Body, Handler, RequestBody};
/// use std::sync::Arc;
///
/// /// Greets the user.
/// async fn greet(request: Request<RequestBody>) -> Response<Body> {
///     let attributes = request.extensions().get::<Arc<Attributes>>();
///     let user = attributes.map_or("", |attributes| &attributes.identity.user);
///     Response::new(Body::once(format!("hello {user}")))
/// }
///
/// let handler: Arc<dyn Handler> = Arc::new(greet);
/// ```
pub trait Handler: Send + Sync {
    /// Answers a request. The future is dropped if the client disconnects or the deadline passes.
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>>;

    /// Whether the path is in the index at `/` and on `/statusz`. Default: yes.
    fn is_listed(&self) -> bool {
        true
    }
}

impl<F, A> Handler for F
where
    F: Fn(Request<RequestBody>) -> A + Send + Sync,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
        self(request).boxed()
    }
}

/// The routes, longest prefix first.
#[derive(Clone, Default)]
pub(crate) struct Extra(Vec<(String, Arc<dyn Handler>)>);

impl Extra {
    /// Adds a route, or replaces the handler of an existing prefix.
    pub(crate) fn add(&mut self, prefix: &str, handler: Arc<dyn Handler>) {
        let prefix = format!("/{}", prefix.trim_matches('/'));
        self.0.retain(|(known, _)| *known != prefix);
        self.0.push((prefix, handler));
        self.0.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    }

    /// The handler of a path: that of the longest prefix that ends at a slash or at the path's end.
    pub(crate) fn find(&self, path: &str) -> Option<Arc<dyn Handler>> {
        let is_under = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.0.iter().find(|(prefix, _)| is_under(prefix)).map(|(_, handler)| handler.clone())
    }

    /// The prefixes of those that are listed, for the index.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &str> {
        let listed = self.0.iter().filter(|(_, handler)| handler.is_listed());
        listed.map(|(prefix, _)| prefix.as_str())
    }
}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(prefix, _)| prefix)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_prefix_wins_and_ends_at_a_slash() {
        let mut extra = Extra::default();
        let handler = |_: Request<RequestBody>| async { Response::new(Body::empty()) };
        extra.add("/a", Arc::new(handler));
        extra.add("a/b/", Arc::new(handler));
        assert_eq!(extra.prefixes().collect::<Vec<_>>(), ["/a/b", "/a"]);
        for (path, found) in [("/a", true), ("/a/x", true), ("/ab", false), ("/", false)] {
            assert_eq!(extra.find(path).is_some(), found, "{path}");
        }
    }
}
