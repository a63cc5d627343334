//! Bounds against servers that never answer, answer without end, or demand long waits.
use crate::support::*;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use setpoint_informer::reflector::{EVENTS_PER_POLL_MAX, RETRY_AFTER_MAX, ReflectorOptions};
use setpoint_informer::source::scripted::{Answer, Asked, Script, Step};
use setpoint_informer::source::{ListPage, ListRequest, WatchFrame, WatchRequest, WatchStream};
use setpoint_informer::{ListWatch, ReflectorError, SharedInformer, SourceError};
use setpoint_object::{ApiError, Reason};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn repeated(n: usize, every: u64, step: impl Fn(u64) -> Step) -> Vec<Step> {
    (0..n as u64).flat_map(|at| [wait(every), step(at + 10)]).collect()
}

#[tokio::test(start_paused = true)]
async fn ref_13_bookmarks_and_changes_do_not_extend_the_initial_events_timeout() {
    let endless: [fn(u64) -> Step; 2] = [bookmark, |version| modified("a", version)];
    for step in endless {
        let script =
            Script::streaming([Answer::Watch(repeated(10_000, 1, step)), page("5", &[("a", 3)])]);
        let start = Instant::now();
        let running = Running::start(builder(&script));
        running.informer.synced().await.unwrap();
        settle().await;
        assert_eq!(asked(&script), [r#"stream """#, r#"list "0" limit=500"#, r#"watch "5""#]);
        let at = asked_at(&script, start)[1];
        assert!((120.0..122.0).contains(&at), "{at}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ref_13_slow_streamed_list_may_take_long_but_not_for_ever() {
    // One object every 100 s: slow, but the list completes.
    let slow = |n| repeated(n, 100, |at| added(&format!("o{at}"), at));
    let mut ends = slow(5);
    ends.extend([marker(50), Step::Hang]);
    let script = Script::streaming([Answer::Watch(ends)]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    assert_eq!((asked(&script).len(), running.cache().len()), (1, 5));
    running.end().await;

    let script = Script::streaming([Answer::Watch(slow(1000)), page("5", &[("a", 3)])]);
    let start = Instant::now();
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    assert_eq!(asked(&script)[..2], [r#"stream """#, r#"list "0" limit=500"#]);
    let at = asked_at(&script, start)[1];
    assert!((600.0..611.0).contains(&at), "{at}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_11a_unanswered_list_times_out_and_is_requested_again() {
    let script = Script::new([]);
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let start = Instant::now();
    let running =
        Running::start(builder(&script).on_error(move |error| seen.lock().push(error.to_string())));
    pass(130).await;
    assert_eq!(asked(&script), [r#"list "0" limit=500"#; 2]);
    assert!(asked_at(&script, start)[1] >= 120.8);
    assert_eq!(*errors.lock(), ["no list of configmaps within 120s"]);
    let degraded = running.informer.status().degraded.unwrap();
    assert!(matches!(&*degraded.error, ReflectorError::ListTimeout { .. }));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honored_between_and_within_rounds_up_to_a_limit() {
    let busy_for = |seconds| SourceError::from(ApiError::too_many_requests("busy", seconds));
    let down_for = |seconds| {
        let mut error = ApiError::new(503, Reason::ServiceUnavailable, "starting");
        error.0.details.get_or_insert_default().retry_after_seconds = seconds;
        SourceError::from(error)
    };
    let script = Script::new([
        no_list(down_for(40)),
        no_list(busy_for(1_000_000)),
        page("5", &[]),
        Answer::Refuse(busy_for(50)),
        Answer::Watch(vec![wait(1), fails(busy_for(60))]),
    ]);
    let start = Instant::now();
    let running = Running::start(builder(&script));
    pass(1000).await;
    let at = asked_at(&script, start);
    let slept: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let max = RETRY_AFTER_MAX.as_secs_f64();
    for (slept, want) in slept.iter().zip([40.0, max, 0.0, 50.0, 61.0]) {
        assert!((want - 0.01..want + 0.01).contains(slept), "{slept} for {want}");
    }
    running.end().await;
}

/// A server whose watches never end, and whose streamed lists have no end marker.
#[derive(Clone)]
struct Endless(Arc<Mutex<u64>>);

impl ListWatch for Endless {
    fn list(&self, _: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async { Ok(ListPage::new("5", vec![])) }.boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        let sent = self.0.clone();
        async move {
            assert!(!request.send_initial_events);
            let frames = stream::repeat_with(move || {
                let mut sent = sent.lock();
                *sent += 1;
                match modified(&format!("o{}", *sent % 7), 5 + *sent) {
                    Step::Frame(frame) => Ok::<WatchFrame, SourceError>(frame),
                    _ => unreachable!("a frame"),
                }
            });
            Ok(frames.boxed())
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        false
    }
}

/// Moves this task to the end of the queue of ready tasks. (`yield_now` would wait until the others
/// are idle, or until the runtime next checks its timers.)
async fn turn() {
    let mut had = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut had, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn endless_stream_does_not_starve_other_tasks() {
    let source = Endless(Arc::default());
    let sent = source.0.clone();
    let (informer, worker) =
        SharedInformer::<k8s_openapi::api::core::v1::ConfigMap>::builder(source).seed(0).build();
    let log = Log::default();
    let _registration = log.add(&informer);
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(worker.run(stop.clone()));
    // Another task on the same thread, which runs once after each of the others has run.
    let lister = informer.lister();
    let mut beside = JoinSet::new();
    beside.spawn(async move {
        let (mut before, mut handled) = (0, 0);
        for _ in 0..200 {
            turn().await;
            let now = *sent.lock();
            // Its own wake-up for the queued events may have caused a second poll.
            let n = now - before;
            assert!(n <= 2 * EVENTS_PER_POLL_MAX as u64, "{n} in one turn");
            before = now;
            handled += log.take().len();
        }
        assert!(before > 1000, "the reflector makes progress: {before}");
        assert!(handled > 1000, "and so do its handlers: {handled}");
        let reached: u64 = lister.resource_version().parse().unwrap();
        assert!(5 + before - reached <= EVENTS_PER_POLL_MAX as u64, "and its cache: {reached}");
    });
    beside.join_next().await.unwrap().unwrap();
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn spec_2_1_watch_timeout_can_be_raised_but_not_lowered() {
    for (asked, range) in [(60, 300..600), (3600, 3600..7200)] {
        let mut options = ReflectorOptions::default();
        options.watch_timeout_min = Duration::from_secs(asked);
        let watches = (0..20).map(|n| Answer::Watch(vec![wait(2), bookmark(n + 6)]));
        let script = Script::new([page("5", &[])].into_iter().chain(watches));
        let running = Running::start(builder(&script).reflector(options));
        pass(60).await;
        for asked in script.asked() {
            if let Asked::Watch(_, watch) = asked {
                assert!(range.contains(&watch.timeout.as_secs()), "{:?}", watch.timeout);
            }
        }
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ref_8_a_panic_of_a_source_is_raised_in_the_worker() {
    struct Bad;
    impl ListWatch for Bad {
        fn list(&self, _: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
            async { panic!("this source cannot list") }.boxed()
        }
        fn watch(&self, _: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
            async { panic!("this source cannot watch") }.boxed()
        }
    }
    let (informer, worker) =
        SharedInformer::<k8s_openapi::api::core::v1::ConfigMap>::builder(Bad).seed(0).build();
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run(CancellationToken::new()));
    let ended = tasks.join_next().await.unwrap();
    assert!(ended.unwrap_err().is_panic());
    assert!(informer.has_stopped());
}

#[tokio::test(start_paused = true)]
async fn ref_33_reflector_retries_for_ever_and_reports_its_error() {
    let forbidden = || SourceError::from(ApiError::new(403, Reason::Forbidden, "not you"));
    let script = Script::new((0..400).map(|_| no_list(forbidden())));
    let running = Running::start(builder(&script));
    pass(3600).await;
    let n = asked(&script).len();
    assert!((60..200).contains(&n), "every thirty to sixty seconds, for ever: {n}");
    let degraded = running.informer.status().degraded.unwrap();
    assert_eq!(degraded.failures as usize, n);
    assert!(degraded.since.elapsed() > Duration::from_secs(3590));
    assert_eq!(degraded.to_string(), "failed to list configmaps: not you");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_26_invariant_16_object_that_is_not_json_breaks_the_watch_and_causes_a_list() {
    for broken in [r#"{"metadata":{"name":"a"#, r#"{"metadata":{"name":"a"}]"#] {
        let broken = Step::Frame(WatchFrame::Added(bytes::Bytes::from_static(broken.as_bytes())));
        let script = Script::new([
            page("5", &[]),
            Answer::Watch(vec![wait(2), added("b", 6), broken, added("c", 7), Step::Hang]),
            page("9", &[("c", 7)]),
        ]);
        let running = Running::start(builder(&script));
        pass(20).await;
        let again = [r#"list "6""#, r#"watch "9""#];
        assert_eq!(asked(&script)[2..], again, "nothing after it is accepted");
        assert_eq!(running.cache(), ["ns/c@7"]);
        running.end().await;
    }
}
