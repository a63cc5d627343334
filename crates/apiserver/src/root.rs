//! Non-resource paths: the index, the version and discovery.

use crate::backend::Served;
use crate::body::Body;
use crate::discovery::{self, Aggregated, wants_aggregated};
use crate::extra::Extra;
use crate::health::{self, HealthCheck};
use crate::negotiate::{Accepted, Endpoint, Types, accept_header, json_alone, negotiate};
use crate::openid;
use crate::peers::PeerTable;
use crate::respond::{self, Style};
use crate::route::Route;
use crate::version;
use crate::zpages::{self, Page};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_object::{ApiError, GroupVersion};
use setpoint_registry::Routes;
use setpoint_registry::{Feature, FeatureGates};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The sources of the documents.
#[derive(Debug)]
pub(crate) struct Root<'a> {
    /// The catalog and the backends.
    pub(crate) served: &'a Served,
    /// The aggregated documents.
    pub(crate) aggregated: &'a Aggregated,
    /// What other servers have.
    pub(crate) peers: Arc<PeerTable>,
    /// Added routes.
    pub(crate) extra: &'a Extra,
    /// The server's own `host:port`.
    pub(crate) address: &'a str,
    /// The media types of the server.
    pub(crate) types: Types,
    /// When the server was built.
    pub(crate) started: Timestamp,
    /// The present time.
    pub(crate) now: Timestamp,
    /// The options of the program, if it shows them.
    pub(crate) flags: Option<&'a BTreeMap<String, String>>,
    pub(crate) features: FeatureGates,
    /// Added health checks.
    pub(crate) checks: &'a [Arc<dyn HealthCheck>],
    /// As in [`health::Health`].
    pub(crate) storage_versions: Option<bool>,
}

impl Root<'_> {
    /// Answers a GET.
    ///
    /// # Errors
    ///
    /// 406 if no form of a document is acceptable.
    pub(crate) fn respond(
        &self,
        route: &Route,
        headers: &HeaderMap,
        style: Style,
    ) -> Result<Response<Body>, ApiError> {
        let accept = accept_header(headers);
        let core = matches!(route, Route::ApiVersions);
        if matches!(route, Route::ApiVersions | Route::ApiGroups)
            && let Some(wanted) = wants_aggregated(&accept)
        {
            let wanted = (core, wanted);
            return Ok(self.aggregated.respond(self.served, wanted, &self.peers, headers, style));
        }
        let document = match route {
            Route::Root => return Ok(indented(&json!({"paths": self.paths()}), style)),
            Route::Version => {
                json_alone(&accept)?;
                return Ok(indented(&version::document(self.features.emulation()), style));
            }
            Route::Statusz if self.features.is_on(Feature::ComponentStatusz) => {
                let (started, now) = (self.started, self.now);
                let emulated = self.features.emulation().release();
                let page = Page::Status { started, now, emulated, paths: self.paths() };
                return page.respond(&accept, self.types, style);
            }
            Route::Flagz if let Some(flags) = self.shown_flags() => {
                return Page::Flags(flags).respond(&accept, self.types, style);
            }
            Route::ApiVersions => discovery::api_versions(&self.served.catalog, self.address),
            Route::ApiGroups => discovery::api_groups(self.served.registered()),
            Route::ApiGroup(name) => match self.served.group(name) {
                Some(group) => discovery::api_group(group),
                None => return Ok(respond::page_not_found()),
            },
            Route::ApiResources { group, version } => {
                discovery::api_resources(&self.served.catalog, group, version)
            }
            _ => return Ok(respond::page_not_found()),
        };
        let accepted = negotiate(&accept, self.endpoint(route), self.types)?;
        Ok(respond::document(StatusCode::OK, accepted, style, discovery::to_bytes(&document)))
    }

    /// The reference server has routes for its own documents, and handlers for those that change
    /// with definitions and extension servers.
    fn endpoint(&self, route: &Route) -> Endpoint {
        match route {
            Route::ApiVersions => Endpoint::Versions,
            Route::ApiResources { group, version } => {
                let mut rows = self.served.catalog.group_version(group, version);
                let is_built_in = rows.any(|row| row.routes == Routes::Installed);
                if is_built_in { Endpoint::Discovery } else { Endpoint::Plain }
            }
            _ => Endpoint::Plain,
        }
    }

    /// What `/flagz` shows, if there is such a page.
    fn shown_flags(&self) -> Option<&BTreeMap<String, String>> {
        self.flags.filter(|_| self.features.is_on(Feature::ComponentFlagz))
    }

    /// Every served root path, sorted.
    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = [
            "/api",
            "/apis",
            "/apis/",
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/",
            openid::CONFIGURATION,
            openid::PUBLIC_KEYS,
            "/readyz",
            "/version",
        ]
        .map(str::to_owned)
        .into();
        paths.extend(health::paths(self.checks, self.storage_versions));
        let has_status = self.features.is_on(Feature::ComponentStatusz);
        paths.extend(has_status.then(|| zpages::STATUSZ.to_owned()));
        paths.extend(self.shown_flags().map(|_| zpages::FLAGZ.to_owned()));
        for group in &self.served.groups {
            if !group.name.is_empty() {
                paths.push(format!("/apis/{}", group.name));
            }
            for version in &group.versions {
                let gv = GroupVersion::new(group.name.clone(), version.clone());
                let root = if group.name.is_empty() { "api" } else { "apis" };
                paths.push(format!("/{root}/{gv}"));
            }
        }
        paths.extend(self.extra.prefixes().map(str::to_owned));
        paths.sort();
        paths
    }
}

/// Always indented JSON.
fn indented(document: &Value, style: Style) -> Response<Body> {
    let accepted = Accepted { pretty: true, ..Accepted::default() };
    respond::document(StatusCode::OK, accepted, style, discovery::to_bytes(document))
}
