//! The list of built-in kinds.
use super::*;

/// Every built-in kind, by module.
pub(super) static ROWS: [&Kind; 76] = [
    &admissionregistration::admission_policy::MUTATING,
    &admissionregistration::admission_policy::MUTATING_BINDING,
    &admissionregistration::admission_policy::VALIDATING,
    &admissionregistration::admission_policy::VALIDATING_BINDING,
    &admissionregistration::webhook_configuration::MUTATING,
    &admissionregistration::webhook_configuration::VALIDATING,
    &apiextensions::custom_resource_definition::KIND,
    &apiregistration::api_service::KIND,
    &apiserverinternal::storage_version::KIND,
    &apps::controller_revision::KIND,
    &apps::daemon_set::KIND,
    &apps::deployment::KIND,
    &apps::replica_set::KIND,
    &apps::stateful_set::KIND,
    &authentication::SELF_SUBJECT_REVIEW,
    &authentication::TOKEN_REVIEW,
    &authorization::LOCAL_SUBJECT_ACCESS_REVIEW,
    &authorization::SELF_SUBJECT_ACCESS_REVIEW,
    &authorization::SELF_SUBJECT_RULES_REVIEW,
    &authorization::SUBJECT_ACCESS_REVIEW,
    &autoscaling::horizontal_pod_autoscaler::KIND,
    &batch::cron_job::KIND,
    &batch::job::KIND,
    &certificates::certificate_signing_request::KIND,
    &certificates::cluster_trust_bundle::KIND,
    &certificates::pod_certificate_request::KIND,
    &coordination::lease::KIND,
    &coordination::lease_candidate::KIND,
    &core::BINDING,
    &core::SERVICE_ACCOUNT,
    &core::component_status::KIND,
    &core::config_map::KIND,
    &core::endpoints::KIND,
    &core::event::EVENTS,
    &core::event::KIND,
    &core::limit_range::KIND,
    &core::namespace::KIND,
    &core::node::KIND,
    &core::persistent_volume::KIND,
    &core::persistent_volume_claim::KIND,
    &core::pod::KIND,
    &core::pod_template::KIND,
    &core::replication_controller::KIND,
    &core::resource_quota::KIND,
    &core::secret::KIND,
    &core::service::KIND,
    &discovery::endpoint_slice::KIND,
    &flowcontrol::flow_schema::KIND,
    &flowcontrol::priority_level_configuration::KIND,
    &networking::ingress::KIND,
    &networking::ingress_class::KIND,
    &networking::ip_address::KIND,
    &networking::network_policy::KIND,
    &networking::service_cidr::KIND,
    &node::runtime_class::KIND,
    &policy::pod_disruption_budget::KIND,
    &rbac::role::CLUSTER,
    &rbac::role::KIND,
    &rbac::role_binding::CLUSTER,
    &rbac::role_binding::KIND,
    &resource::DEVICE_CLASS,
    &resource::device_taint_rule::KIND,
    &resource::pool_status_request::KIND,
    &resource::resource_claim::KIND,
    &resource::resource_claim::TEMPLATE,
    &resource::resource_slice::KIND,
    &scheduling::pod_group::KIND,
    &scheduling::priority_class::KIND,
    &scheduling::workload::KIND,
    &storage::CSI_STORAGE_CAPACITY,
    &storage::csi_driver::KIND,
    &storage::csi_node::KIND,
    &storage::storage_class::KIND,
    &storage::volume_attachment::KIND,
    &storage::volume_attributes_class::KIND,
    &storagemigration::storage_version_migration::KIND,
];

/// The row of a built-in kind.
pub fn of(group: &str, kind: &str) -> Option<&'static Kind> {
    ROWS.into_iter().find(|row| row.kind == kind && row.group == group)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page lists what is validated, from the rows.
    #[test]
    fn the_page_on_compatibility_lists_the_rules_of_the_kinds() {
        let page = std::fs::read_to_string("../../docs/compatibility.md").unwrap();
        let mut lines: Vec<String> = ROWS
            .iter()
            .filter(|row| !row.rules.is_empty())
            .map(|row| {
                let group = if row.group.is_empty() { "" } else { " of " };
                format!("| {}{group}{} | {} |", row.kind, row.group, row.rules)
            })
            .collect();
        lines.sort_unstable();
        let table = format!("| kind | checked |\n|---|---|\n{}\n", lines.join("\n"));
        assert!(page.contains(&table), "the table is to be:\n{table}");
    }

    #[test]
    fn every_published_kind_has_a_row_and_every_row_a_kind() {
        let facts = setpoint_facts::RESOURCES;
        for fact in facts {
            assert!(of(fact.group, fact.kind).is_some(), "{} of {:?}", fact.kind, fact.group);
        }
        for row in ROWS {
            let is_published = facts.iter().any(|f| f.kind == row.kind && f.group == row.group);
            assert!(is_published, "{} of {:?}", row.kind, row.group);
        }
    }
}
