//! Group versions of extension servers, whose objects a server's feed does not have.

use super::graph::Uid;
use crate::api::{Discovered, Resource};
use serde::Deserialize;
use serde::de::IgnoredAny;
use setpoint_object::Skim;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Maximum number of former group versions that are remembered. 1024, more than a server registers.
const FORMER_MAX: usize = 1024;

/// Their `<group>/<version>`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ExtensionGroups {
    /// By the uid of the APIService.
    present: BTreeMap<Uid, String>,
    /// Those that were among them once: the server may still answer for them, or no longer.
    former: BTreeSet<String>,
}

impl ExtensionGroups {
    /// Follows an APIService; `None`: it is deleted. Returns whether it is or was one of them.
    pub(super) fn put(&mut self, uid: &str, object: Option<&[u8]>) -> bool {
        let former = self.present.remove(uid);
        let is_known = former.is_some();
        if let Some(version) = former
            && self.former.len() < FORMER_MAX
        {
            self.former.insert(version);
        }
        match object.and_then(group_version) {
            Some(version) => {
                self.present.insert(uid.into(), version);
                true
            }
            None => is_known,
        }
    }

    /// Removes all but these.
    pub(super) fn retain(&mut self, present: &HashSet<Uid>) {
        let gone = self.present.keys().filter(|uid| !present.contains(*uid)).cloned();
        let gone: Vec<Uid> = gone.collect();
        for uid in gone {
            self.put(&uid, None);
        }
    }

    /// Whether a group version is served elsewhere.
    pub(super) fn has(&self, api_version: &str) -> bool {
        self.present.values().any(|version| version == api_version)
    }

    /// Whether a group version is served elsewhere, or was once.
    pub(super) fn had(&self, api_version: &str) -> bool {
        self.has(api_version) || self.former.contains(api_version)
    }

    /// Whether the documents of every group version were read.
    pub(super) fn are_all_current(&self, discovered: &Discovered) -> bool {
        self.present.values().all(|version| {
            let is_listed = |resource: &Resource| resource.api_version() == *version;
            !discovered.stale.contains(version) && discovered.resources.iter().any(is_listed)
        })
    }

    /// Whether everything is in the feed.
    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }
}

/// Whether an object is an APIService.
pub(super) fn is_service(skim: &Skim<'_>) -> bool {
    skim.kind == "APIService" && skim.api_version.starts_with("apiregistration.k8s.io/")
}

/// The group version of an APIService with a service.
pub(super) fn group_version(object: &[u8]) -> Option<String> {
    let Read { spec: ReadSpec { group, version, service } } =
        serde_json::from_slice(object).ok()?;
    // These groups are always served by the control plane itself.
    let is_own = group.is_empty() || group == "apiregistration.k8s.io";
    (service.is_some() && !is_own).then(|| format!("{group}/{version}"))
}

/// What [`group_version`] reads of an APIService.
#[derive(Deserialize)]
struct Read {
    spec: ReadSpec,
}

#[derive(Deserialize)]
struct ReadSpec {
    #[serde(default)]
    group: String,
    version: String,
    service: Option<IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn thing() -> Resource {
        Resource {
            group: String::new(),
            version: String::new(),
            resource: "things".into(),
            kind: "Thing".into(),
            namespaced: true,
            verbs: Vec::new(),
        }
    }

    #[test]
    fn services_come_and_go_by_their_uid() {
        let object = |group: &str, service: Value| {
            let spec = json!({"group": group, "version": "v1", "service": service});
            json!({"spec": spec}).to_string().into_bytes()
        };
        let service = json!({"namespace": "n", "name": "s"});
        let mut known = ExtensionGroups::default();
        assert!(known.put("1", Some(&object("ext.io", service.clone()))));
        assert!(!known.put("2", Some(&object("local.io", Value::Null))));
        assert!(!known.put("3", Some(&object("", service.clone()))));
        assert!(known.put("4", Some(&object("more.io", service))));
        assert!(known.has("ext.io/v1") && known.has("more.io/v1") && !known.has("local.io/v1"));
        known.retain(&HashSet::from(["4".into()]));
        assert!(!known.has("ext.io/v1") && known.had("ext.io/v1") && !known.is_empty());
        // Its documents arrive later than the object that registers it.
        let mut discovered = Discovered::default();
        assert!(!known.are_all_current(&discovered));
        let resource = Resource { group: "more.io".into(), version: "v1".into(), ..thing() };
        discovered.resources.push(resource);
        assert!(known.are_all_current(&discovered));
        discovered.stale.push("more.io/v1".into());
        assert!(!known.are_all_current(&discovered));
        assert!(known.put("4", None) && known.is_empty());
    }
}
