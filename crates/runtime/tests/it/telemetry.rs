//! Passes as OpenTelemetry spans.

use std::{collections::BTreeMap, time::Duration};

use expect_test::expect;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use opentelemetry::trace::{SpanId, Tracer, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::json;
use setpoint_runtime::{Action, BoxError, Context, Controller, Request, Watch, telemetry::Traces};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, config_map, pass, run},
};

/// A span as text, without random values.
fn text(span: &SpanData) -> String {
    let mut attributes: BTreeMap<String, String> = BTreeMap::new();
    for attribute in &span.attributes {
        attributes.insert(attribute.key.to_string(), attribute.value.to_string());
    }
    attributes.remove("setpoint.reconcile.id");
    let took = span.end_time.duration_since(span.start_time).unwrap();
    let mut text = format!("{} {:?} {:?} {took:?}\n", span.name, span.span_kind, span.status);
    for (key, value) in attributes {
        text += &format!("  {key} = {value}\n");
    }
    for event in &span.events.events {
        let attributes = event.attributes.iter().map(|a| format!(" {}={}", a.key, a.value));
        text += &format!("  {}:{}\n", event.name, attributes.collect::<String>());
    }
    text
}

#[tokio::test(start_paused = true)]
async fn pass_is_a_span_with_its_reads_and_writes_and_inner_spans_are_children() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    server.put("/api/v1/namespaces/default/configmaps", config_map("a"));
    server.fail_next(Method::PATCH, "configmaps", 409);
    let inner = provider.tracer("reconciler");
    let reconcile = move |request: Request, context: Context| {
        let inner = inner.clone();
        async move {
            let maps = context.client().api::<ConfigMap>();
            maps.get(&request)?;
            tokio::time::sleep(Duration::from_millis(3)).await;
            inner.in_span("inner", |_| ());
            let merge = kube_core::params::Patch::Merge(json!({"data": {"seen": "yes"}}));
            maps.patch(&request, &merge).await?;
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let controller = Controller::builder("config")
        .for_(Watch::<ConfigMap>::new())
        .explain(0)
        .traces(Traces::new(&provider))
        .build(reconcile);
    let (running, _handle) = run(&server, controller.unwrap());
    pass(Duration::from_secs(1)).await;
    running.stop().await.unwrap();

    let spans = exporter.get_finished_spans().unwrap();
    let passes: Vec<_> = spans.iter().filter(|span| span.name == "reconcile config").collect();
    assert!(passes.iter().all(|span| span.parent_span_id == SpanId::INVALID));
    for (inner, pass) in spans.iter().filter(|span| span.name == "inner").zip(&passes) {
        assert_eq!(inner.parent_span_id, pass.span_context.span_id());
    }
    expect![[r#"
        reconcile config Internal Error { description: "patch configmaps default/a: as the test wants it" } 3ms
          error.type = error
          k8s.namespace.name = default
          setpoint.controller.name = config
          setpoint.reconcile.attempt = 0
          setpoint.reconcile.cause = initial-list
          setpoint.reconcile.events = 1
          setpoint.reconcile.outcome = error
          setpoint.reconcile.priority = -100
          setpoint.reconcile.resource_version = 1
          setpoint.reconcile.source = 0
          setpoint.reconcile.waited = 0
          setpoint.request = default/a
          k8s.read: setpoint.resource=configmaps setpoint.object=default/a setpoint.times=1 setpoint.from=cache
          k8s.write: setpoint.resource=configmaps setpoint.object=default/a setpoint.times=1 setpoint.verb=patch setpoint.outcome=refused http.response.status_code=409
        reconcile config Internal Unset 3ms
          k8s.namespace.name = default
          setpoint.controller.name = config
          setpoint.reconcile.attempt = 1
          setpoint.reconcile.cause = retry
          setpoint.reconcile.events = 1
          setpoint.reconcile.outcome = success
          setpoint.reconcile.priority = -100
          setpoint.reconcile.waited = 0
          setpoint.request = default/a
          k8s.read: setpoint.resource=configmaps setpoint.object=default/a setpoint.times=1 setpoint.from=cache
          k8s.write: setpoint.resource=configmaps setpoint.object=default/a setpoint.times=1 setpoint.verb=patch setpoint.outcome=done setpoint.resource_version=2
    "#]].assert_eq(&passes[..2].iter().map(|span| text(span)).collect::<String>());
}
