//! The exporter against a collector that answers, one that fails, one that is silent, and none.

use super::*;
use crate::testing::Collector;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_spans::{QUEUE_SPANS_MAX, Sampling, SpanKind, Tracer};
use tokio::net::TcpListener;

fn tracer() -> Tracer {
    let clock = Clock::starting_at(Timestamp::from_secs(1));
    Tracer::new(Sampling::per_million(1_000_000), clock, 1)
}

fn add(tracer: &Tracer, n: usize) {
    for _ in 0..n {
        let span = tracer.begin(SpanKind::Server, tracer.now(), None).unwrap();
        span.name("GET");
        span.set("http.response.status_code", 200_u16);
        span.event("written");
    }
}

fn exporter(tracer: &Tracer, endpoint: &str) -> Exporter {
    let resource =
        Resource { service_name: "apiserver".to_owned(), instance_id: "apiserver-x".to_owned() };
    Exporter::new(tracer.queue().clone(), Endpoint::Tcp(endpoint.to_owned()), resource)
}

#[tokio::test]
async fn full_batches_are_sent_at_once_and_the_rest_at_the_end() {
    let (tracer, collector) = (tracer(), Collector::bind(&[]).await.unwrap());
    let stop = CancellationToken::new();
    add(&tracer, 2 * BATCH_SPANS_MAX + 7);
    let run = exporter(&tracer, &collector.endpoint()).run(stop.clone());
    let ends = async {
        tracer.queue().has(0).await;
        stop.cancel();
    };
    tokio::join!(run, ends);
    let spans = collector.spans();
    assert_eq!((spans.len(), tracer.queue().dropped()), (2 * BATCH_SPANS_MAX + 7, 0));
    let span = &spans[0];
    assert_eq!((&*span.name, span.kind, span.events.len()), ("GET", 2, 1));
    assert_eq!(span.attributes["http.response.status_code"], "200");
    assert_eq!(span.resource["service.name"], "apiserver");
    assert_eq!(span.resource["service.instance.id"], "apiserver-x");
}

#[tokio::test]
async fn a_failure_is_transient_or_loses_the_batch_at_once() {
    // In real time, because a paused clock would overtake the sockets.
    let (tracer, stop) = (tracer(), CancellationToken::new());
    add(&tracer, 3);
    let batch = tracer.queue().take(3);
    let unavailable = Collector::bind(&[14]).await.unwrap();
    let to = exporter(&tracer, &unavailable.endpoint());
    let mut slot = None;
    let error = to.send(&mut slot, &batch).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    to.send(&mut slot, &batch).await.unwrap();
    assert_eq!((unavailable.spans().len(), tracer.queue().dropped()), (3, 0));

    let invalid = Collector::bind(&[3]).await.unwrap();
    let to = exporter(&tracer, &invalid.endpoint());
    to.deliver(&mut None, &batch, &stop).await;
    assert_eq!((invalid.spans().len(), tracer.queue().dropped()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_sent_again_for_a_minute() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let tracer = tracer();
    add(&tracer, 3);
    let batch = tracer.queue().take(3);
    let begun = Instant::now();
    let to = exporter(&tracer, &closed.to_string());
    to.deliver(&mut None, &batch, &CancellationToken::new()).await;
    // A call may have ended by its limit: the paused clock overtakes the socket.
    let took = begun.elapsed();
    assert!(took >= RETRY_MAX - RETRY_INTERVAL && took <= RETRY_MAX + EXPORT_MAX, "{took:?}");
    assert_eq!(tracer.queue().dropped(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_silent_collector_costs_a_bounded_queue_and_a_bounded_stop() {
    // Accepts by its backlog, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tracer = tracer();
    let stop = CancellationToken::new();
    let endpoint = silent.local_addr().unwrap().to_string();
    let run = exporter(&tracer, &endpoint).run(stop.clone());
    let ends = async {
        for _ in 0..20 {
            add(&tracer, QUEUE_SPANS_MAX);
            sleep(Duration::from_secs(1)).await;
        }
        assert!(tracer.queue().len() <= QUEUE_SPANS_MAX);
        stop.cancel();
        Instant::now()
    };
    let ((), stopped) = tokio::join!(run, ends);
    assert!(stopped.elapsed() <= FLUSH_MAX * 2, "{:?}", stopped.elapsed());
    assert_eq!(tracer.queue().dropped(), 20 * QUEUE_SPANS_MAX as u64);
    assert!(tracer.queue().is_empty());
}

#[tokio::test]
async fn without_a_collector_spans_are_lost_and_counted() {
    // Bound and closed: nobody listens.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let tracer = tracer();
    let stop = CancellationToken::new();
    add(&tracer, 9);
    stop.cancel();
    exporter(&tracer, &closed.to_string()).run(stop).await;
    assert_eq!((tracer.queue().len(), tracer.queue().dropped()), (0, 9));
}
