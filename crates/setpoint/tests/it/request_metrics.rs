//! Request metrics of a control plane, scraped over HTTPS.

use crate::extension_backend::{JSON, get, over_https, send, widgets};
use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyDataStream;
use kube_client::Client;
use serde_json::{Value, json};
use setpoint::runtime::metrics::Metrics;
use setpoint::{ControlPlane, MetricsPageOptions};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long the server may take to notice that a client has disconnected.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn scrape(client: &Client) -> String {
    let (code, page) = get(client, "/metrics").await;
    assert_eq!(code, 200, "{page}");
    page
}

/// The value of the series with exactly these labels.
fn value(page: &str, metric: &str, labels: &str) -> Option<f64> {
    let words = |text: &str| -> BTreeSet<String> {
        text.split("\",").map(|word| word.trim_end_matches('"').to_owned()).collect()
    };
    page.lines().find_map(|line| {
        let (series, value) = line.strip_prefix(metric)?.strip_prefix('{')?.rsplit_once("} ")?;
        (words(series) == words(labels)).then(|| value.parse().unwrap())
    })
}

/// Labels of a request on ConfigMaps.
fn config_maps(verb: &str, scope: &str) -> String {
    format!(
        r#"verb="{verb}",group="",version="v1",resource="configmaps",subresource="",scope="{scope}",component="apiserver""#
    )
}

fn total(page: &str, labels: &str, dry_run: &str, code: u16) -> Option<f64> {
    let labels = format!(r#"{labels},dry_run="{dry_run}",code="{code}""#);
    value(page, "apiserver_request_total", &labels)
}

#[tokio::test]
async fn counters_begin_again_after_a_reset_and_labels_may_be_limited() {
    let metrics = Metrics::new();
    let codes = ["200", "201"];
    let options = MetricsPageOptions::default().allow("apiserver_request_total", "code", codes);
    let builder = ControlPlane::builder().controllers(false).serve_some_metrics(&metrics, options);
    over_https(builder, async |_, client, _| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let post = async || send(&client, "POST", CONFIG_MAPS, JSON, &object).await.0;
        assert_eq!((post().await, post().await), (201, 409));
        let posts = config_maps("POST", "resource");
        let unexpected = format!(r#"{posts},dry_run="",code="unexpected""#);
        let refused = |page: &str| value(page, "apiserver_request_total", &unexpected);
        let page = scrape(&client).await;
        assert_eq!((total(&page, &posts, "", 201), refused(&page)), (Some(1.0), Some(1.0)));
        assert_eq!(total(&page, &posts, "", 409), None);

        let reset = Request::delete("/metrics").body(Vec::new().into()).unwrap();
        assert_eq!(client.send(reset).await.unwrap().status(), 200);
        let page = scrape(&client).await;
        assert_eq!((total(&page, &posts, "", 201), refused(&page)), (None, None), "{page}");
        assert_eq!(post().await, 409);
        assert_eq!(refused(&scrape(&client).await), Some(1.0));
    })
    .await;
}

#[tokio::test]
async fn requests_are_counted_and_a_watch_once_at_its_end() {
    let metrics = Metrics::new();
    let builder = ControlPlane::builder().controllers(false).serve_metrics(&metrics);
    over_https(builder, async |_, client, _| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let dry = format!("{CONFIG_MAPS}?dryRun=All");
        for (path, code) in [(&*dry, 201), (CONFIG_MAPS, 201), (CONFIG_MAPS, 409)] {
            assert_eq!(send(&client, "POST", path, JSON, &object).await.0, code);
        }
        for _ in 0..3 {
            assert_eq!(get(&client, &format!("{CONFIG_MAPS}/a")).await.0, 200);
        }
        assert_eq!(get(&client, "/livez/ping").await.0, 200);
        let watch = Request::get(format!("{CONFIG_MAPS}?watch=true")).body(Vec::new().into());
        let watch = client.send(watch.unwrap()).await.unwrap();
        let mut events = BodyDataStream::new(watch.into_body());
        events.next().await.unwrap().unwrap();

        let page = scrape(&client).await;
        let posts = config_maps("POST", "resource");
        assert_eq!(total(&page, &posts, "", 201), Some(1.0), "{page}");
        assert_eq!(total(&page, &posts, "", 409), Some(1.0));
        assert_eq!(total(&page, &posts, "All", 201), Some(1.0));
        let gets = config_maps("GET", "resource");
        assert_eq!(total(&page, &gets, "", 200), Some(3.0));
        let timed = format!(r#"{gets},dry_run="""#);
        let duration = "apiserver_request_duration_seconds";
        assert_eq!(value(&page, &format!("{duration}_count"), &timed), Some(3.0));
        let slowest = format!(r#"{timed},le="60.0""#);
        assert_eq!(value(&page, &format!("{duration}_bucket"), &slowest), Some(3.0), "{page}");
        let livez = r#"verb="GET",group="",version="",resource="",subresource="/livez",scope="",component="""#;
        assert_eq!(total(&page, livez, "", 200), Some(1.0), "{page}");
        // The watch is open, and this scrape is in flight.
        let watches = config_maps("WATCH", "namespace");
        assert_eq!(value(&page, "apiserver_longrunning_requests", &watches), Some(1.0));
        assert_eq!(total(&page, &watches, "", 200), None);
        let in_flight = |kind| {
            let labels = format!(r#"request_kind="{kind}""#);
            value(&page, "apiserver_current_inflight_requests", &labels)
        };
        assert_eq!((in_flight("readOnly"), in_flight("mutating")), (Some(1.0), Some(0.0)));

        drop(events);
        let ended = async || {
            let page = scrape(&client).await;
            total(&page, &watches, "", 200).map(|n| {
                (n, value(&page, "apiserver_longrunning_requests", &watches))
            })
        };
        // The server notices the disconnect asynchronously.
        let counted = async {
            loop {
                if let Some(counted) = ended().await {
                    break counted;
                }
            }
        };
        let counted = tokio::time::timeout(PATIENCE, counted).await.expect("the watch has ended");
        assert_eq!(counted, (1.0, Some(0.0)));
    })
    .await;
}

#[tokio::test]
async fn labels_are_bounded_for_any_requests() {
    let metrics = Metrics::new();
    let builder = ControlPlane::builder().controllers(false).serve_metrics(&metrics);
    over_https(builder.backend(widgets()), async |_, client, _| {
        let ask = async |n: usize| {
            for path in [
                format!("/x{n}/y"),
                format!("/apis/g{n}.io/v1/things"),
                format!("/apis/apps/v{n}/things"),
                format!("/api/v1/things{n}"),
                format!("/api/v1/namespaces/n{n}/configmaps/a{n}"),
                format!("/api/v1/namespaces/n{n}/pods/a{n}/sub{n}"),
                format!("/apis/ex.io/v1/things{n}/a/sub{n}"),
                format!("/healthz/check{n}"),
                format!("/openapi/v3/apis/g{n}.io/v1"),
            ] {
                for method in ["GET", "POST", "OPTIONS", "FROB"] {
                    send(&client, method, &path, JSON, &Value::Null).await;
                }
            }
        };
        ask(0).await;
        // The first scrape is counted in the second.
        scrape(&client).await;
        let series = |page: &str| -> BTreeSet<String> {
            let names = page.lines().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name);
            names.map(str::to_owned).collect()
        };
        let before = series(&scrape(&client).await);
        for n in 1..5 {
            ask(n).await;
        }
        let after = series(&scrape(&client).await);
        assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
        assert!(before.iter().any(|name| name.contains(r#"resource="other""#)));
        assert!(before.iter().any(|name| name.contains(r#"verb="other""#)));
    })
    .await;
}

#[tokio::test]
async fn metrics_page_is_authorized_as_a_path() {
    over_https(ControlPlane::builder().controllers(false), async |_, client, _| {
        assert_eq!(get(&client, "/metrics").await.0, 404, "nobody asked for it");
    })
    .await;
    let nobody = std::sync::Arc::new(crate::extension_backend::Nothing::default());
    let builder = ControlPlane::builder().controllers(false).serve_metrics(&Metrics::new());
    over_https(builder.authorizer(nobody), async |_, admin, bob| {
        assert_eq!(get(&admin, "/metrics").await.0, 200);
        let (code, status) = get(&bob, "/metrics").await;
        assert_eq!(code, 403);
        assert!(status.contains(r#"User \"bob\" cannot get path \"/metrics\""#), "{status}");
    })
    .await;
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A definition with a rule in CEL.
fn ruled() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rings.ex.io"},
        "spec": {
            "group": "ex.io",
            "scope": "Namespaced",
            "names": {"plural": "rings", "singular": "ring", "kind": "Ring", "listKind": "RingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"size": {"type": "integer"}},
                    "x-kubernetes-validations": [{"rule": "self.size < 10"}],
                }},
            }],
        },
    })
}

/// A webhook for Secrets that nobody answers.
fn unanswered() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [{
            "name": "w.ex.io",
            "clientConfig": {"url": "https://127.0.0.1:1/x"},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["secrets"],
            }],
        }],
    })
}

#[tokio::test]
async fn stages_of_requests_are_counted_under_the_names_of_dashboards() {
    let metrics = Metrics::new();
    let builder = ControlPlane::builder().controllers(false).serve_metrics(&metrics);
    over_https(builder, async |_, client, _| {
        assert_eq!(send(&client, "POST", CRDS, JSON, &ruled()).await.0, 201);
        assert_eq!(send(&client, "POST", WEBHOOKS, JSON, &unanswered()).await.0, 201);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        assert_eq!(send(&client, "POST", CONFIG_MAPS, JSON, &object).await.0, 201);
        let refused = async || {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
            send(&client, "POST", "/api/v1/namespaces/default/secrets", JSON, &secret).await.0
        };
        let ring = async || {
            let ring = json!({
                "apiVersion": "ex.io/v1", "kind": "Ring", "metadata": {"generateName": "r-"},
                "size": 7,
            });
            send(&client, "POST", "/apis/ex.io/v1/namespaces/default/rings", JSON, &ring).await.0
        };
        // The webhook is called, and the definition served, once their objects have arrived.
        let settled = async {
            while refused().await != 500 {}
            while ring().await != 201 {}
        };
        tokio::time::timeout(PATIENCE, settled).await.expect("the definitions have effect");
        assert_eq!(get(&client, "/api/v1/endpoints").await.0, 200);
        assert_eq!(get(&client, CONFIG_MAPS).await.0, 200);
        let watch = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
        assert_eq!(get(&client, &watch).await.0, 200);

        let page = scrape(&client).await;
        let known = |metric: &str, labels: &str| {
            let value = value(&page, metric, labels);
            value.unwrap_or_else(|| panic!("{metric}{{{labels}}}\n{page}"))
        };
        let lists = config_maps("LIST", "namespace");
        assert_eq!(known("apiserver_request_sli_duration_seconds_count", &lists), 1.0);
        assert_eq!(known("apiserver_response_sizes_count", &lists), 1.0);
        assert_eq!(known("apiserver_response_sizes_bucket", &format!(r#"{lists},le="1000.0""#)), 1.0);
        let posts = config_maps("POST", "resource");
        assert_eq!(known("apiserver_request_sli_duration_seconds_count", &posts), 1.0);
        assert_eq!(value(&page, "apiserver_response_sizes_count", &posts), None);
        let watched = r#"group="",version="v1",resource="configmaps""#;
        // The object, and the bookmark after it.
        assert_eq!(known("apiserver_watch_events_total", watched), 2.0);
        assert_eq!(known("apiserver_watch_events_sizes_count", watched), 2.0);
        let endpoints =
            r#"group="",version="v1",resource="endpoints",subresource="",removed_release="""#;
        assert_eq!(known("apiserver_requested_deprecated_apis", endpoints), 1.0);
        assert_eq!(known("apiserver_storage_objects", r#"resource="configmaps""#), 1.0);
        let definitions = r#"resource="customresourcedefinitions.apiextensions.k8s.io""#;
        assert_eq!(known("apiserver_storage_objects", definitions), 1.0);
        assert_eq!(known("apiserver_resource_objects", r#"group="ex.io",resource="rings""#), 1.0);
        let step = r#"operation="CREATE",type="validate",rejected="false""#;
        assert!(known("apiserver_admission_step_admission_duration_seconds_count", step) >= 4.0);
        let plugin = format!(r#"name="NamespaceLifecycle",{step}"#).replace("validate", "admit");
        assert!(known("apiserver_admission_controller_admission_duration_seconds_count", &plugin) >= 2.0);
        let hook = r#"name="w.ex.io",type="validating",operation="CREATE""#;
        let rejected = format!(r#"{hook},rejected="true""#);
        assert_eq!(known("apiserver_admission_webhook_admission_duration_seconds_count", &rejected), 1.0);
        let coded = format!(r#"{rejected},code="503""#);
        assert_eq!(known("apiserver_admission_webhook_request_total", &coded), 1.0);
        let why = format!(r#"{hook},error_type="calling_webhook_error",rejection_code="503""#);
        assert_eq!(known("apiserver_admission_webhook_rejection_count", &why), 1.0);
        let created = r#"operation="create",group="",resource="configmaps""#;
        assert_eq!(known("etcd_requests_total", created), 1.0);
        assert_eq!(known("etcd_request_duration_seconds_count", created), 1.0);
        assert!(known("authentication_attempts", r#"result="success""#) >= 8.0);
        assert!(known("authorization_attempts_total", r#"result="allowed""#) >= 8.0);
        for line in [
            "\napiserver_cel_compilation_duration_seconds_count 1\n",
            "\napiserver_cel_evaluation_duration_seconds_count 1\n",
            "\n# TYPE process_start_time_seconds gauge\n",
            "\n# TYPE process_cpu_seconds_total counter\n",
            "\napiserver_validation_declarative_validation_mismatch_total 0\n",
            "\napiserver_validation_declarative_validation_panic_total 0\n",
            "\nkubernetes_feature_enabled{name=\"WatchList\",stage=\"BETA\"} 1\n",
            "\nkubernetes_feature_enabled{name=\"GenericWorkload\",stage=\"ALPHA\"} 0\n",
            "\nkubernetes_build_info{major=\"1\",minor=\"36\",git_version=\"v1.36",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }

        let spaces = "/api/v1/namespaces/default/services";
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        assert_eq!(send(&client, "POST", spaces, JSON, &service).await.0, 201);
        for path in ["/livez", "/readyz?exclude=ping", "/healthz/ping"] {
            assert_eq!(get(&client, path).await.0, 200);
        }
        let page = scrape(&client).await;
        let known = |metric: &str, labels: &str| {
            let value = value(&page, metric, labels);
            value.unwrap_or_else(|| panic!("{metric}{{{labels}}}\n{page}"))
        };
        let dynamic = r#"cidr="10.0.0.0/16",scope="dynamic""#;
        assert_eq!(known("kube_apiserver_clusterip_allocator_allocation_total", dynamic), 1.0);
        let network = r#"cidr="10.0.0.0/16""#;
        let used = known("kube_apiserver_clusterip_allocator_allocated_ips", network);
        let free = known("kube_apiserver_clusterip_allocator_available_ips", network);
        assert_eq!(used + free, f64::from((1_u32 << 16) - 2));
        let ports = r#"scope="dynamic""#;
        assert_eq!(known("kube_apiserver_nodeport_allocator_allocation_total", ports), 1.0);
        assert!(page.contains("\nkube_apiserver_nodeport_allocator_allocated_ports 1\n"), "{page}");

        let (code, slis) = get(&client, "/metrics/slis").await;
        assert_eq!(code, 200, "{slis}");
        assert!(slis.contains("\nprocess_start_time_seconds "), "{slis}");
        let ping = r#"name="ping",type="livez""#;
        assert_eq!(value(&slis, "kubernetes_healthcheck", ping), Some(1.0), "{slis}");
        let passed = format!(r#"{ping},status="success""#);
        assert!(value(&slis, "kubernetes_healthchecks_total", &passed) >= Some(1.0), "{slis}");
        // Excluded and single checks do not count.
        let excluded = r#"name="ping",type="readyz""#;
        assert_eq!(value(&slis, "kubernetes_healthcheck", excluded), None, "{slis}");
        let single = r#"name="ping",type="healthz""#;
        assert_eq!(value(&slis, "kubernetes_healthcheck", single), None, "{slis}");
        assert_eq!(get(&client, "/metrics/others").await.0, 404);

        let listed: BTreeSet<&str> = include_str!("../../../../docs/metrics.md")
            .split("\n## ")
            .find(|section| section.starts_with("Always"))
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let served: BTreeSet<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        assert_eq!(listed, served, "docs/metrics.md lists the families of the page");
    })
    .await;
}

#[tokio::test]
async fn decisions_about_users_and_pods_are_counted() {
    let metrics = Metrics::new();
    let builder = ControlPlane::builder().rbac().service_accounts(false).serve_metrics(&metrics);
    over_https(builder, async |_, client, bob| {
        let page = scrape(&client).await;
        let certificates = "apiserver_client_certificate_expiration_seconds_count ";
        let n: u32 =
            page.lines().find_map(|line| line.strip_prefix(certificates)).unwrap().parse().unwrap();
        assert!(n >= 1, "{page}");

        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/enforce-version": "v1.99"});
        let space = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "strict", "labels": labels}});
        assert_eq!(send(&client, "POST", "/api/v1/namespaces", JSON, &space).await.0, 201);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let pods = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods");
        assert_eq!(send(&client, "POST", &pods("strict"), JSON, &pod).await.0, 403);
        assert_eq!(send(&client, "POST", &pods("default"), JSON, &pod).await.0, 201);

        assert_eq!(get(&bob, CONFIG_MAPS).await.0, 403);
        assert_eq!(get(&bob, "/version").await.0, 200);
        let as_ann = async |client: &Client| {
            let request = Request::get(CONFIG_MAPS).header("Impersonate-User", "ann");
            let answer = client.send(request.body(Vec::new().into()).unwrap()).await.unwrap();
            answer.status().as_u16()
        };
        // The administrator may, and ann has no rights.
        assert_eq!((as_ann(&client).await, as_ann(&bob).await), (403, 403));

        let page = scrape(&client).await;
        let known = |metric: &str, labels: &str| {
            let value = value(&page, metric, labels);
            value.unwrap_or_else(|| panic!("{metric}{{{labels}}}\n{page}"))
        };
        let rbac = r#"type="RBAC",name="rbac",decision="allowed""#;
        assert_eq!(known("apiserver_authorization_decisions_total", rbac), 1.0);
        let attempts = "apiserver_impersonation_attempts_total";
        assert_eq!(known(attempts, r#"mode="user-info",decision="allowed""#), 1.0);
        assert_eq!(known(attempts, r#"mode="",decision="denied""#), 1.0);
        let asked = "apiserver_impersonation_authorization_attempts_total";
        assert_eq!(known(asked, r#"mode="legacy",decision="denied""#), 1.0);
        let checked = |decision: &str, policy: &str| {
            let labels = format!(
                r#"decision="{decision}",{policy},mode="enforce",request_operation="create",resource="pod",subresource="""#
            );
            known("pod_security_evaluations_total", &labels)
        };
        assert_eq!(checked("deny", r#"policy_level="restricted",policy_version="future""#), 1.0);
        assert_eq!(checked("allow", r#"policy_level="privileged",policy_version="latest""#), 1.0);
        // As kube-apiserver's, these are there before they count.
        let exempt = r#"request_operation="update",resource="controller",subresource="""#;
        assert_eq!(known("pod_security_exemptions_total", exempt), 0.0);
    })
    .await;
}
