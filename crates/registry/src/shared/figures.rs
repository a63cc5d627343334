//! What a registry counts, with the numbers of its objects.

use super::{Inner, Registry};
use crate::catalog::Resource;
use crate::figures::{Family, Series};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The id of the store in metrics, as kube-apiserver calls its first one.
const STORE_ID: &str = "etcd-0";

impl Registry {
    /// What the registry counts, under kube-apiserver's names, with labels and buckets like there.
    /// Counting objects looks at a leaf for each 16 of them, so call it on a thread that may be
    /// held up.
    ///
    /// | family | labels |
    /// |---|---|
    /// | `apiserver_admission_controller_admission_duration_seconds` | `name`, `operation`, `type`, `rejected` |
    /// | `apiserver_admission_step_admission_duration_seconds` | the same without `name` |
    /// | `apiserver_admission_webhook_admission_duration_seconds` | `name`, `type`, `operation`, `rejected` |
    /// | `apiserver_admission_webhook_request_total` | the same, and `code` |
    /// | `apiserver_admission_webhook_rejection_count` | `name`, `type`, `operation`, `error_type`, `rejection_code` |
    /// | `apiserver_crd_conversion_webhook_duration_seconds` | `crd_name`, `from_version`, `to_version`, `succeeded` |
    /// | `apiserver_admission_webhook_fail_open_count` | `name`, `type` |
    /// | `apiserver_validating_admission_policy_check_total`, `…_check_duration_seconds` | `policy`, `policy_binding`, `error_type`, `enforcement_action` |
    /// | `apiserver_mutating_admission_policy_check_total`, `…_check_duration_seconds` | `policy`, `policy_binding`, `error_type` |
    /// | `pod_security_evaluations_total` | `decision`, `policy_level`, `policy_version`, `mode`, `request_operation`, `resource`, `subresource` |
    /// | `pod_security_exemptions_total` | `request_operation`, `resource`, `subresource` |
    /// | `pod_security_errors_total` | the same, and `fatal` |
    /// | `authorization_attempts_total`, `authorization_duration_seconds` | `result` |
    /// | `apiserver_authorization_decisions_total` | `type`, `name`, `decision` |
    /// | `apiserver_impersonation_attempts_total`, `…_attempts_duration_seconds` | `mode`, `decision` |
    /// | `apiserver_impersonation_authorization_attempts_total`, `…_attempts_duration_seconds` | `mode`, `decision` |
    /// | `kube_apiserver_clusterip_allocator_allocated_ips`, `…_available_ips`, `…_allocation_duration_seconds` | `cidr` |
    /// | `kube_apiserver_clusterip_allocator_allocation_total`, `…_allocation_errors_total` | `cidr`, `scope` |
    /// | `kube_apiserver_nodeport_allocator_allocated_ports`, `…_available_ports` | |
    /// | `kube_apiserver_nodeport_allocator_allocation_total`, `…_allocation_errors_total` | `scope` |
    /// | `apiserver_cel_compilation_duration_seconds` | |
    /// | `apiserver_cel_evaluation_duration_seconds` | |
    /// | `etcd_request_duration_seconds`, `etcd_requests_total`, `etcd_request_errors_total` | `operation`, `group`, `resource` |
    /// | `apiserver_storage_size_bytes` | `storage_cluster_id`; of an engine that knows it |
    /// | `apiserver_storage_objects` | `resource`, with its group |
    /// | `apiserver_resource_objects`, `apiserver_watch_cache_resource_version` | `group`, `resource` |
    pub fn figures(&self) -> Vec<Family> {
        let Inner { figures, admission, allocator, authorization, features, .. } = &*self.inner;
        let catalog = self.catalog();
        // One row of each resource: its versions have the same objects.
        let mut rows = BTreeMap::new();
        for row in catalog.rows.values().filter(|row| !row.storage_version_hash.is_empty()) {
            rows.entry(row.storage_prefix.clone()).or_insert(row);
        }
        let mut families = figures.families(admission.counted(), *features);
        families.extend(figures.store.families(|prefix| {
            let row = rows.get(prefix)?;
            Some((row.gvk.group.to_string(), row.resource.to_string()))
        }));
        families.extend(self.objects_by_resource(rows));
        families.push(authorization.decisions());
        families.extend(allocator.families());
        let size = self.inner.store.size_bytes();
        let of_store = size.map(|size| (vec![("storage_cluster_id", STORE_ID.to_owned())], size));
        families.push(Family {
            name: "apiserver_storage_size_bytes",
            help: "Size of the stored data",
            series: Series::Gauges(of_store.into_iter().collect()),
        });
        families
    }
    /// Counts a request as another user. `mode`: the one that allowed it; empty: none.
    pub fn impersonated(&self, mode: &str, is_allowed: bool, took: Duration) {
        self.inner.figures.impersonation.attempted(mode, is_allowed, took);
    }
    /// Counts a question to the authorizers about such a request.
    pub fn asked_to_impersonate(&self, mode: &str, is_allowed: bool, took: Duration) {
        self.inner.figures.impersonation.asked(mode, is_allowed, took);
    }
    fn objects_by_resource(&self, rows: BTreeMap<Arc<str>, &Arc<Resource>>) -> [Family; 3] {
        let (mut named, mut grouped, mut newest) = (Vec::new(), Vec::new(), Vec::new());
        for (prefix, row) in rows {
            let (index, revision) = self.inner.cache.resource(&prefix).snapshot();
            let n_objects = index.count(usize::MAX) as u64;
            let group = ("group", row.gvk.group.to_string());
            let labels = vec![group, ("resource", row.resource.to_string())];
            let name = row.group_resource().to_string();
            named.push((vec![("resource", name)], n_objects));
            grouped.push((labels.clone(), n_objects));
            newest.push((labels, revision));
        }
        [
            Family {
                name: "apiserver_storage_objects",
                help: "Objects of a resource; deprecated for apiserver_resource_objects",
                series: Series::Gauges(named),
            },
            Family {
                name: "apiserver_resource_objects",
                help: "Objects of a resource",
                series: Series::Gauges(grouped),
            },
            Family {
                name: "apiserver_watch_cache_resource_version",
                help: "The newest revision among the objects of a resource in the watch cache",
                series: Series::Gauges(newest),
            },
        ]
    }
}
