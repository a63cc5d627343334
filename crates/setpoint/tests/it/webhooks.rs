//! Webhooks in a manager: a member of the webhooks' group, with metrics in the manager's registry.

use crate::plane::with_person;
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::{
    WebhookMetrics,
    prelude::*,
    runtime::endpoint::{Certificates, Endpoint},
    webhook::{Call, Change, Refusal, Webhooks, server},
};

async fn validate(change: Change<ConfigMap>, _call: Call) -> Result<(), Refusal> {
    assert!(change.after().is_some_and(|map| map.data.is_some()), "this one panics");
    Ok(())
}

fn review(object: &str) -> String {
    format!(
        r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {{
            "uid": "1", "operation": "CREATE", "object": {object}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn webhooks_run_in_a_manager_and_are_counted_in_its_metrics() {
    with_person(async |person| {
        let mut manager = Manager::builder(person.client.clone()).seed(1).build();
        let metrics = manager.metrics().clone();
        let webhooks = Webhooks::builder()
            .validate(validate)
            .metrics(WebhookMetrics::register(&metrics))
            .build()
            .unwrap();
        let server = server::WebhookServer::builder(webhooks.clone(), Clock::wall())
            .listen(server::Listen::Disabled)
            .bind()
            .await
            .unwrap();
        manager
            .add_runnable("webhooks", Runnable::webhooks(|stop| async { Ok(server.run(stop).await?) }))
            .unwrap();
        let stop = CancellationToken::new();
        let asking = async {
            let path = "/validate--v1-configmap";
            let reply = webhooks.handle(path, review(r#"{"data": {"a": "1"}}"#)).await;
            assert_eq!(reply.code, 200);
            let panicked = webhooks.handle(path, review("{}")).await;
            assert_eq!(panicked.code, 200, "a denial, too, is an answer");
            let text = metrics.prometheus();
            for line in [
                r#"controller_runtime_webhook_requests_total{webhook="/validate--v1-configmap",code="200"} 2"#,
                r#"controller_runtime_webhook_requests_total{webhook="/validate--v1-configmap",code="500"} 0"#,
                r#"controller_runtime_webhook_requests_in_flight{webhook="/validate--v1-configmap"} 0"#,
                r#"controller_runtime_webhook_panics_total{webhook="/validate--v1-configmap"} 1"#,
                r#"controller_runtime_webhook_latency_seconds_count{webhook="/validate--v1-configmap"} 2"#,
                "certwatcher_read_certificate_total 0",
                "certwatcher_read_certificate_errors_total 0",
            ] {
                assert!(text.contains(&format!("\n{line}\n")), "{line} is not in\n{text}");
            }
            stop.cancel();
        };
        let (ran, ()) = tokio::join!(manager.run(stop.clone()), asking);
        ran.unwrap();
    })
    .await;
}

#[tokio::test]
async fn reads_of_certificates_are_one_family_for_endpoints_and_webhooks() {
    with_person(async |person| {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let endpoint = endpoint.tls(Certificates::self_signed(Clock::wall()).unwrap());
        let manager = Manager::builder(person.client.clone()).serve_metrics(endpoint).build();
        let metrics = manager.metrics();
        let of_webhooks = WebhookMetrics::register(&metrics);
        setpoint::webhook::Metrics::certificate_read(&*of_webhooks);
        let text = metrics.prometheus();
        for (name, count) in [
            ("certwatcher_read_certificate_total", 1),
            ("certwatcher_read_certificate_errors_total", 0),
        ] {
            assert_eq!(text.matches(&format!("# TYPE {name} counter\n")).count(), 1, "{text}");
            assert_eq!(text.matches(&format!("\n{name} {count}\n")).count(), 1, "{text}");
        }
    })
    .await;
}
