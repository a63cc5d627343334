//! What a registry counts, with the numbers of its objects.

use super::{Inner, Registry};
use crate::catalog::Resource;
use crate::figures::{Family, Series};
use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// | `authorization_attempts_total`, `authorization_duration_seconds` | `result` |
    /// | `apiserver_cel_compilation_duration_seconds` | |
    /// | `apiserver_cel_evaluation_duration_seconds` | |
    /// | `etcd_request_duration_seconds`, `etcd_requests_total`, `etcd_request_errors_total` | `operation`, `group`, `resource` |
    /// | `apiserver_storage_objects` | `resource`, with its group |
    /// | `apiserver_resource_objects`, `apiserver_watch_cache_resource_version` | `group`, `resource` |
    pub fn figures(&self) -> Vec<Family> {
        let Inner { figures, admission, .. } = &*self.inner;
        let catalog = self.catalog();
        // One row of each resource: its versions have the same objects.
        let mut rows = BTreeMap::new();
        for row in catalog.rows.values().filter(|row| !row.storage_version_hash.is_empty()) {
            rows.entry(row.storage_prefix.clone()).or_insert(row);
        }
        let mut families = figures.families(admission.counted());
        families.extend(figures.store.families(|prefix| {
            let row = rows.get(prefix)?;
            Some((row.gvk.group.to_string(), row.resource.to_string()))
        }));
        families.extend(self.objects_by_resource(rows));
        families
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
