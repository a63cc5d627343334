//! What a server stores and reads of each resource, in StorageVersions.
//!
//! Each server has an entry of its own, which is no longer true when it is started as another
//! version: so it is written when the server starts. Every ten minutes it is looked at again,
//! because somebody else may have changed or deleted the object. Entries of servers that are gone
//! are removed by [`StorageVersionCollector`](crate::StorageVersionCollector).
//!
//! A resource that cannot be written does not keep the others: it is tried again a second later.

use crate::api::{Api, RequestError};
use crate::storage_version_gc::set_common_version;
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Clock;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// The time between two looks at all of them, as kube-apiserver has it.
const PERIOD: Duration = Duration::from_secs(600);
/// How often an object is written in one round if others write at the same time.
const ATTEMPTS_MAX: usize = 5;
const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

/// What a server stores, reads and serves of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResource {
    /// The name of its StorageVersion: group and plural name with a dot between them, `core` for
    /// the core group.
    pub name: String,
    /// The `apiVersion` in which objects are stored.
    pub encoding: String,
    /// Every `apiVersion` in which stored objects can be read, that of `encoding` included.
    pub decodable: Vec<String>,
    /// The `apiVersion`s that are served, all of them decodable.
    pub served: Vec<String>,
}

/// What became of a server's entries in StorageVersions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Registration<'a> {
    /// That of a resource is as it should be.
    Registered(&'a StoredResource),
    /// That of a resource could not be written. It is tried again.
    Failed {
        /// The resource.
        stored: &'a StoredResource,
        /// The error with its causes.
        error: &'a str,
    },
    /// All are as they should be.
    Complete,
}

/// Is told what became of the entries.
pub(super) type Report = Box<dyn Fn(Registration<'_>) + Send + Sync>;

/// Writes the entries of one server.
pub(super) struct StorageVersions<'a> {
    api: &'a Api,
    clock: &'a Clock,
    stored: &'a [StoredResource],
    report: Option<&'a Report>,
    /// When they are looked at next; `None`: now.
    due: Option<Instant>,
}

impl<'a> StorageVersions<'a> {
    pub(super) fn new(
        api: &'a Api,
        clock: &'a Clock,
        stored: &'a [StoredResource],
        report: Option<&'a Report>,
    ) -> Self {
        Self { api, clock, stored, report, due: None }
    }

    /// Whether some of them have not been written since the start.
    pub(super) fn are_missing(&self) -> bool {
        self.due.is_none() && !self.stored.is_empty()
    }

    fn report(&self, registration: Registration<'_>) {
        self.report.iter().for_each(|report| report(registration));
    }

    fn failed(&self, stored: &StoredResource, error: &RequestError) {
        let error = chain(error);
        self.report(Registration::Failed { stored, error: &error });
    }

    /// Writes what is not as it should be, if it is time. After an error, which is the first one,
    /// the next round does it.
    pub(super) async fn round(&mut self, server: String) -> Result<(), RequestError> {
        let is_due = self.due.is_none_or(|due| due <= Instant::now());
        if self.stored.is_empty() || !is_due {
            return Ok(());
        }
        let mut held = HashMap::new();
        let keep = |object: Value| _ = held.insert(object.name().to_owned(), object);
        if let Err(error) = self.api.list_pages(VERSIONS, keep).await {
            self.stored.iter().for_each(|stored| self.failed(stored, &error));
            return Err(error);
        }
        let mut first = None;
        for stored in self.stored {
            let held = held.remove(&stored.name);
            match self.ensure(&server, stored, held).await {
                Ok(()) => self.report(Registration::Registered(stored)),
                Err(error) => {
                    self.failed(stored, &error);
                    first.get_or_insert(error);
                }
            }
        }
        if let Some(error) = first {
            return Err(error);
        }
        self.due = Some(Instant::now() + PERIOD);
        self.report(Registration::Complete);
        Ok(())
    }

    /// Writes the server's entry of a resource into the object, as far as it is known.
    async fn ensure(
        &self,
        server: &str,
        stored: &StoredResource,
        mut held: Option<Value>,
    ) -> Result<(), RequestError> {
        let path = format!("{VERSIONS}/{}", stored.name);
        for attempt in 1.. {
            let written = match &held {
                None => {
                    let object = json!({"metadata": {"name": stored.name}, "spec": {}});
                    let created = self.api.post(VERSIONS, &object).await;
                    // It has no status yet.
                    created.map(|created| held = Some(created))
                }
                Some(found) => {
                    let mut object = found.clone();
                    set_entry(&mut object, server, stored);
                    set_common_version(&mut object, self.clock.now());
                    if object == *found {
                        return Ok(());
                    }
                    match self.api.put(&format!("{path}/status"), &object).await {
                        Ok(_) => return Ok(()),
                        Err(error) => Err(error),
                    }
                }
            };
            match written {
                // Another server was faster, or somebody has deleted it.
                Err(error)
                    if attempt < ATTEMPTS_MAX && (error.is_conflict() || error.is_not_found()) =>
                {
                    held = self.api.get_opt(&path).await?;
                }
                written => written?,
            }
        }
        Ok(())
    }
}

/// Sets what one server stores. Entries of others remain as they are.
fn set_entry(object: &mut Value, server: &str, stored: &StoredResource) {
    let entry = json!({
        "apiServerID": server, "encodingVersion": stored.encoding,
        "decodableVersions": stored.decodable, "servedVersions": stored.served,
    });
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if !object["status"]["storageVersions"].is_array() {
        object["status"]["storageVersions"] = json!([]);
    }
    let Some(entries) = object["status"]["storageVersions"].as_array_mut() else { return };
    match entries.iter_mut().find(|entry| entry["apiServerID"] == server) {
        Some(held) => *held = entry,
        None => entries.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_changes_its_own_entry_only() {
        let version = |version: &str| StoredResource {
            name: "apps.deployments".to_owned(),
            encoding: format!("apps/{version}"),
            decodable: vec!["apps/v1".to_owned(), "apps/v2".to_owned()],
            served: vec!["apps/v1".to_owned()],
        };
        let mut object = json!({"metadata": {"name": "apps.deployments"}, "spec": {}});
        set_entry(&mut object, "one", &version("v1"));
        set_entry(&mut object, "two", &version("v1"));
        let before = object.clone();
        set_entry(&mut object, "one", &version("v1"));
        assert_eq!(object, before);
        set_entry(&mut object, "one", &version("v2"));
        let entries = &object["status"]["storageVersions"];
        let encodings = [&entries[0]["encodingVersion"], &entries[1]["encodingVersion"]];
        assert_eq!(encodings, ["apps/v2", "apps/v1"]);
        assert!(entries[2].is_null(), "{object:#}");
    }
}
