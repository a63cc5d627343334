//! The answers to non-resource paths.

use crate::backend::Served;
use crate::body::Body;
use crate::health::{self, Health};
use crate::negotiate::{accept_header, json_alone, only};
use crate::openid;
use crate::query::Query;
use crate::respond::Style;
use crate::root;
use crate::route::Route;
use crate::server::Inner;
use http::request::Parts;
use http::{Method, Response, header};
use setpoint_object::ApiError;
use setpoint_registry::Routes;

impl Inner {
    /// Answers every non-resource path. `store`: whether the store answers, if that is reported.
    ///
    /// # Errors
    ///
    /// 405, 406, and 404 for what is at no path.
    pub(super) async fn document(
        &self,
        route: &Route,
        parts: &Parts,
        query: &Query,
        style: Style,
        served: &Served,
        store: bool,
    ) -> Result<Response<Body>, ApiError> {
        if let Route::Health { endpoint, check } = route {
            let now = self.registry.clock().now();
            let health = Health {
                started: *self.registry.ready().borrow(),
                is_ending: self.is_ending(),
                has_grace: now.since(self.started) < self.livez_grace_period,
                store,
                storage_versions: self.storage_versions.health(),
            };
            let check = check.as_deref();
            let added = health::added(&self.health_checks, endpoint, check, query).await;
            return Ok(health.respond(endpoint, check, query, &added, &self.figures));
        }
        if parts.method != Method::GET && !self.has_every_method(route) {
            return Err(ApiError::method_not_allowed());
        }
        if let Route::OpenApi(path) = route {
            let now = self.registry.clock().now();
            return Ok(self
                .open_api
                .respond(served, path, query, &parts.headers, style, now)
                .await);
        }
        let host = || parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let authority = || parts.uri.authority().map(|authority| authority.as_str());
        let address = self.address.as_deref().or_else(authority).or_else(host).unwrap_or_default();
        let tokens = self.registry.service_account_tokens();
        let of_issuer = match route {
            Route::OpenIdConfiguration => Some(
                json_alone(&accept_header(&parts.headers))
                    .and_then(|()| openid::configuration(tokens, address)),
            ),
            Route::PublicKeys => Some(
                only(&accept_header(&parts.headers), openid::KEYS_TYPE)
                    .and_then(|()| openid::public_keys(tokens)),
            ),
            _ => None,
        };
        if let Some(answer) = of_issuer {
            return answer;
        }
        let Self { aggregated, extra, types, health_checks: checks, .. } = self;
        let (started, now) = (self.started, self.registry.clock().now());
        let (types, flags) = (*types, self.flags.as_ref());
        let site = root::Root {
            served,
            aggregated,
            peers: self.peers.table(),
            extra,
            address,
            types,
            started,
            now,
            flags,
            features: self.registry.features(),
            checks,
            storage_versions: self.storage_versions.health(),
        };
        site.respond(route, &parts.headers, style)
    }

    /// Whether a document is the answer to every method, as the reference's handlers without routes
    /// give it. Who may use other methods than GET is a matter of authorization.
    fn has_every_method(&self, route: &Route) -> bool {
        match route {
            Route::Root
            | Route::ApiGroups
            | Route::ApiGroup(_)
            | Route::OpenApi(_)
            | Route::Statusz
            | Route::Flagz => true,
            Route::ApiResources { group, .. } => {
                let catalog = self.registry.catalog();
                catalog.group(group).is_some_and(|group| group.routes == Routes::Dynamic)
            }
            _ => false,
        }
    }
}
