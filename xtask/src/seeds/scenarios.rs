//! The tests that play scenarios, and the controllers without one.

/// The tests of one program.
pub(super) struct Program {
    pub(super) package: &'static str,
    pub(super) test: &'static str,
    pub(super) scenarios: &'static [Scenario],
}

/// A test that plays a scenario.
pub(super) struct Scenario {
    /// What is under test.
    pub(super) what: &'static str,
    /// With its modules.
    pub(super) test: &'static str,
    /// The controllers of this repository that it runs, by their types.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it with the controllers"))]
    pub(super) controllers: &'static [&'static str],
}

const fn of(
    what: &'static str,
    test: &'static str,
    controllers: &'static [&'static str],
) -> Scenario {
    Scenario { what, test, controllers }
}

/// Every test that plays a scenario.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        package: "setpoint-testenv",
        test: "it",
        scenarios: &[
            of(
                "deployment, replicaset: both a surge and unavailable pods",
                "workloads::deployment::rolling_update_keeps_its_limits_with_every_plan",
                &["DeploymentController", "ReplicaSetController"],
            ),
            of(
                "deployment, replicaset: a surge, no unavailable pod",
                "workloads::deployment::rolling_update_without_unavailable_pods_keeps_its_limits",
                &["DeploymentController", "ReplicaSetController"],
            ),
            of(
                "deployment, replicaset: Recreate",
                "workloads::deployment::recreated_deployment_never_has_pods_of_two_versions",
                &["DeploymentController", "ReplicaSetController"],
            ),
            of(
                "replicaset",
                "workloads::replica_set::replica_set_keeps_its_number_with_every_plan",
                &["ReplicaSetController"],
            ),
            of(
                "replicationcontroller",
                "workloads::replica_set::replication_controller_keeps_its_number_with_every_plan",
                &["ReplicationControllerController"],
            ),
            of(
                "statefulset: OrderedReady",
                "workloads::stateful_set::ordered_set_has_its_numbers_with_every_plan",
                &["StatefulSetController"],
            ),
            of(
                "statefulset: Parallel",
                "workloads::stateful_set::parallel_set_has_its_numbers_with_every_plan",
                &["StatefulSetController"],
            ),
            of(
                "daemonset: an unavailable pod",
                "workloads::daemon_set::daemon_set_keeps_nodes_available_with_every_plan",
                &["DaemonSetController"],
            ),
            of(
                "daemonset: a surge",
                "workloads::daemon_set::daemon_set_with_surge_keeps_all_nodes_available",
                &["DaemonSetController"],
            ),
            of(
                "job",
                "jobs::job_has_no_pod_too_many_and_counts_each_once_with_every_plan",
                &["JobController"],
            ),
            of(
                "cronjob",
                "storms::cron::cron_jobs_run_once_at_each_time_with_every_plan",
                &["CronJobController"],
            ),
            of(
                "horizontal-pod-autoscaler, deployment, replicaset",
                "autoscale::surge::autoscaler_stays_in_its_bounds_and_settles_with_every_plan",
                &["HorizontalPodAutoscalerController"],
            ),
            of(
                "disruption, replicaset: minAvailable",
                "storms::budgets::evictions_leave_the_minimum_available_with_every_plan",
                &["DisruptionController", "ReplicaSetController"],
            ),
            of(
                "disruption, replicaset: maxUnavailable",
                "storms::budgets::evictions_stay_within_the_maximum_unavailable_with_every_plan",
                &["DisruptionController", "ReplicaSetController"],
            ),
            of(
                "owners of every kind that are deleted",
                "storms::owners::what_gone_owners_had_stays_gone_with_every_plan",
                &[
                    "DeploymentController",
                    "ReplicaSetController",
                    "ReplicationControllerController",
                    "StatefulSetController",
                    "DaemonSetController",
                    "JobController",
                    "EndpointSliceController",
                    "EndpointSliceMirroring",
                ],
            ),
            of(
                "endpoints, endpointslice, endpointslicemirroring",
                "storms::services::services_have_each_endpoint_once_with_every_plan",
                &["EndpointsController", "EndpointSliceController", "EndpointSliceMirroring"],
            ),
            of(
                "scheduler",
                "storms::scheduler::nodes_are_never_overcommitted_with_any_plan",
                &["Scheduler"],
            ),
            of(
                "scheduler: claims of devices",
                "storms::devices::devices_are_given_once_with_any_plan",
                &["Scheduler"],
            ),
            of(
                "scheduler: gangs",
                "storms::gangs::gangs_are_placed_whole_one_after_the_other_with_any_plan",
                &["Scheduler"],
            ),
            of(
                "node-lifecycle, taint-eviction",
                "storms::nodes::pods_leave_silent_nodes_when_their_time_is_over_with_every_plan",
                &["NodeLifecycleController", "TaintEvictionController"],
            ),
            of(
                "ttl-after-finished, pod-garbage-collector",
                "storms::leftovers::leftovers_go_when_their_time_is_over_with_every_plan",
                &["TtlAfterFinished", "PodGarbageCollector"],
            ),
            of(
                "resourcequota",
                "storms::quotas::quotas_are_never_exceeded_and_settle_with_every_plan",
                &["QuotaController"],
            ),
            of(
                "namespace, serviceaccount, root CA, tokens in Secrets, token-cleaner",
                "storms::defaults::namespaces_have_their_defaults_with_every_plan",
                &["NamespaceController", "NamespaceDefaults", "TokenSecrets", "TokenCleaner"],
            ),
            of(
                "clusterrole-aggregation",
                "storms::roles::roles_are_joined_with_every_plan",
                &["ClusterRoleAggregation"],
            ),
            of(
                "APIServices of definitions, condition of FlowSchemas",
                "storms::catalog::registrations_follow_definitions_with_every_plan",
                &["ApiServices", "FlowSchemas"],
            ),
            of(
                "persistentvolume and persistentvolumeclaim protection",
                "storms::protection::storage_in_use_stays_with_every_plan",
                &["ProtectionController"],
            ),
            of(
                "claims that no pod uses",
                "storms::protection::claims_say_whether_they_are_used_with_every_plan",
                &["UnusedClaims"],
            ),
            of(
                "simulated nodes",
                "storms::simulated::containers_start_once_with_every_plan",
                &["Nodes"],
            ),
            of(
                "podgroup-protection",
                "storms::groups::groups_in_use_stay_with_every_plan",
                &["GroupProtection"],
            ),
            of(
                "certificate signing, approval and cleaning",
                "certificates::requests_are_decided_once_with_every_plan",
                &["CsrApprover", "CsrSigner", "CsrCleaner"],
            ),
            of(
                "persistentvolume-binder, simulated provisioner",
                "volumes::volumes_have_one_claim_with_every_plan",
                &["VolumeBinder"],
            ),
            of(
                "ephemeral-volume, volumeattributesclass-protection, ttl of nodes",
                "storage::claims_classes_and_nodes_end_the_same_with_every_plan",
                &["EphemeralVolumeController", "AttributesClassProtection", "NodeTtlController"],
            ),
            of(
                "service-cidr",
                "service_ranges::ranges_stay_while_they_are_needed_with_every_plan",
                &["ServiceCidrs"],
            ),
            of(
                "legacy-serviceaccount-token-cleaner",
                "legacy_tokens::unused_tokens_end_with_every_plan",
                &["LegacyTokens"],
            ),
            of(
                "storage-version-migrator",
                "migrations::objects_are_stored_in_the_version_of_the_definition_with_every_plan",
                &["StorageVersionMigrator"],
            ),
            of(
                "bootstrap-signer",
                "migrations::cluster_info_has_the_signatures_of_its_tokens_with_every_plan",
                &["BootstrapSigner"],
            ),
            of(
                "leader-election-controller",
                "elections::the_oldest_program_that_answers_holds_the_lease_with_every_plan",
                &["CoordinatedElection"],
            ),
            of(
                "kube-apiserver-serving-clustertrustbundle-publisher",
                "trust_bundle::the_authority_has_one_bundle_with_every_plan",
                &["TrustBundlePublisher"],
            ),
            of(
                "device-taint-eviction",
                "device_taints::pods_leave_tainted_devices_with_every_plan",
                &["DeviceTaintEviction"],
            ),
            of(
                "resourcepoolstatusrequest, storageversion-garbage-collector",
                "device_taints::questions_are_answered_and_servers_forgotten_with_every_plan",
                &["PoolStatusController", "StorageVersionCollector"],
            ),
            of(
                "resourceclaim",
                "resource_claims::claims_are_made_once_and_released_with_every_plan",
                &["ResourceClaimController"],
            ),
            of(
                "garbage collector, namespace deletion",
                "built_in::deletions_reach_the_same_state_with_every_plan",
                &["GarbageCollector", "NamespaceController"],
            ),
        ],
    },
    Program {
        package: "etcd-operator",
        test: "operator",
        scenarios: &[
            of("examples/etcd-operator", "plans::cluster_ends_the_same_by_every_plan", &[]),
            of(
                "examples/etcd-operator: nodes and the backups' folder fail",
                "plans::outages_cost_no_majority_by_any_plan",
                &[],
            ),
        ],
    },
    Program {
        package: "port-rule",
        test: "port_rule",
        scenarios: &[of("examples/port-rule", "plans::firewalls_end_the_same_by_every_plan", &[])],
    },
    Program {
        package: "network",
        test: "it",
        scenarios: &[
            of("examples/network", "plans::networks_end_the_same_by_every_plan", &[]),
            of(
                "examples/network: a cloud that loses answers",
                "neutron::plans::cloud_ends_the_same_by_every_plan",
                &[],
            ),
        ],
    },
    Program {
        package: "bucket",
        test: "bucket",
        scenarios: &[of("examples/bucket", "no_bucket_is_left_behind_whatever_happens", &[])],
    },
    Program {
        package: "website",
        test: "website",
        scenarios: &[of("examples/website", "website_is_ready_in_the_end_whatever_happens", &[])],
    },
];

/// The controllers without a scenario, by their types, and why.
pub(super) const WITHOUT: &[(&str, &str)] = &[
    (
        "PodCertificateCleaner",
        "a pass deletes one object by its uid, or waits; a request that comes back is another one",
    ),
    (
        "ServerIdentity",
        "it is no controller of objects: each server renews its own Lease and address, which comparisons leave out",
    ),
];
