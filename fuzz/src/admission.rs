//! Configurations of admission plugins, and objects that are charged to quotas.
use serde_json::Value;
use setpoint_quota::{Scopes, Term, pod, usage};
use setpoint_registry::AdmissionOptions;

/// The plugins with a configuration.
const PLUGINS: [&str; 5] = [
    "EventRateLimit",
    "PodNodeSelector",
    "PodSecurity",
    "PodTolerationRestriction",
    "ResourceQuota",
];

/// Any document is a configuration or refused, with the same result each time. Any object has a
/// usage, and is in the scopes of a quota or not.
pub fn check(input: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Value>(input) else { return };
    for plugin in PLUGINS {
        let build = || {
            let options = AdmissionOptions::default().configure(plugin, document.clone());
            let options = if plugin == "PodSecurity" || plugin == "ResourceQuota" {
                options
            } else {
                options.enable(plugin)
            };
            options.build().map(|plugins| plugins.names().count())
        };
        assert_eq!(build(), build());
    }
    for resource in ["pods", "services", "persistentvolumeclaims", "secrets"] {
        let used = usage("", resource, &document, 0);
        let scopes = Scopes::of(resource, &document);
        for term in Term::all(&document) {
            assert_eq!(scopes.is_in(&term), scopes.clone().is_in(&term));
        }
        assert!(used.contains_key(&format!("count/{resource}")));
    }
    let (requests, containers) =
        (pod::requests(&document), pod::of_containers(&document, "requests"));
    assert!(requests.len() >= containers.len());
}
