//! A controller manager whose controllers use their own accounts
//! (`--use-service-account-credentials`): each gets a token, and the role of its name lets it do
//! its work.

use super::*;

/// The user of a controller manager's own certificate.
const MANAGER: &str = "system:kube-controller-manager";
const SYSTEM_ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";

/// What kube-controller-manager's controllers do: the account, then verbs and a resource with its
/// group and subresource. `*` is any of them.
const WORK: [(&str, &[(&str, &str)]); 24] = [
    (
        "certificate-controller",
        &[
            ("get list watch delete", "certificatesigningrequests.certificates.k8s.io"),
            ("update", "certificatesigningrequests.certificates.k8s.io/approval"),
            ("update", "certificatesigningrequests.certificates.k8s.io/status"),
            ("create", "subjectaccessreviews.authorization.k8s.io"),
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        &[("update patch", "clusterroles.rbac.authorization.k8s.io")],
    ),
    (
        "cronjob-controller",
        &[
            ("get list watch", "cronjobs.batch"),
            ("update", "cronjobs.batch/status"),
            ("create get patch delete", "jobs.batch"),
            ("create patch", "events"),
        ],
    ),
    (
        "daemon-set-controller",
        &[
            ("get list watch", "daemonsets.apps"),
            ("update", "daemonsets.apps/status"),
            ("list watch", "nodes"),
            ("create patch delete", "pods"),
            ("create get update delete", "controllerrevisions.apps"),
        ],
    ),
    (
        "deployment-controller",
        &[
            ("get list watch update", "deployments.apps"),
            ("update", "deployments.apps/status"),
            ("create list watch update patch delete", "replicasets.apps"),
            ("list watch", "pods"),
            ("create patch", "events"),
        ],
    ),
    (
        "disruption-controller",
        &[
            ("list watch", "poddisruptionbudgets.policy"),
            ("update", "poddisruptionbudgets.policy/status"),
            ("get", "deployments.apps/scale"),
        ],
    ),
    (
        "endpoint-controller",
        &[("list watch", "services"), ("create get update delete", "endpoints")],
    ),
    (
        "endpointslice-controller",
        &[
            ("list watch", "services"),
            ("list watch", "nodes"),
            ("create get update delete", "endpointslices.discovery.k8s.io"),
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            ("list watch", "endpoints"),
            ("create get update delete", "endpointslices.discovery.k8s.io"),
        ],
    ),
    (
        "generic-garbage-collector",
        &[("get list watch patch update delete", "configmaps"), ("delete", "foos.ex.io")],
    ),
    (
        "horizontal-pod-autoscaler",
        &[
            ("get list watch", "horizontalpodautoscalers.autoscaling"),
            ("update", "horizontalpodautoscalers.autoscaling/status"),
            ("get update", "deployments.apps/scale"),
            ("list", "pods.metrics.k8s.io"),
        ],
    ),
    (
        "job-controller",
        &[
            ("get list watch patch", "jobs.batch"),
            ("update", "jobs.batch/status"),
            ("create patch delete", "pods"),
        ],
    ),
    (
        "namespace-controller",
        &[
            ("get list watch delete", "namespaces"),
            ("update", "namespaces/finalize"),
            ("update", "namespaces/status"),
            ("list delete deletecollection", "foos.ex.io"),
        ],
    ),
    (
        "node-controller",
        &[
            ("get list patch update delete", "nodes"),
            ("patch", "nodes/status"),
            ("patch", "pods/status"),
            ("delete", "pods"),
        ],
    ),
    (
        "persistent-volume-binder",
        &[
            ("create get list watch update delete", "persistentvolumes"),
            ("update", "persistentvolumes/status"),
            ("get list watch update", "persistentvolumeclaims"),
            ("get list watch", "storageclasses.storage.k8s.io"),
        ],
    ),
    (
        "pod-garbage-collector",
        &[("list watch delete", "pods"), ("get", "nodes"), ("patch", "pods/status")],
    ),
    (
        "pvc-protection-controller",
        &[("get list watch update", "persistentvolumeclaims"), ("get", "pods")],
    ),
    (
        "replicaset-controller",
        &[("update", "replicasets.apps/status"), ("create patch delete", "pods")],
    ),
    (
        "resourcequota-controller",
        &[("list watch", "foos.ex.io"), ("update", "resourcequotas/status")],
    ),
    ("root-ca-cert-publisher", &[("create update", "configmaps")]),
    ("service-account-controller", &[("create", "serviceaccounts")]),
    (
        "service-cidrs-controller",
        &[
            ("list watch patch update", "servicecidrs.networking.k8s.io"),
            ("patch update", "servicecidrs.networking.k8s.io/status"),
            ("list watch", "ipaddresses.networking.k8s.io"),
        ],
    ),
    (
        "statefulset-controller",
        &[
            ("list watch", "statefulsets.apps"),
            ("update", "statefulsets.apps/status"),
            ("create get update patch delete", "pods"),
            ("create get", "persistentvolumeclaims"),
            ("create update delete", "controllerrevisions.apps"),
        ],
    ),
    ("ttl-after-finished-controller", &[("get list watch delete", "jobs.batch")]),
];

/// A request as the user of a controller manager's certificate.
async fn as_manager(world: &World, method: Method, path: &str, body: Value) -> Answer {
    let mut request = http::Request::builder().method(method).uri(path).body(()).unwrap();
    request.extensions_mut().insert(Identity::new(MANAGER, ["system:authenticated"]));
    world.send(request, &body).await
}

/// The token of a controller's account, which the controller manager makes if it is missing.
async fn token_of(world: &World, account: &str) -> String {
    let path = format!("{SYSTEM_ACCOUNTS}/{account}");
    if as_manager(world, Method::GET, &path, Value::Null).await.code == 404 {
        let object = json!({"metadata": {"name": account}});
        let made = as_manager(world, Method::POST, SYSTEM_ACCOUNTS, object).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let answer = as_manager(world, Method::POST, &format!("{path}/token"), request).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body["status"]["token"].as_str().unwrap().to_owned()
}

/// Whether a token's user may do something.
async fn may(world: &World, token: &str, verb: &str, what: &str) -> bool {
    let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let review = json!({"spec": {"resourceAttributes": {
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": "default",
    }}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = world.with_token(token, Method::POST, path, review).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body["status"]["allowed"] == true
}

#[tokio::test(start_paused = true)]
async fn controllers_do_their_work_with_their_own_accounts_and_roles() {
    let ring = KeyRing::from_system();
    ring.set(keys());
    let tokens = ServiceAccountTokens::new().keys(ring);
    let plane = ControlPlane::builder().simulated(0).rbac().service_account_tokens(tokens).build();
    let world = World { server: plane.server().clone() };
    with_person_of(plane, async |_| {
        for (account, work) in WORK {
            let token = token_of(&world, account).await;
            for (verbs, what) in work {
                for verb in verbs.split(' ') {
                    let allowed = may(&world, &token, verb, what).await;
                    assert!(allowed, "{account} may not {verb} {what}");
                }
            }
        }
        // A role gives what its controller needs, and no more.
        let token = token_of(&world, "deployment-controller").await;
        for (verb, what) in [("create", "pods"), ("get", "secrets"), ("delete", "deployments.apps")] {
            assert!(!may(&world, &token, verb, what).await, "{verb} {what}");
        }
        // The requests themselves, with the token.
        let deployment = json!({
            "metadata": {"name": "d"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        });
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        world.create(deployments, deployment).await;
        let found = world.with_token(&token, Method::GET, &format!("{deployments}/d"), Value::Null).await;
        assert_eq!(found.code, 200, "{}", found.body);
        let mut status = found.body;
        status["status"] = json!({"observedGeneration": 1});
        let path = format!("{deployments}/d/status");
        let written = world.with_token(&token, Method::PUT, &path, status).await;
        assert_eq!(written.code, 200, "{}", written.body);
        assert_eq!(written.body["status"]["observedGeneration"], 1);
        let secret = json!({"metadata": {"name": "s"}});
        let refused = world.with_token(&token, Method::POST, SECRETS, secret).await;
        assert_eq!(
            refused.error(),
            (
                403,
                r#"secrets is forbidden: User "system:serviceaccount:kube-system:deployment-controller" cannot create resource "secrets" in API group "" in the namespace "default""#
            )
        );
    })
    .await;
}
