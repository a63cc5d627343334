//! StorageVersions: what servers that are gone have stored and read is removed from them.
//!
//! # Theory
//!
//! A StorageVersion says of one resource which version each server stores, in
//! `status.storageVersions`. A server is there as long as its Lease is: one in `kube-system` with
//! its name, and the label of servers. A pass is about one StorageVersion: it removes the entries
//! of servers that are gone, and sets the common version of those that remain; without any left it
//! deletes the object. Passes come from changes of StorageVersions and from deleted Leases.
//!
//! The rules and texts are those of kube-controller-manager's
//! `storageversion-garbage-collector-controller`. It also takes a server as gone if its Lease
//! cannot be read, and writes without preconditions.

use crate::api::{Api, RequestError, as_read, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::identity::IDENTITY;
use crate::setup::Setup;
use k8s_openapi::api::coordination::v1::Lease;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::label::Selector;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_object::url::escape_segment;
use setpoint_runtime::cache::ByType;
use setpoint_runtime::{
    Action, BoxError, CacheOptions, Client, Context, Controller, Request, Watch,
};
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// The controller's name.
const NAME: &str = "storageversion-garbage-collector-controller";
const GROUP: &str = "internal.apiserver.k8s.io";
const VERSION: &str = "v1alpha1";
const RESOURCE: &str = "storageversions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The condition of a StorageVersion.
const CONDITION: &str = "AllEncodingVersionsEqual";

/// The controller that collects what servers leave in StorageVersions. Does nothing until
/// [`StorageVersionCollector::run`].
#[derive(Debug)]
#[must_use]
pub struct StorageVersionCollector {
    setup: Setup,
}

impl StorageVersionCollector {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Runs until `stop`, then lets a running pass finish. Dropping it stops everything at once.
    ///
    /// # Errors
    ///
    /// If it fails permanently.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "StorageVersion".to_owned(),
            plural: RESOURCE.to_owned(),
        };
        // Not the Leases of nodes, which are many.
        let mut of_servers = ByType::default();
        let (label, server) = IDENTITY;
        of_servers.config.labels = Some(format!("{label}={server}"));
        let caches = CacheOptions::new().of::<Lease>(&(), of_servers)?;
        let mut manager = self.setup.bare_manager().cache(caches).build();
        let versions = Watch::<DynamicObject>::metadata_dynamic(resource.clone()).cluster_scoped();
        let ended = move |event: &Event<PartialObjectMeta<Lease>>, client: &Client| {
            let is_of_server = &*event.key().namespace == "kube-system";
            if !is_of_server || !matches!(event, Event::Deleted { .. }) {
                return Vec::new();
            }
            let all = client.api_with::<PartialObjectMeta<DynamicObject>>(resource.clone());
            let all = all.lister().map(|all| all.objects(&Selector::everything()));
            all.iter().flatten().map(|version| version.key().clone()).collect()
        };
        let pass = Pass { api: self.setup.api(NAME), clock: self.setup.clock().clone() };
        let controller = Controller::builder(NAME)
            .for_(versions)
            .watches_with(Watch::<Lease>::metadata(), ended)
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(manager.run(stop).await?)
    }
}

struct Pass {
    api: Api,
    clock: Clock,
}

impl BoxedReconciler for Pass {
    type Error = RequestError;

    async fn pass(&self, request: &Request, _: &Context) -> Result<Action, RequestError> {
        let path = format!("/apis/{GROUP}/{VERSION}/{RESOURCE}/{}", request.name);
        let Some(mut found) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        let all = found["status"]["storageVersions"].as_array().cloned().unwrap_or_default();
        let mut remaining = Vec::new();
        let mut known: BTreeMap<String, bool> = BTreeMap::new();
        for server in &all {
            let id = server["apiServerID"].as_str().unwrap_or_default();
            let is_there = match known.get(id) {
                Some(is_there) => *is_there,
                None => {
                    let is_there = self.is_there(id).await?;
                    known.insert(id.to_owned(), is_there);
                    is_there
                }
            };
            if is_there {
                remaining.push(server.clone());
            }
        }
        if remaining.len() == all.len() {
            return Ok(Action::await_change());
        }
        let written = if remaining.is_empty() {
            self.api.delete(&path, &as_read(&found)).await
        } else {
            found["status"]["storageVersions"] = remaining.into();
            set_common_version(&mut found, self.clock.now());
            self.api.put(&format!("{path}/status"), &found).await
        };
        ignore_not_found(written)?;
        Ok(Action::await_change())
    }
}

impl Pass {
    /// Whether a server has its Lease.
    async fn is_there(&self, id: &str) -> Result<bool, RequestError> {
        let lease = self.api.get_opt(&format!("{LEASES}/{}", escape_segment(id))).await?;
        let (label, server) = IDENTITY;
        Ok(lease.is_some_and(|lease| lease["metadata"]["labels"][label] == server))
    }
}

/// Sets the version that all servers store, if it is one, and the condition that says so.
pub(crate) fn set_common_version(object: &mut Value, now: Timestamp) {
    let generation = object["metadata"]["generation"].as_i64();
    let Some(status) = object["status"].as_object_mut() else { return };
    let servers = status.get("storageVersions").and_then(Value::as_array);
    let mut versions = servers.into_iter().flatten().map(|server| &server["encodingVersion"]);
    let common = versions.next().cloned();
    let common = common.filter(|first| versions.all(|version| version == first));
    let before = match &common {
        Some(common) => status.insert("commonEncodingVersion".to_owned(), common.clone()),
        None => status.remove("commonEncodingVersion"),
    };
    let is_other = before.is_some() && common.is_some() && before != common;
    let (text, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    let held = conditions.iter_mut().find(|condition| condition["type"] == CONDITION);
    let changed = held.as_ref().is_none_or(|held| held["status"] != text) || is_other;
    let mut condition = json!({
        "type": CONDITION, "status": text, "reason": reason, "message": message,
    });
    if let Some(generation) = generation.filter(|generation| *generation > 0) {
        condition["observedGeneration"] = generation.into();
    }
    condition["lastTransitionTime"] = match &held {
        Some(held) if !changed => held["lastTransitionTime"].clone(),
        _ => now.rfc3339().into(),
    };
    match held {
        Some(held) => *held = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_version_is_that_of_all_servers() {
        let check = |versions: &[&str], before: Value, expected: [Value; 3]| {
            let server = |version: &&str| json!({"encodingVersion": version});
            let servers: Vec<_> = versions.iter().map(server).collect();
            let condition = json!({
                "type": CONDITION, "status": if before.is_null() { "False" } else { "True" },
                "lastTransitionTime": "then",
            });
            let mut object = json!({"status": {
                "storageVersions": servers, "conditions": [condition],
                "commonEncodingVersion": before,
            }});
            if before.is_null() {
                object["status"].as_object_mut().unwrap().remove("commonEncodingVersion");
            }
            set_common_version(&mut object, Timestamp::from_secs(0));
            let condition = &object["status"]["conditions"][0];
            let found = [
                object["status"]["commonEncodingVersion"].clone(),
                condition["status"].clone(),
                condition["lastTransitionTime"].clone(),
            ];
            assert_eq!(found, expected, "{object:#}");
        };
        let now = || json!(Timestamp::from_secs(0).rfc3339());
        check(&["v1", "v1"], Value::Null, [json!("v1"), json!("True"), now()]);
        check(&["v1", "v1"], json!("v1"), [json!("v1"), json!("True"), json!("then")]);
        check(&["v2"], json!("v1"), [json!("v2"), json!("True"), now()]);
        check(&["v1", "v2"], json!("v1"), [Value::Null, json!("False"), now()]);
        check(&["v1", "v2"], Value::Null, [Value::Null, json!("False"), json!("then")]);
    }
}
